"""The harness against itself: which of its trials claim a difference, and what naive methods claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from occupancy_probe.records import Calibration, Replicate
from occupancy_probe.templating import percent
from occupancy_probe.validate.statistics import beyond, estimate

A, NULL_TWIN, TWIN = "a", "null", "twin"
"""The kernel, the twin that gives the noise floor, and the twin that a trial compares with it."""
ONE, HALF = "plus_1_percent", "plus_half_percent"
"""The same kernel with 1 % and 0.5 % more work."""

Samples = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Trial:
    """One trial's samples in µs per launch."""

    replicates: Sequence[Replicate]
    """By the replicate protocol, all five arms."""
    interleaved: Samples
    """Of ``A`` and ``TWIN``: pairs in random order on one allocation and capture."""
    sequential: Samples
    """Of ``A`` and ``TWIN``: all of one, then all of the other."""


@dataclass(frozen=True)
class Claim:
    """What the protocol says of one comparison: p alone, and beyond the null arm's interval too."""

    ratio: float
    by_p: bool
    named: bool


def claim(replicates: Sequence[Replicate], arm: str, alpha: float) -> Claim:
    """The rule of the verdicts (without a margin) on one trial."""
    of, null = (estimate(replicates, name, A, alpha) for name in (arm, NULL_TWIN))
    assert of is not None and null is not None
    by_p = of.p < alpha
    return Claim(of.ratio, by_p, by_p and beyond(of, null.bound))


def claims_sequential(samples: Samples, alpha: float) -> bool:
    """Welch's t over samples that lie within 1.5 IQR of their own quartiles."""
    a, b = (_trimmed(np.asarray(samples[name], float)) for name in (A, TWIN))
    return bool(stats.ttest_ind(a, b, equal_var=False).pvalue < alpha)


def claims_interleaved(samples: Samples, alpha: float) -> bool:
    """Wilcoxon's signed-rank test over pairs."""
    a, b = (np.asarray(samples[name], float) for name in (A, TWIN))
    return bool(np.any(a != b) and stats.wilcoxon(a, b).pvalue < alpha)


def _trimmed(values: np.ndarray) -> np.ndarray:
    low, high = np.percentile(values, [25, 75])
    reach = 1.5 * (high - low)
    return values[(values >= low - reach) & (values <= high + reach)]


def figures(trials: Sequence[Trial], alpha: float) -> dict[str, Any]:
    """The counts and shares of a :class:`Calibration`."""
    own = [claim(t.replicates, TWIN, alpha) for t in trials]
    one = [claim(t.replicates, ONE, alpha) for t in trials]
    half = [claim(t.replicates, HALF, alpha) for t in trials]
    return {
        "trials": len(trials),
        "claimed": sum(c.named for c in own),
        "claimed_by_p_alone": sum(c.by_p for c in own),
        "claimed_sequential": sum(claims_sequential(t.sequential, alpha) for t in trials),
        "claimed_interleaved": sum(claims_interleaved(t.interleaved, alpha) for t in trials),
        "power_at_1_percent": sum(c.named and c.ratio > 1 for c in one) / len(trials),
        "power_at_half_percent": sum(c.named and c.ratio > 1 for c in half) / len(trials),
        "measured_at_1_percent": float(np.median([c.ratio for c in one])),
        "measured_at_half_percent": float(np.median([c.ratio for c in half])),
    }


def line(c: Calibration, uuids: frozenset[str] | set[str] = frozenset()) -> str:
    """What the report says of the harness on a device; uuids: of the GPUs that the samples are from."""
    which = "this GPU" if not uuids or c.device_uuid in uuids else "another GPU of this model"
    return (
        f"this harness on {which} ({c.device_name}, {c.started_at[:10]}): claims {c.claimed} of"
        f" {c.trials} A/A; sees 1 % with {percent(c.power_at_1_percent, 0)} and 0.5 % with"
        f" {percent(c.power_at_half_percent, 0)}; in the same run sequential timing claims"
        f" {c.claimed_sequential}, interleaving without replicates {c.claimed_interleaved}"
    )
