"""What becomes of each of an autotuner's configs on each target: it runs, is skipped, or aborts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from occupancy_probe.gpu import limits, target
from occupancy_probe.launch.autotune import Benched, Touch
from occupancy_probe.records import Feasibility, Reason, Specialization, TunedConfig
from occupancy_probe.research.feasibility import SPILLS, TRAP, Compiled
from occupancy_probe.research.workers import COMPILE_TIME, Workers
from occupancy_probe.study import Study

Fate = Literal["fits", "skipped", "aborts", "pruned", "not known"]

_SILENT = ("OutOfResources", "CompileTimeAssertionFailure", "PTXASError")
"""What ``Autotuner._bench`` catches and counts as infinitely slow."""


def fates(
    study: Study,
    configs: Sequence[Mapping[str, Any]],
    touches: Mapping[str, Sequence[Touch]],
    matrix: Mapping[str, Mapping[str, Feasibility]],
    workers: int,
) -> list[TunedConfig]:
    """Per config its fate on every target; configs that no arm has are compiled.

    touches: per target, what its rehearsal made of the workloads.
    """
    found: list[tuple[dict[str, Fate], dict[str, str]]] = [({}, {}) for _ in configs]
    for name, on_target in touches.items():
        missing: dict[int, dict[str, Specialization]] = {}
        for i, config in enumerate(configs):
            tried = [b for t in on_target for b in _tried(t) if b.config == config]
            fate: tuple[Fate, str]
            if refused := next((b.error for b in tried if b.error), None):
                fate = ("aborts", refused)
            elif not tried:
                fate = ("pruned", "") if any(_tried(t) for t in on_target) else ("not known", "")
            elif (record := _arm_of(config, matrix.get(name, {}))) is not None:
                fate = _fate(record.reasons, record.verdict == "unsupported")
            else:
                missing[i] = {
                    b.specialization.key: b.specialization for b in tried if b.specialization
                }
                continue
            found[i][0][name], found[i][1][name] = fate
        for i, made in _compiled(study, name, missing, workers).items():
            found[i][0][name], found[i][1][name] = made
    return [
        TunedConfig(config=_said(c), fate=fate, reasons={t: r for t, r in reasons.items() if r})
        for c, (fate, reasons) in zip(configs, found, strict=True)
    ]


def _said(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config without what every config has."""
    return {k: v for k, v in config.items() if (k, v) != ("num_ctas", 1)}


def _tried(touch: Touch) -> list[Benched]:
    """What a launch tried: with one config nothing is timed, but it is launched."""
    return touch.benched or ([touch.launched] if touch.launched else [])


def _arm_of(config: Mapping[str, Any], records: Mapping[str, Feasibility]) -> Feasibility | None:
    listed = TunedConfig(config=dict(config), fate={})
    return next((r for r in records.values() if listed.is_arm(r.config)), None)


def _compiled(
    study: Study, name: str, missing: Mapping[int, Mapping[str, Specialization]], workers: int
) -> dict[int, tuple[Fate, str]]:
    specs = {key: spec for each in missing.values() for key, spec in each.items()}
    made: dict[str, Compiled] = {}
    if specs:
        goal = target(name)
        with Workers(study.kernel_folder, workers, study.file.limits.compile_s) as pool:
            made = dict(pool.compile_all({key: (spec, goal) for key, spec in specs.items()}))
    found = {}
    for i, each in missing.items():
        reasons = [r for key in each if key in made for r in _reasons(name, made[key])]
        found[i] = _fate(reasons, any(made[k].unsupported for k in each if k in made))
        if not each:
            found[i] = ("not known", "")
    return found


def _reasons(name: str, compiled: Compiled) -> list[Reason]:
    if compiled.reason is not None:
        return [compiled.reason]
    figures = compiled.figures or {}
    excess = limits(
        target(name),
        figures["shared_bytes"],
        figures["threads"],
        figures["registers"],
        figures["tensor_memory_columns"],
    )
    return [
        Reason(limit=e.limit, required=e.required, allowed=e.allowed, text=e.text) for e in excess
    ]


def _fate(reasons: Sequence[Reason], unsupported: bool) -> tuple[Fate, str]:
    """The fate that the first telling reason has."""
    for reason in reasons:
        if reason.limit == SPILLS:  # a bound of the study's, not of the autotuner's
            continue
        if reason.limit == COMPILE_TIME:
            return "not known", reason.text
        silent = not unsupported and (
            reason.limit == TRAP
            or (reason.allowed is not None and reason.limit != "num_warps")
            or reason.text.startswith(_SILENT)
        )
        return ("skipped" if silent else "aborts"), reason.text
    return "fits", ""
