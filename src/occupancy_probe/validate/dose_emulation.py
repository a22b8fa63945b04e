"""The arms at the residency that they have on another target, against the baseline at its own there.

The plan pre-registers no test of it, so there is a ratio with its interval and no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from occupancy_probe.records import Dose, EmulatedRatio, Emulation
from occupancy_probe.study import BASELINE, NULL
from occupancy_probe.validate.dose_pairs import joined, one_run, ratio_range, resident
from occupancy_probe.validate.statistics import estimate

_SLOWER, _FASTER, _NEITHER = "slower", "faster", "no difference shown"


def emulated(
    doses: Mapping[str, Dose],
    device_name: str,
    own_target: str | None,
    sm_count: int | None,
    alpha: float,
) -> list[Emulation]:
    """One entry per target whose residency some dose has; ``own_target`` (the device's) is none.

    Ratios are paired inside the blocks of one run. Left out, with the reason, are arms without a
    dose of that residency, and workloads whose grid does not put it on an SM.
    """
    targets = [t for d in doses.values() for p in d.points.values() for t in p.emulates]
    return [
        _emulation(target, doses, device_name, sm_count, alpha)
        for target in dict.fromkeys(targets)
        if target != own_target
    ]


def emulation_sentences(found: Sequence[Emulation], device_name: str) -> list[str]:
    """One sentence per target and arm; slower or faster only where the interval excludes 1."""
    return [
        f"at {e.target}'s residency (emulated on {device_name}, exploratory, not {e.target}'s"
        f" result) — {text}: {_said(list(ratios.values()))}"
        for e in found
        for text, ratios in e.rows().items()
    ]


def _emulation(
    target: str,
    doses: Mapping[str, Dose],
    device_name: str,
    sm_count: int | None,
    alpha: float,
) -> Emulation:
    label = (
        f"emulation of {target}'s residency on {device_name}, exploratory (not one of the plan's"
        " tests); clocks, caches, bandwidth and instruction costs stay this GPU's: not"
        f" {target}'s result"
    )
    base = doses.get(BASELINE)
    reference = _dose_on(base, target) if base else None
    ratios: list[EmulatedRatio] = []
    left_out: list[str] = []
    if base is None or reference is None:
        nothing = "every arm: no dose of the baseline has the CTAs per SM that it has there"
        return Emulation(target=target, label=label, ratios=[], left_out=[nothing])
    for arm, record in doses.items():
        if arm in (BASELINE, NULL):
            continue
        dose = _dose_on(record, target)
        if dose is None:
            left_out.append(_why(record, target))
        elif not one_run(record, base):
            left_out.append(f"{arm}: not in the baseline's blocks")
        else:
            there = [
                w
                for w in record.replicates
                if _filled(record, dose, w, sm_count) and _filled(base, reference, w, sm_count)
            ]
            ratios += _ratios(record, dose, base, reference, there, alpha)
            if small := [w for w in record.replicates if w not in there]:
                left_out.append(f"{arm} at {', '.join(small)}: the grid has too few CTAs for it")
    order = list(base.replicates)
    ratios.sort(key=lambda r: order.index(r.workload))
    return Emulation(target=target, label=label, ratios=ratios, left_out=left_out)


def _ratios(
    record: Dose, dose: str, base: Dose, reference: str, workloads: Sequence[str], alpha: float
) -> list[EmulatedRatio]:
    return [
        EmulatedRatio(
            arm=record.arm,
            workload=workload,
            ctas=record.points[dose].ctas,
            warps=record.num_warps,
            baseline_ctas=base.points[reference].ctas,
            baseline_warps=base.num_warps,
            ratio=of.ratio,
            low=of.low,
            high=of.high,
        )
        for workload in workloads
        if (of := estimate(joined(record, base, workload), dose, reference, alpha))
    ]


def _dose_on(record: Dose, target: str) -> str | None:
    """The dose with the arm's CTAs per SM on ``target``, unless the driver denies it."""
    return next(
        (
            name
            for name, p in record.points.items()
            if target in p.emulates and p.driver_ctas in (None, p.ctas)
        ),
        None,
    )


def _why(record: Dose, target: str) -> str:
    """The record's own note where there is one: the arm does not fit there, or this GPU holds less."""
    begin = f"{record.arm} on {target}: "
    return next(
        (note for note in record.notes if note.startswith(begin)),
        f"{begin}no dose has the CTAs per SM that it has there",
    )


def _filled(record: Dose, dose: str, workload: str, sm_count: int | None) -> bool:
    ctas = record.points[dose].ctas
    return resident(ctas, record.grids.get(workload), sm_count) == ctas


def _said(ratios: Sequence[EmulatedRatio]) -> str:
    by: dict[str, list[EmulatedRatio]] = {}
    for r in ratios:
        by.setdefault(_SLOWER if r.low > 1 else _FASTER if r.high < 1 else _NEITHER, []).append(r)
    parts = [
        f"{word} at {', '.join(r.workload for r in found)} (ratio {ratio_range(found)})"
        for word, found in by.items()
    ]
    return ("differs by workload: " if len(parts) > 1 else "") + "; ".join(parts)
