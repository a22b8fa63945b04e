"""Two arms' doses: the samples that lie in common blocks, what is on an SM, how their ratios read."""

from __future__ import annotations

import math
from collections.abc import Sequence

from occupancy_probe.records import Dose, DoseFinding, EmulatedRatio, Replicate


def one_run(a: Dose, b: Dose) -> bool:
    """Whether equal process and allocation in both mean the same blocks."""
    return a.started_at == b.started_at


def joined(a: Dose, b: Dose, workload: str) -> Sequence[Replicate]:
    """Replicates that both records hold of one run, with the arms of both."""
    other = {(r.process, r.allocation): r for r in b.replicates.get(workload, [])}
    return [
        r.model_copy(update={"arms": {**other[key].arms, **r.arms}})
        for r in a.replicates.get(workload, [])
        if (key := (r.process, r.allocation)) in other
    ]


def resident(ctas: int, grid: int | None, sm_count: int | None) -> int:
    """CTAs on the fullest SM; without grid or SM count, what fits."""
    return min(ctas, math.ceil(grid / sm_count)) if grid and sm_count else ctas


def ratio_range(group: Sequence[DoseFinding] | Sequence[EmulatedRatio]) -> str:
    """Least and greatest ratio, and the span of all intervals: ``1.119–1.133 [1.117–1.134]``."""
    ratios = [t.ratio for t in group]
    low, high = min(t.low for t in group), max(t.high for t in group)
    span = f"{min(ratios):.3f}–{max(ratios):.3f}" if len(ratios) > 1 else f"{ratios[0]:.3f}"
    return f"{span} [{low:.3f}–{high:.3f}]"
