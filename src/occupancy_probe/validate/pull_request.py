"""The answer that people paste: hypothesis, one table, verdict, environment, two commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from occupancy_probe.records import (
    DeviceVerdict,
    EndToEnd,
    Plan,
    Result,
    Verdict,
    WorkloadPlan,
)
from occupancy_probe.study import BASELINE, NULL
from occupancy_probe.study.expressions import evaluate
from occupancy_probe.templating import microseconds, render
from occupancy_probe.validate.decision import span

TEMPLATE = "pull_request.md.j2"
NEXT_STEP = "next step: "
"""How the conclusion that a rewrite's bound is in begins (:func:`.roofline.next_step`)."""
ROWS = 6
"""Arms in the table: the baseline, what was projected and decided, and the best of the rest."""


class Amended(Protocol):
    """A change of the plan after it had been committed."""

    @property
    def committed_at(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def changes(self) -> Sequence[str]: ...


def render_pull_request(
    plan: Plan,
    verdict: Verdict,
    templates: Path,
    amendments: Sequence[Amended] = (),
    evidence: str | None = None,
) -> str:
    """Markdown for a pull request or an issue; one part per device, "not measured" without any.

    amendments: of the plan, oldest first. evidence: the commit to check out, which holds the plan
    and all evidence that the figures rest on; by default the plan's.
    """
    return render(
        templates,
        TEMPLATE,
        plan=plan,
        sections=plan.sections,
        verdict=verdict,
        devices=[_view(plan, d) for d in verdict.devices],
        amendments=amendments,
        rule_changed=any(c.startswith("decision.") for a in amendments for c in a.changes),
        evidence=evidence,
        plan_commit=planned_in(verdict),
    )


def planned_in(verdict: Verdict) -> str | None:
    """The plan's commit: this machine's note of it, or what the evidence names where a clone has none."""
    named = (d.plan_commit for d in verdict.devices if d.plan_commit)
    return verdict.plan_commit or next(named, None)


def _view(plan: Plan, device: DeviceVerdict) -> dict[str, Any]:
    by = {(r.arm, r.workload): r for r in device.results}
    names = [w.name for w in plan.workloads]
    gains = {(g.arm, g.workload): g for g in (device.system.gains if device.system else [])}
    arms = _arms(plan, device, by)
    improve = [w.name for w in plan.workloads if _decides(plan, w)]
    return {
        "verdict": device,
        "columns": names,
        "rows": [{"arm": a, "cells": [_cell(by.get((a, w))) for w in names]} for a in arms],
        "gains": [_gain(a, w, gains) for a in arms for w in improve if (a, w) in gains],
        "floor": max((r.noise_floor for r in device.results if r.noise_floor), default=None),
        "measured": span([w for w in names if by[BASELINE, w].time_us], names),
        "next_steps": [
            c.removeprefix(NEXT_STEP) for c in device.conclusions if c.startswith(NEXT_STEP)
        ],
        "bounds": [
            b
            for b in device.bounds
            if b.workload in improve and device.ruling and not device.ruling.arm
        ],
    }


def _decides(plan: Plan, workload: WorkloadPlan) -> bool:
    """Whether the rule wants a gain at this workload."""
    return bool(evaluate(plan.sections["decision"]["improve"], workload.axes))


def _arms(plan: Plan, device: DeviceVerdict, by: Mapping[tuple[str, str], Result]) -> list[str]:
    """Baseline, adopted, projected, then by the lowest ratio anywhere."""
    projected = (plan.sections.get("projection") or {}).get("arms") or []
    rest = sorted(
        (r.ratio, r.arm) for r in device.results if r.ratio and r.arm not in (BASELINE, NULL)
    )
    order = [BASELINE, *filter(None, [device.adopted]), *projected, *(arm for _, arm in rest)]
    return list(dict.fromkeys(order))[:ROWS]


def _cell(result: Result | None) -> str:
    if result is None or (result.ratio is None and result.time_us is None):
        return result.verdict if result else "not measured"
    time = microseconds(result.time_us) if result.time_us else ""
    if result.arm == BASELINE or result.ratio is None:
        return time
    ends = f" [{result.low:.3f}–{result.high:.3f}]" if result.low and result.high else ""
    return f"{result.ratio:.3f}{ends} {result.verdict}"


def _gain(arm: str, workload: str, gains: Mapping[tuple[str, str], EndToEnd]) -> dict[str, Any]:
    return {"arm": arm, "workload": workload, "of": gains[arm, workload]}
