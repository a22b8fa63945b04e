"""The plan as a Markdown document; later the same document with its result table filled."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from occupancy_probe import gpu
from occupancy_probe.matrix import target_findings
from occupancy_probe.plan.amendments import Amendment
from occupancy_probe.plan.repeats import Repeat
from occupancy_probe.records import (
    DeviceVerdict,
    Feasibility,
    Plan,
    Result,
    System,
    Verdict,
)
from occupancy_probe.study.expressions import evaluate
from occupancy_probe.study.schema import Decision, Measurement, Projection
from occupancy_probe.templating import (
    NOT_MEASURED,
    config_text,
    interval,
    microseconds,
    percent,
    render,
)

TEMPLATE = "plan.md.j2"


def render_document(
    plan: Plan,
    templates: Path,
    verdict: Verdict | None = None,
    feasibility: Mapping[str, Mapping[str, Feasibility]] | None = None,
    amendments: Sequence[Amendment] = (),
    expected: System | None = None,
    repeats: Sequence[Repeat] = (),
) -> str:
    """The document of ``plan``: a pure function of the plan (and of verdict and feasibility).

    ``feasibility`` is by target, then arm; ``amendments`` those of this plan, oldest first;
    ``expected`` the step as a series that the study names has it; ``repeats`` the measurements that
    a later one replaced. Without a verdict, or before any device was measured, every cell of the
    result table reads "not measured".
    """
    compiled = feasibility or {}
    sections = plan.sections
    decision = Decision.model_validate(sections["decision"])
    raw_projection = sections.get("projection")
    projection = Projection.model_validate(raw_projection) if raw_projection else None
    devices = verdict.devices if verdict else []
    return render(
        templates,
        TEMPLATE,
        plan=plan,
        sections=sections,
        m=Measurement.model_validate(sections.get("measurement") or {}),
        decision=decision,
        improve=_selected(plan, decision.improve),
        guard=_selected(plan, decision.guard),
        projection=projection,
        projected=_selected(plan, projection.where) if projection else [],
        targets=[_target_view(plan, name) for name in plan.targets],
        kernels=Counter(plan.kernels),
        facts=_facts(plan),
        autotune=_autotune(plan),
        assumptions=_assumptions(plan, verdict),
        empty=_table(plan, None, {}),
        tables=[_table(plan, d, compiled.get(d.target, {})) for d in devices],
        verdict=verdict,
        devices=devices,
        feasibility=compiled,
        findings={
            t: target_findings(records, [a.name for a in plan.arms])
            for t, records in compiled.items()
        },
        amendments=amendments,
        expected=expected,
        repeats=repeats,
    )


def _selected(plan: Plan, expression: str) -> list[str]:
    return [w.name for w in plan.workloads if evaluate(expression, w.axes)]


def _target_view(plan: Plan, name: str) -> dict[str, Any]:
    """A target with its plan device and what follows for every workload."""
    target = gpu.target(name)
    device = gpu.device(target.device) if target.device else None
    ctas = {w.name: math.prod(w.grids[name]) if name in w.grids else None for w in plan.workloads}
    warps = plan.sections["baseline"].get("num_warps")
    view: dict[str, Any] = {
        "name": name,
        "device": device,
        "ctas": ctas,
        "max_warps": target.max_warps_per_sm,
        "cta_share": warps / target.max_warps_per_sm if isinstance(warps, int) else None,
        "starved": [],
        "waves": {},
    }
    if device:
        in_flight = gpu.bytes_in_flight_needed(100, device.bandwidth_gb_s)
        view |= {
            "in_flight": round(in_flight / device.sm_count),
            "floors": {w.name: w.bytes / device.bandwidth_gb_s / 1e3 for w in plan.workloads},
            "issue": {w.name: w.sm_clocks / device.sm_count for w in plan.workloads},
            "starved": [w for w, n in ctas.items() if n is not None and n <= device.sm_count],
            "waves": {w: _waves(n, device.sm_count) for w, n in ctas.items() if n},
        }
    return view


def _waves(ctas: int, sm_count: int) -> str:
    """Waves of a grid where every SM holds one CTA, and how full they are: ``2, 51 % full``."""
    found = gpu.waves(ctas, sm_count, 1)
    return f"{found.count}, {percent(found.fill, 0)} full"


def _facts(plan: Plan) -> dict[str, Any]:
    """The arms' facts as a table, arms with equal facts sharing a row."""
    keys = list(dict.fromkeys(key for arm in plan.arms for key in arm.facts))
    rows: dict[str, dict[str, Any]] = {}
    for arm in plan.arms:
        values = [arm.facts.get(key) for key in keys]
        rows.setdefault(repr(values), {"values": values, "arms": []})["arms"].append(arm.name)
    return {"columns": keys, "rows": list(rows.values())}


def _autotune(plan: Plan) -> dict[str, Any]:
    """The autotuner's key and configs, and the axes that vary without being in the key."""
    found = plan.autotune or {}
    key = [str(k) for k in found.get("key") or []]
    varying = [
        axis
        for axis in dict.fromkeys(axis for w in plan.workloads for axis in w.axes)
        if len({repr(w.axes.get(axis)) for w in plan.workloads}) > 1
    ]
    configs = [
        config_text(c) if isinstance(c, Mapping) else str(c) for c in found.get("configs") or []
    ]
    return {"key": key, "configs": configs, "blind": [axis for axis in varying if axis not in key]}


def _assumptions(plan: Plan, verdict: Verdict | None) -> list[dict[str, Any]]:
    judged = {a.text: a for a in verdict.assumptions} if verdict else {}
    stated = [str(text) for text in plan.sections.get("assume") or []]
    return [
        {
            "text": text,
            "verdict": judged[text].verdict if text in judged else None,
            "values": judged[text].values if text in judged else {},
        }
        for text in dict.fromkeys([*stated, *judged])
    ]


def _table(
    plan: Plan, device: DeviceVerdict | None, compiled: Mapping[str, Feasibility]
) -> dict[str, Any]:
    """Rows arms × columns workloads; without a device every cell is empty."""
    results = {(r.arm, r.workload): r for r in device.results} if device else {}
    rows = [
        {
            "arm": arm.name,
            "same_code_as": compiled[arm.name].same_code_as if arm.name in compiled else None,
            "cells": [_cell(results.get((arm.name, w.name))) for w in plan.workloads],
        }
        for arm in plan.arms
    ]
    return {
        "title": f"{device.device_name}, {device.measured_at[:10]} ({device.source})"
        if device
        else "",
        "columns": [w.name for w in plan.workloads],
        "rows": rows,
        "reasons": _reasons(results.values()),
        "floor": _noise(results.values()),
        "dropped": _dropped(device) if device else "",
    }


def _cell(result: Result | None) -> str:
    if result is None or result.verdict == "not measured":
        return NOT_MEASURED
    if result.time_us is None and result.ratio is None:
        return result.verdict
    parts = [microseconds(result.time_us)]
    if result.ratio is not None and result.verdict != "baseline":
        between = interval(result.low, result.high)
        parts.append(f"{result.ratio:.3f}" + (f" ({between})" if between else ""))
    return ", ".join([*parts, result.verdict])


def _reasons(results: Iterable[Result]) -> list[str]:
    """One line per arm and reason, with the workloads it holds for."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for r in results:
        if r.reason:
            found.setdefault((r.arm, r.verdict, r.reason), []).append(r.workload)
    return [
        f"{arm}, {verdict} at {', '.join(workloads)}: {reason}"
        for (arm, verdict, reason), workloads in found.items()
    ]


def _dropped(device: DeviceVerdict) -> str:
    return ", ".join(d.words() for d in (device.gpu.drops if device.gpu else []))


def _noise(results: Iterable[Result]) -> str:
    floors = {r.workload: r.noise_floor for r in results if r.noise_floor is not None}
    return ", ".join(f"{workload} {percent(value, 2)}" for workload, value in floors.items())
