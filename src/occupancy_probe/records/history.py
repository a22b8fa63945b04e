"""Changes of plans and figures over time, and what a reproduction found."""

from __future__ import annotations

from typing import Any, Literal

from occupancy_probe.records.base import Part, Record


class Change(Part):
    """One value that is another now."""

    what: str
    before: Any
    after: Any


class Figure(Part):
    """Something that was published, held against the same thing made again."""

    kind: Literal["plan", "feasibility", "logic", "statistics", "document", "timing"]
    subject: str
    """Arm, or what else the figure speaks of."""
    where: str
    """Target, device and workload, as far as they apply."""
    outcome: Literal["same", "moved", "reversed", "not comparable"]
    """reversed: a verdict that is now its opposite (fits / rejected, faster / slower, right / wrong)."""
    changes: list[Change] = []
    why: str | None = None
    """Why it is not comparable, or what else is to be said."""
    versions_before: dict[str, str] = {}
    versions_after: dict[str, str] = {}


class PublishedDrift(Record):
    """Published feasibility against what this environment makes of the same kernel and configs."""

    figures: list[Figure]


class Reproduction(Record):
    """A past revision tried again: every figure, and what follows from all of them."""

    revision: str
    """As it was asked for."""
    commit: str
    subject: str
    committed_at: str
    environment: Literal["present", "locked"]
    workflow: Literal["its own", "today's"]
    figures: list[Figure]
    verdict: Literal["reproduced", "reproduced in part", "reversed", "gone"]
    notes: list[str] = []
