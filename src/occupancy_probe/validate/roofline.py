"""Which limit binds the best measured time, and how much faster any rewrite could be.

The floor is the larger of bytes over bandwidth and issue clocks over all SMs. A time near it is bound
by what the floor is made of. A time far above it is bound by waves if the grid leaves SMs idle or
unevenly loaded, and otherwise by latency: neither memory nor issue slots are busy, warps wait.

Of a whole step only the headroom over its bandwidth floor is said: it has many kernels, so the grid
and the share of the studied one cannot explain its time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from occupancy_probe.gpu import device_of_nvml_name, waves
from occupancy_probe.records import Bound, Dose, Feasibility, Interval, Plan, Result
from occupancy_probe.study import BASELINE, NULL, Study
from occupancy_probe.templating import microseconds
from occupancy_probe.validate.projection import project
from occupancy_probe.validate.statistics import estimate

NEAR = 1.25
"""A time within this factor of its floor is at it."""
UNEVEN = 0.7
"""Below this share of the SMs' slots in use the grid is what binds."""

Limit = Literal["bandwidth", "issue", "waves", "latency"]


def bounds(
    plan: Plan,
    device_name: str,
    target: str,
    results: Sequence[Result],
    floors: Mapping[str, Mapping[str, float]],
    matrix: Mapping[str, Feasibility],
    doses: Mapping[str, Dose],
    shares: Mapping[str, Interval],
) -> list[Bound]:
    """One per workload that was measured and has a floor. matrix: this target's, by arm."""
    device = device_of_nvml_name(device_name)
    found = []
    for workload in plan.workloads:
        floor = floors.get(workload.name, {})
        best = _best(results, workload.name)
        if best is None or best.time_us is None or not floor.get("floor_us"):
            continue
        if plan.times_steps:
            found.append(_of_step(best, best.time_us, floor["bandwidth_us"]))
            continue
        time, least = best.time_us, floor["floor_us"]
        larger: Limit = (
            "issue" if floor.get("issue_us", 0) > floor.get("bandwidth_us", 0) else "bandwidth"
        )
        fits = matrix.get(BASELINE if best.arm == NULL else best.arm)
        grid = math.prod(workload.grids[target]) if target in workload.grids else None
        used = _evenness(grid, device.sm_count, fits) if device and grid else None
        limit: Limit = "latency"
        measure = "yardstick" if larger == "issue" else "floor"
        why = f"{time / least:.1f} × the {larger} {measure} of {microseconds(least)}"
        if larger == "issue":
            why += f", {time / floor['bandwidth_us']:.1f} × the bandwidth's"
        if time <= NEAR * least:
            limit = larger
        elif used is not None and device and used < UNEVEN:
            limit = "waves"
            why += f"; {grid} CTAs fill {used * 100:.0f} % of what {device.sm_count} SMs hold meanwhile"
        if dosed := _dosed(doses, best.arm, workload.name):
            why += f"; {dosed}"
        ratio = Interval(value=least / time, low=least / time, high=least / time)
        share = shares.get(workload.name)
        found.append(
            Bound(
                workload=workload.name,
                arm=best.arm,
                time_us=time,
                limit=limit,
                floor_us=least,
                headroom=time / least,
                step_gain=project(share, ratio) if share else None,
                why=why,
            )
        )
    return found


def next_step(study: Study, limits: Sequence[Bound], shares: Mapping[str, Interval]) -> list[str]:
    """What a rewrite could bring where the rule wants a gain; nothing where no share is known."""
    improve = study.selects(study.file.decision.improve)
    known = [(b, b.step_gain) for b in limits if b.workload in improve and b.step_gain]
    if not known:
        return []
    gains = ", ".join(
        f"{g.value * 100:+.1f} % [{g.low * 100:+.1f} to {g.high * 100:+.1f}] at {b.workload}"
        for b, g in known
    ).replace("-", "−")
    text = (
        "next step: a rewrite that brought this kernel to the larger of bandwidth floor and issue"
        f" yardstick would gain {gains} end to end"
    )
    projection = study.file.projection
    if projection and all(1 / (1 - shares[b.workload].high) - 1 < projection.low for b, _ in known):
        text += (
            f"; even a step without this kernel would gain less than the projected"
            f" {projection.low * 100:.3g} %: what to speed up is the rest of the step"
        )
    return [text]


def _of_step(best: Result, time: float, least: float) -> Bound:
    return Bound(
        workload=best.workload,
        arm=best.arm,
        time_us=time,
        floor_us=least,
        headroom=time / least,
        why=f"{time / least:.1f} × the bandwidth floor of {microseconds(least)}",
    )


def _best(results: Sequence[Result], workload: str) -> Result | None:
    timed = [
        r
        for r in results
        if r.workload == workload and r.time_us and r.arm != NULL and r.verdict != "wrong"
    ]
    return min(timed, key=lambda r: r.time_us or math.inf, default=None)


def _evenness(ctas: int, sm_count: int, fits: Feasibility | None) -> float | None:
    """Mean load of the SMs over that of the busiest, the last wave included."""
    if fits is None or not fits.ctas_per_sm:
        return None
    of = waves(ctas, sm_count, fits.ctas_per_sm)
    if of.count > 1:
        return of.fill
    return ctas / (sm_count * of.resident_ctas_per_sm)


def _dosed(doses: Mapping[str, Dose], arm: str, workload: str) -> str | None:
    """What capping the CTAs per SM did to the arm (or to the baseline, where only it was dosed)."""
    dose = doses.get(arm) or doses.get(BASELINE)
    replicates = dose.replicates.get(workload) if dose else None
    if dose is None or not replicates:
        return None
    points = sorted(dose.points.items(), key=lambda p: p[1].ctas)
    if len(points) < 2:
        return None
    (low, fewest), (high, most) = points[0], points[-1]
    of = estimate(replicates, high, low, 0.05)
    if of is None:
        return None
    moved = "fewer resident warps cost time" if of.high < 1 else "residency is not what limits it"
    return (
        f"dose of {dose.arm}: {most.ctas} instead of {fewest.ctas} CTA per SM takes"
        f" {of.ratio:.2f} × the time [{of.low:.2f}–{of.high:.2f}]: {moved}"
    )
