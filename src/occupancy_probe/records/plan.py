"""The frozen plan and where it stands in history."""

from __future__ import annotations

from typing import Any

from occupancy_probe.records.base import Part, Record


class WorkloadPlan(Part):
    """A workload with what the trace and the Problem say of it."""

    name: str
    axes: dict[str, Any]
    bytes: int
    flop: int
    sm_clocks: float
    grids: dict[str, list[int]]
    """Per target: the CTAs of the baseline's launch of the studied kernel, as its grid."""


class ArmPlan(Part):
    """An arm as planned."""

    name: str
    config: dict[str, Any]
    why: list[str]
    facts: dict[str, Any]


class Plan(Record):
    """The frozen plan: a pure function of study, kernel source and Problem; ``plan_hash`` names it."""

    plan_hash: str
    title: str
    document: str
    sections: dict[str, Any]
    """The study file's sections as loaded."""
    arms: list[ArmPlan]
    workloads: list[WorkloadPlan]
    targets: list[str]
    kernels: list[str] = []
    """Kernels of one launch of the baseline, in order: all of them are timed together."""
    autotune: dict[str, Any] | None
    """Key and configs of the autotuner around the kernel; None where there is none."""

    @property
    def times_steps(self) -> bool:
        """Whether a launch is a whole step, of which the studied kernel is a part."""
        return (self.sections.get("throughput") or {}).get("series") == "measured"


class PlanCommit(Record):
    """Where the plan stands in history."""

    plan_hash: str
    commit: str | None
    """None: commits are switched off, or there was an override."""
    committed_at: str | None
    preregistered: bool
    note: str
