"""How many input sets one sample uses, so that a regime is what its name says."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_LAUNCHES = 16
"""Launches in one sample. More would only lengthen captures; more blocks buy more than longer ones."""


@dataclass(frozen=True)
class Rotation:
    """Of one workload."""

    sets: int
    """Instances in memory of their own."""
    launches: int
    """Launches in one sample; sample times are divided by it."""
    swept_bytes: int
    """Read between samples to make up what the sets lack of 4 × L2."""


def plan_rotation(bytes_per_launch: int, l2_bytes: int, regime: str) -> Rotation:
    """cold, eager: between two uses of one input at least 4 × ``l2_bytes`` of other data pass through
    the cache: other input sets and, where ``MOST_LAUNCHES`` of them are less than that, a read of the
    rest between samples. warm: one input set, launched again and again.

    bytes_per_launch: the fewest that a launch moves, so that the distance is not overestimated.
    """
    if regime == "warm":
        return Rotation(1, MOST_LAUNCHES, 0)
    needed = 4 * l2_bytes
    sets = max(2, min(MOST_LAUNCHES, math.ceil(needed / max(1, bytes_per_launch))))
    return Rotation(sets, sets, max(0, needed - sets * bytes_per_launch))
