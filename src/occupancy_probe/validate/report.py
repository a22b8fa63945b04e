"""The report: one HTML file that works offline, from the records and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from occupancy_probe import gpu
from occupancy_probe.exc import StudyError
from occupancy_probe.matrix import target_findings
from occupancy_probe.records import (
    Check,
    Correctness,
    DeviceVerdict,
    DriverCheck,
    EnvironmentDrift,
    Feasibility,
    Plan,
    PlanCommit,
    Result,
    Verdict,
)
from occupancy_probe.study import BASELINE, NULL
from occupancy_probe.study.expressions import evaluate
from occupancy_probe.study.schema import Decision, Projection
from occupancy_probe.templating import render
from occupancy_probe.validate.dose_plot import dose_plot
from occupancy_probe.validate.plots import ratio_plot, residency_plot, time_plot
from occupancy_probe.validate.step_plot import step_plot

TEMPLATE = "report.html.j2"
SHORT = 12
"""Result rows shown at once; more arms go into a part that unfolds."""
PANELS = 3
"""Targets side by side in one residency chart."""

Matrix = Mapping[str, Mapping[str, Feasibility]]


def render_report(
    plan: Plan,
    commit: PlanCommit | None,
    verdict: Verdict,
    feasibility: Matrix,
    logic: Mapping[str, Correctness],
    correctness: Mapping[str, Mapping[str, Correctness]],
    versions: Mapping[str, str],
    templates: Path,
    drivers: Mapping[str, DriverCheck] | None = None,
    history: Mapping[str, Any] | None = None,
    environments: Sequence[EnvironmentDrift] = (),
) -> str:
    """HTML of a study's outcome.

    feasibility: by target, then arm. logic: what the interpreter showed, by arm. correctness: by
    device (slug), then arm. versions: of the tools that made this report. Where there is no record
    the report says so, and nothing is left out of it.
    """
    decision = Decision.model_validate(plan.sections["decision"])
    raw = plan.sections.get("projection")
    projection = Projection.model_validate(raw) if raw else None
    where = _selected(plan, projection.where) if projection else []
    improve = _selected(plan, decision.improve)
    arms = [a.name for a in plan.arms]
    views = [
        _device_view(plan, d, improve, where, projection, decision.margin, feasibility)
        for d in verdict.devices
    ]
    roles = views[0]["roles"] if views else _roles(projection, None)
    targets = [(t, feasibility[t]) for t in plan.targets if t in feasibility]
    charts = [dict(targets[i : i + PANELS]) for i in range(0, len(targets), PANELS)]
    return render(
        templates,
        TEMPLATE,
        plan=plan,
        sections=plan.sections,
        commit=commit,
        verdict=verdict,
        decision=decision,
        improve=improve,
        projection=projection,
        where=where,
        devices=views,
        roles=roles,
        targets=[
            {
                "name": t,
                "records": feasibility.get(t, {}),
                "limits": gpu.target(t),
                "findings": target_findings(feasibility.get(t, {}), arms),
            }
            for t in plan.targets
        ],
        counts=_counts(arms, feasibility, plan.targets),
        residency=[Markup(residency_plot(arms, chart, roles)) for chart in charts],
        correctness=_correctness(plan, logic, correctness),
        gpu_names={d: _name(records) for d, records in correctness.items()},
        versions=versions,
        drivers=drivers or {},
        history=history,
        environments=environments,
    )


def _device_view(
    plan: Plan,
    device: DeviceVerdict,
    improve: Sequence[str],
    where: Sequence[str],
    projection: Projection | None,
    margin: float,
    feasibility: Matrix,
) -> dict[str, Any]:
    """One device: its rows in reading order, what is highlighted, its two charts."""
    results = {(r.arm, r.workload): r for r in device.results}
    candidates = [a.name for a in plan.arms if a.name not in (BASELINE, NULL)]
    means = {arm: _mean(results, arm, improve) for arm in (*candidates, NULL, BASELINE)}
    measured = [a for a in candidates if means[a] is not None]
    best = min(measured, key=lambda a: means[a] or 0.0, default=None)
    roles = _roles(projection, device.adopted or best)
    named = projection.arms if projection else []
    compiled = feasibility.get(device.target, {})
    rows = [
        _row(arm, [results.get((arm, w.name)) for w in plan.workloads], means.get(arm), compiled)
        for arm in sorted((a.name for a in plan.arms), key=lambda a: _order(a, means.get(a)))
    ]
    top = [r for r in rows if r["arm"] in roles or r["arm"] == NULL]
    rest = [r for r in rows if r not in top]
    return {
        "verdict": device,
        "best": best,
        "best_mean": means[best] if best else None,
        "roles": roles,
        "rows": rows,
        "short": [r for r in rows if r in top or r in rest[: max(0, SHORT - len(top))]],
        "floors": {r.workload: r.noise_floor for r in device.results if r.noise_floor is not None},
        "base": {w.name: results.get((BASELINE, w.name)) for w in plan.workloads},
        "projected": [(a, _mean(results, a, where)) for a in named or ([best] if best else [])],
        "time": Markup(time_plot(plan.workloads, device, roles)) if measured else None,
        "ratio": Markup(ratio_plot(plan.workloads, device, roles, margin)) if measured else None,
        "dose_plot": Markup(dose_plot(device.dose))
        if device.dose and device.dose.figures
        else None,
        "step_plot": _step_plot(device),
    }


def _step_plot(device: DeviceVerdict) -> Markup | None:
    model = device.system.model if device.system else None
    return Markup(step_plot(model)) if model else None


def _row(
    arm: str, cells: list[Result | None], mean: float | None, compiled: Mapping[str, Feasibility]
) -> dict[str, Any]:
    """A row of the matrix; ``whole`` is set where one verdict and reason hold for all workloads."""
    said = {(c.verdict, c.reason) for c in cells if c}
    whole = cells[0] if len(said) == 1 and None not in cells else None
    found = compiled.get(arm)
    return {
        "arm": arm,
        "cells": cells,
        "mean": mean,
        "whole": whole if whole and whole.time_us is None and whole.ratio is None else None,
        "missing": not any(cells),
        "same_code_as": found.same_code_as if found else None,
    }


def _order(arm: str, mean: float | None) -> tuple[int, float]:
    """Baseline, its twin, then by mean ratio; arms without a figure last."""
    return ([BASELINE, NULL].index(arm) if arm in (BASELINE, NULL) else 2, mean or math.inf)


def _mean(
    results: Mapping[tuple[str, str], Result], arm: str, workloads: Iterable[str]
) -> float | None:
    """Geometric mean ratio over ``workloads``; None unless all of them were measured."""
    found = [results.get((arm, w)) for w in workloads]
    logs = [math.log(r.ratio) for r in found if r and r.ratio]
    return math.exp(math.fsum(logs) / len(logs)) if logs and len(logs) == len(found) else None


def _roles(projection: Projection | None, best: str | None) -> dict[str, str]:
    projected = dict.fromkeys(projection.arms if projection else [], "projected")
    return {**projected, **({best: "best"} if best else {}), BASELINE: "baseline"}


def _counts(
    arms: Sequence[str], feasibility: Matrix, targets: Sequence[str]
) -> list[dict[str, Any]]:
    """Per target: how many arms fit, are rejected, share a binary."""
    counts = []
    for name in targets:
        found = [feasibility[name][a] for a in arms if a in feasibility.get(name, {})]
        counts.append(
            {
                "target": name,
                "compiled": len(found),
                "fits": sum(f.verdict == "fits" for f in found),
                "not": sum(f.verdict != "fits" for f in found),
                "same": sum(f.same_code_as is not None and f.arm != NULL for f in found),
            }
        )
    return counts


def _correctness(
    plan: Plan,
    logic: Mapping[str, Correctness],
    devices: Mapping[str, Mapping[str, Correctness]],
) -> list[dict[str, Any]]:
    """Per arm: what the interpreter showed (perhaps through another arm), then every device."""
    stands = {other: r for r in logic.values() for other in r.stands_for}
    return [
        {
            "arm": arm.name,
            "logic": _shown(logic.get(arm.name) or stands.get(arm.name), arm.name),
            "gpu": [_shown(records.get(arm.name), arm.name) for records in devices.values()],
        }
        for arm in plan.arms
    ]


def _shown(record: Correctness | None, arm: str) -> dict[str, Any] | None:
    """Verdict and worst figures of one record."""
    if record is None:
        return None
    errors = [e for c in record.checks for e in c.outputs.values()]
    replays = [c.replay_equals_eager for c in record.checks if c.replay_equals_eager is not None]
    return {
        "verdict": record.verdict,
        "through": record.arm if record.arm != arm else None,
        "checks": len(record.checks),
        "gate_used": max((e.gate_used for e in errors), key=_nan_first, default=None),
        "max_absolute": max((e.max_absolute for e in errors), key=_nan_first, default=None),
        "replay": all(replays) if replays else None,
        "faults": [_fault(c) for c in record.checks if c.verdict != "right"],
    }


def _nan_first(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _fault(check: Check) -> str:
    unwritten = sum(e.not_written for e in check.outputs.values())
    parts = [
        check.reason or "no reason recorded",
        f"{unwritten:,} elements not written" if unwritten else "",
        f"{check.guard_rows_overwritten} guard rows overwritten"
        if check.guard_rows_overwritten
        else "",
        "replay differs from eager" if check.replay_equals_eager is False else "",
    ]
    return f"{check.workload}: {check.verdict}: " + "; ".join(p for p in parts if p)


def _name(records: Mapping[str, Correctness]) -> str:
    return next((r.device_name for r in records.values()), "no device")


def _selected(plan: Plan, expression: str) -> list[str]:
    """Workloads that an expression of the study selects; none where it cannot be evaluated."""
    try:
        return [w.name for w in plan.workloads if evaluate(expression, w.axes)]
    except StudyError:
        return []
