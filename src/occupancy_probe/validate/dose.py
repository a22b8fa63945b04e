"""What the occupancy dose says: time against resident warps, and two tests of the hypothesis.

Beside them, without a verdict, the arms at another target's residency (:mod:`.dose_emulation`).

All comparisons pair doses inside the blocks of one run; estimates are :mod:`.statistics`' own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from occupancy_probe import gpu
from occupancy_probe.records import Dose, DoseFigure, DoseFinding, DoseVerdict
from occupancy_probe.study import BASELINE
from occupancy_probe.validate.dose_emulation import emulated, emulation_sentences
from occupancy_probe.validate.dose_pairs import joined, one_run, ratio_range, resident
from occupancy_probe.validate.statistics import (
    Estimate,
    equivalence_p,
    estimate,
    holm,
    inside,
    median_time,
)

Question = Literal["more warps hide the latency", "one wide CTA equals two narrow ones"]
Answer = Literal["confirmed", "refuted", "undecided"]


def dose_points(doses: Mapping[str, Dose], sm_count: int | None, alpha: float) -> list[DoseFigure]:
    """Every dose × workload that was measured, in order of arm, workload, CTAs."""
    found = []
    for arm, record in doses.items():
        for workload, replicates in record.replicates.items():
            for name, point in record.points.items():
                of = estimate(replicates, name, BASELINE, alpha)
                time = median_time(replicates, name)
                if of is None or time is None:
                    continue
                ctas = point.driver_ctas or point.ctas
                there = resident(ctas, record.grids.get(workload), sm_count)
                found.append(
                    DoseFigure(
                        arm=arm,
                        dose=name,
                        workload=workload,
                        ctas=ctas,
                        resident_ctas=there,
                        resident_warps=there * record.num_warps,
                        time_us=time,
                        ratio=of.ratio,
                        low=of.low,
                        high=of.high,
                        emulates=list(point.emulates),
                    )
                )
    return found


def more_warps(
    doses: Mapping[str, Dose], sm_count: int | None, margin: float, alpha: float
) -> list[DoseFinding]:
    """Within an arm: its most resident CTAs against one. Confirmed: faster. Refuted: equivalent or
    slower. The ratio is time at the most over time at one, below 1 is hidden latency.

    A workload whose grid holds the same CTAs per SM at both doses is no test and left out.
    """
    tried: dict[tuple[str, str], tuple[str, Estimate]] = {}
    for arm, record in doses.items():
        named = sorted(record.points, key=lambda n: record.points[n].ctas)
        if len(named) < 2:
            continue
        fewest, most = named[0], named[-1]
        for workload, replicates in record.replicates.items():
            low, high = (
                resident(record.points[n].ctas, record.grids.get(workload), sm_count)
                for n in (fewest, most)
            )
            if low == high:
                continue
            if of := estimate(replicates, most, fewest, alpha):
                warps = record.num_warps
                text = f"{arm}: {high} × {warps} warps against {low} × {warps}"
                tried[arm, workload] = (text, of)
    differ = holm({k: of.p for k, (_, of) in tried.items()})
    equal = holm({k: equivalence_p(of, margin) for k, (_, of) in tried.items()})
    return [
        _finding(
            "more warps hide the latency",
            text,
            workload,
            of,
            differ[arm, workload],
            equal[arm, workload],
            _hides(of, differ[arm, workload], equal[arm, workload], margin, alpha),
        )
        for (arm, workload), (text, of) in tried.items()
    ]


def wide_against_narrow(
    doses: Mapping[str, Dose], sm_count: int | None, margin: float, alpha: float
) -> list[DoseFinding]:
    """Arms that differ in nothing but warps per CTA, at doses with the same resident warps.

    Confirmed: equivalent within the margin. Refuted: different by more. The ratio is time of the
    wide CTA over time of the narrow ones, above 1 speaks for the narrow ones.
    """
    tried: dict[tuple[str, str], tuple[str, Estimate]] = {}
    for wide in doses.values():
        for narrow in doses.values():
            if not _wider(wide, narrow) or not one_run(wide, narrow):
                continue
            for workload in wide.replicates:
                both = joined(wide, narrow, workload)
                for w, n in _equal_warps(wide, narrow, workload, sm_count):
                    if of := estimate(both, w, n, alpha):
                        a, b = wide.points[w].ctas, narrow.points[n].ctas
                        text = (
                            f"{wide.arm}: {a} × {wide.num_warps} warps against"
                            f" {narrow.arm}: {b} × {narrow.num_warps}"
                        )
                        tried[text, workload] = (text, of)
    differ = holm({k: of.p for k, (_, of) in tried.items()})
    equal = holm({k: equivalence_p(of, margin) for k, (_, of) in tried.items()})
    return [
        _finding(
            "one wide CTA equals two narrow ones",
            text,
            workload,
            of,
            differ[text, workload],
            equal[text, workload],
            _same(of, differ[text, workload], equal[text, workload], margin, alpha),
        )
        for (_, workload), (text, of) in tried.items()
    ]


def _finding(
    question: Question,
    text: str,
    workload: str,
    of: Estimate,
    p: float,
    p_equal: float,
    verdict: Answer,
) -> DoseFinding:
    return DoseFinding(
        question=question,
        text=text,
        workload=workload,
        ratio=of.ratio,
        low=of.low,
        high=of.high,
        p=min(p, p_equal),
        verdict=verdict,
    )


def _hides(of: Estimate, p: float, p_equal: float, margin: float, alpha: float) -> Answer:
    if p_equal < alpha or (p < alpha and inside(of, margin)):
        return "refuted"
    if p < alpha:
        return "confirmed" if of.ratio < 1 else "refuted"
    return "undecided"


def _same(of: Estimate, p: float, p_equal: float, margin: float, alpha: float) -> Answer:
    if p_equal < alpha or (p < alpha and inside(of, margin)):
        return "confirmed"
    return "refuted" if p < alpha else "undecided"


def _wider(wide: Dose, narrow: Dose) -> bool:
    """Whether the arms have one config but for ``num_warps``, of which ``wide`` has more."""
    a, b = ({k: v for k, v in d.config.items() if k != "num_warps"} for d in (wide, narrow))
    return a == b and wide.num_warps > narrow.num_warps


def _equal_warps(
    wide: Dose, narrow: Dose, workload: str, sm_count: int | None
) -> list[tuple[str, str]]:
    """Pairs of doses with equally many warps on the fullest SM, both of them really there."""
    return [
        (w, n)
        for w, p in wide.points.items()
        for n, q in narrow.points.items()
        if p.ctas * wide.num_warps == q.ctas * narrow.num_warps
        and resident(p.ctas, wide.grids.get(workload), sm_count) == p.ctas
        and resident(q.ctas, narrow.grids.get(workload), sm_count) == q.ctas
    ]


def judge_doses(
    doses: Mapping[str, Dose], device_name: str, margin: float, alpha: float
) -> DoseVerdict | None:
    """What the doses of one device say; None where nothing was measured."""
    if not any(d.replicates for d in doses.values()):
        return None
    known = gpu.device_of_nvml_name(device_name)
    sms = known.sm_count if known else None
    tried = [
        *more_warps(doses, sms, margin, alpha),
        *wide_against_narrow(doses, sms, margin, alpha),
    ]
    elsewhere = emulated(doses, device_name, known.target if known else None, sms, alpha)
    points = {n: p for d in doses.values() for n, p in d.points.items()}
    differ = [
        f"{name}: padded for {p.ctas} CTAs per SM, the driver says {p.driver_ctas}"
        for name, p in points.items()
        if p.driver_ctas is not None and p.driver_ctas != p.ctas
    ]
    return DoseVerdict(
        figures=dose_points(doses, sms, alpha),
        findings=tried,
        sentences=[*sentences(tried), *emulation_sentences(elsewhere, device_name)],
        verified=sum(p.driver_ctas is not None for p in points.values()),
        notes=[*dict.fromkeys(n for d in doses.values() for n in d.notes), *differ],
        emulations=elsewhere,
    )


def sentences(tests: Sequence[DoseFinding]) -> list[str]:
    """One sentence per statement and pair: the verdicts with the workloads they hold for."""
    grouped: dict[tuple[str, str], list[DoseFinding]] = {}
    for t in tests:
        grouped.setdefault((t.question, t.text), []).append(t)
    lines = []
    for (question, text), group in grouped.items():
        by: dict[str, list[DoseFinding]] = {}
        for t in group:
            by.setdefault(t.verdict, []).append(t)
        said = "; ".join(
            f"{verdict} at {', '.join(t.workload for t in found)} (ratio {ratio_range(found)})"
            for verdict, found in by.items()
        )
        lines.append(f"{question} — {text}: {said}")
    return lines
