"""From replicates to a ratio with its interval, and to one of four verdicts.

The unit of analysis is the *process*. Inside a replicate the arms run interleaved, so the log ratio
arm / baseline is taken block by block, where drift and steps cancel, and its median over blocks is
the replicate's value. A process's value is the mean over its allocations; the estimate is the mean
over processes with a t interval on df = processes - 1.

Why not more degrees of freedom: processes do differ (ratios of two arms ranged 0.885-0.893 between
fresh processes of one H200). 200,000 simulated A/A experiments each, normal log ratios with 0.1 %
spread between processes and 0.1 % between allocations, rate of false claims over the nominal rate:

    processes x allocations, level       4 x 3, 5 %   4 x 3, 0.1 %   5 x 2, 5 %   5 x 2, 0.1 %
    t over process means (this)             1.0           1.0           1.0           1.0
    pooled if an F test sees no spread      1.4           8.3           1.3           3.3
    t over all replicates as independent    3.6          16.8           2.3           5.4

Holm's correction works at the small levels, where only the first keeps its word. Its price: a true
difference of 1 % passes the level 0.1 % (50 comparisons) with 4 x 3 replicates in 98 / 85 / 15 %
of studies at a spread of 0 (0.15 % within) / 0.1 / 0.3 % between processes, with 5 x 2 in 100 / 99.8
/ 42 %. Further processes buy power; further allocations hardly do.

Intervals are per comparison (level 1 - alpha each), not simultaneous; verdicts come from p values
that are adjusted by Holm over the family, so a verdict may be more cautious than its interval.

A difference is named only if it is also larger than what the null arm's interval admits: the twin of
the baseline shows what this very run makes of no difference. It halves the rate of false claims at
least (t quantile twice) and costs no power where effects are several times the noise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from scipy import stats

from occupancy_probe.exc import RecordError
from occupancy_probe.records import Confirmation, Replicate

Outcome = Literal["faster", "slower", "equivalent", "undecided"]
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Estimate:
    """Ratio of times arm / baseline (below 1 is faster) with what is known of its error."""

    ratio: float
    """Geometric mean over processes."""
    low: float
    high: float
    """Interval of one comparison at level 1 - alpha; 0 and infinity with a single process."""
    p: float
    """Two-sided p of "no difference", not adjusted."""
    df: int
    """Degrees of freedom: processes - 1."""
    replicates: int
    """Replicates that hold both arms."""
    standard_error: float
    """Of the mean log ratio; NaN with a single process."""

    @property
    def bound(self) -> float:
        """Largest difference that the interval admits, as a fraction: exp(max |log end|) - 1."""
        if self.low <= 0:
            return math.inf
        return math.expm1(max(-math.log(self.low), math.log(self.high), 0.0))


def log_ratio(replicate: Replicate, arm: str, baseline: str) -> float | None:
    """Median over blocks of log(arm / baseline), paired block by block; None if there is no pair.

    Dropped blocks are dropped for all arms, so lists of unequal length cannot be paired: None.
    """
    a, b = (np.asarray(replicate.arms.get(name, []), float) for name in (arm, baseline))
    if len(a) != len(b):
        return None
    usable = np.isfinite(a) & np.isfinite(b) & (a > 0) & (b > 0)
    if not usable.any():
        return None
    return float(np.median(np.log(a[usable] / b[usable])))


def require_one_gpu(replicates: Sequence[Replicate]) -> None:
    """RecordError if the replicates name more than one GPU: two GPUs never make one ratio."""
    found = {r.device_uuid for r in replicates if r.device_uuid}
    if len(found) > 1:
        raise RecordError(
            f"samples of {len(found)} GPUs ({', '.join(sorted(found))}) in one ratio; delete the"
            " record and measure again"
        )


def estimate(
    replicates: Sequence[Replicate], arm: str, baseline: str, alpha: float
) -> Estimate | None:
    """The ratio of ``arm`` to ``baseline`` over all replicates; None if none holds both."""
    require_one_gpu(replicates)
    by_process: dict[int, list[float]] = defaultdict(list)
    for replicate in replicates:
        value = log_ratio(replicate, arm, baseline)
        if value is not None:
            by_process[replicate.process].append(value)
    return estimate_from(list(by_process.values()), alpha) if by_process else None


def estimate_from(log_ratios: Sequence[Sequence[float]], alpha: float) -> Estimate:
    """The estimate from log ratios per process and allocation (at least one process)."""
    means = np.array([np.mean(inner) for inner in log_ratios])
    n, centre = len(means), float(means.mean())
    replicates = sum(map(len, log_ratios))
    if n < 2:
        return Estimate(math.exp(centre), 0.0, math.inf, 1.0, 0, replicates, math.nan)
    error = float(means.std(ddof=1) / math.sqrt(n))
    half = float(stats.t.ppf(1 - alpha / 2, n - 1)) * error
    p = min(1.0, 2 * _tail(abs(centre), error, n - 1))
    with np.errstate(over="ignore"):
        ratio, low, high = (float(np.exp(centre + d)) for d in (0, -half, half))
    return Estimate(ratio, low, high, p, n - 1, replicates, error)


def equivalence_p(of: Estimate, margin: float) -> float:
    """TOST: p of "the ratio lies outside 1 - margin … 1 + margin", the larger of two one-sided p."""
    if of.df < 1:
        return 1.0
    centre = math.log(of.ratio)
    return max(
        _tail(centre - math.log1p(-margin), of.standard_error, of.df),
        _tail(math.log1p(margin) - centre, of.standard_error, of.df),
    )


def _tail(distance: float, error: float, df: int) -> float:
    """Upper tail of t at ``distance`` / ``error``; without any spread the sign alone decides."""
    if error == 0:
        return 0.5 if distance == 0 else float(distance < 0)
    return float(stats.t.sf(distance / error, df))


def holm(p_values: Mapping[K, float]) -> dict[K, float]:
    """Holm's step-down adjusted p values: the family-wise error rate holds under any dependence."""
    ordered = sorted(p_values, key=lambda k: p_values[k])
    adjusted: dict[K, float] = {}
    highest = 0.0
    for i, key in enumerate(ordered):
        highest = max(highest, min(1.0, (len(ordered) - i) * p_values[key]))
        adjusted[key] = highest
    return {key: adjusted[key] for key in p_values}


def inside(of: Estimate, margin: float) -> bool:
    """True if the whole interval lies within 1 - margin … 1 + margin."""
    return of.low >= 1 - margin and of.high <= 1 + margin


def beyond(of: Estimate, floor: float) -> bool:
    """True if the difference, in either direction, is larger than the fraction ``floor``."""
    return abs(math.log(of.ratio)) > math.log1p(floor)


def classify(
    of: Estimate,
    p_adjusted: float,
    margin: float,
    alpha: float,
    p_equivalent: float | None = None,
    floor: float = 0.0,
) -> Outcome:
    """One of the four verdicts; a real difference inside the margin is "equivalent".

    floor: what the null arm's interval admits, as a fraction; a smaller difference is not named.

    p_adjusted: of "no difference". p_equivalent: of TOST, adjusted over the same family; None (a
    comparison on its own) takes the estimate's own. A significant difference whose whole interval
    lies within the margin is real and too small to matter. Each of the two families keeps alpha.
    """
    if p_equivalent is None:
        p_equivalent = equivalence_p(of, margin)
    if p_adjusted < alpha:
        if inside(of, margin):
            return "equivalent"
        if not beyond(of, floor):
            return "undecided"
        return "faster" if of.ratio < 1 else "slower"
    return "equivalent" if p_equivalent < alpha else "undecided"


@dataclass(frozen=True)
class Compared:
    """One arm on one workload within its family of comparisons."""

    estimate: Estimate
    p_adjusted: float
    p_equivalent: float
    """Of TOST, adjusted like the other."""


def compare(
    measured: Mapping[str, Sequence[Replicate]],
    arms: Sequence[str],
    baseline: str,
    null: str,
    margin: float,
    alpha: float,
) -> dict[tuple[str, str], Compared]:
    """Every arm of ``arms`` on every workload of ``measured``, by (arm, workload).

    The family of Holm is all of them but the ``null`` arm, which stands under its own p.
    """
    of = {
        (arm, w): found
        for w, replicates in measured.items()
        for arm in arms
        if (found := estimate(replicates, arm, baseline, alpha))
    }
    differ = {k: e.p for k, e in of.items()}
    equal = {k: equivalence_p(e, margin) for k, e in of.items()}
    family = [k for k in of if k[0] != null]
    p = differ | holm({k: differ[k] for k in family})
    q = equal | holm({k: equal[k] for k in family})
    return {k: Compared(of[k], p[k], q[k]) for k in of}


def median_time(replicates: Sequence[Replicate], arm: str) -> float | None:
    """Median over replicates of the arm's median time per launch, in µs; None without samples."""
    medians = [
        float(np.median(samples))
        for r in replicates
        if (samples := [s for s in r.arms.get(arm, []) if math.isfinite(s) and s > 0])
    ]
    return float(np.median(medians)) if medians else None


def spent_alpha(alpha: float, looks: Sequence[int]) -> float:
    """The level of one look of several (Bonferroni): the sum over all looks is ``alpha``.

    However the data decide at which look it ends, and whatever they depend on, a false claim needs a
    false rejection at some look, and those have probability at most ``alpha`` together.
    """
    return alpha / max(1, len(looks))


def all_decided(
    measured: Mapping[str, Sequence[Replicate]],
    arms: Sequence[str],
    baseline: str,
    null: str,
    margin: float,
    alpha: float,
) -> bool:
    """Whether no comparison beside the null arm's is undecided at level ``alpha``."""
    compared = compare(measured, arms, baseline, null, margin, alpha)
    wanted = [(a, w) for w in measured for a in arms if a != null]
    return all(key in compared for key in wanted) and not any(
        classify(c.estimate, c.p_adjusted, margin, alpha, c.p_equivalent) == "undecided"
        for key, c in compared.items()
        if key[0] != null
    )


def confirm(
    fresh: Mapping[str, Sequence[Replicate]], arm: str, baseline: str, alpha: float
) -> Confirmation | None:
    """The arm that was picked, on replicates ``fresh`` (by workload) that had no part in the choice.

    ``held``: faster on every workload, p values corrected over them alone. The mean ratio has its
    interval over processes, each of which gives the mean of its log ratios over all workloads.
    """
    found = {w: estimate(r, arm, baseline, alpha) for w, r in fresh.items()}
    per = {w: e for w, e in found.items() if e is not None}
    if not per or len(per) < len(found):
        return None
    adjusted = holm({w: e.p for w, e in per.items()})
    logs: dict[int, list[float]] = defaultdict(list)
    for replicates in fresh.values():
        for r in replicates:
            if (value := log_ratio(r, arm, baseline)) is not None:
                logs[r.process].append(value)
    mean = estimate_from([[float(np.mean(values))] for values in logs.values()], alpha)
    return Confirmation(
        arm=arm,
        ratio=mean.ratio,
        low=mean.low,
        high=mean.high,
        held=all(adjusted[w] < alpha and e.ratio < 1 for w, e in per.items()),
        workloads={w: (e.ratio, e.low, e.high) for w, e in per.items()},
    )
