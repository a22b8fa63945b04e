"""From a kernel's gain to the whole step's: Amdahl's law with the uncertainty carried to the end.

A kernel that takes the share f of the step and runs with time ratio r (s = 1/r times faster) changes
the step's time to 1 - f·(1 - r) of what it was; throughput gains the inverse of that, less one. Gains
are fractions (0.15 is +15 %), shares lie in 0 … 1. The gain is monotonic in f and in r, so the ends
of its interval are at ends of theirs; that is cautious, because all of both intervals is allowed for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from occupancy_probe.records import Interval
from occupancy_probe.templating import plain

Outcome = Literal[
    "kernel win, system win",
    "kernel win, no system win",
    "kernel win, system win undecided",
    "no kernel win",
    "kernel loss",
    "no difference",
    "undecided",
    "not known",
]
SystemVerdict = Literal["system win", "no system win", "undecided"]


def gain(share: float, ratio: float) -> float:
    """Throughput gained when the kernel's time becomes ``ratio`` of what it was."""
    return 1 / (1 - share * (1 - ratio)) - 1


def project(share: Interval, ratio: Interval) -> Interval:
    """The gain with its interval."""
    ends = [gain(f, r) for f, r in product((share.low, share.high), (ratio.low, ratio.high))]
    return Interval(value=gain(share.value, ratio.value), low=min(ends), high=max(ends))


def needed_speedup(share: float, wanted: float) -> float | None:
    """How many times faster the kernel must be to gain ``wanted``; None: no speed-up is enough."""
    remaining = 1 - wanted / (1 + wanted) / share if share > 0 else 0.0
    return 1 / remaining if remaining > 0 else None


def needed_share(wanted: float, speedup: float | None = None) -> float:
    """Share below which a kernel made ``speedup`` times faster (None: infinitely) cannot gain ``wanted``."""
    saved = 1 - 1 / speedup if speedup else 1.0
    return wanted / (1 + wanted) / saved


def most(share: float) -> float:
    """Gain if the kernel took no time at all."""
    return gain(share, 0.0) if share < 1 else float("inf")


def system_verdict(step_gain: Interval, minimum: float) -> SystemVerdict:
    """Whether throughput gains at least ``minimum``, the least gain worth a change."""
    if step_gain.high < minimum or step_gain.high <= 0:
        return "no system win"
    if step_gain.low >= minimum and step_gain.low > 0:
        return "system win"
    return "undecided"


def outcome(
    ratio: Interval, step_gain: Interval | None, minimum: float, verdict: str | None = None
) -> Outcome:
    """What a kernel result means for the system; ``minimum`` is the least gain worth a change.

    verdict: of the kernel's row. "equivalent" and "undecided" outweigh the interval, which knows
    neither the margin nor the correction for many comparisons.
    """
    if verdict == "equivalent":
        return "no difference"
    if verdict == "undecided":
        return "undecided"
    if ratio.low > 1:
        return "kernel loss"
    if ratio.high >= 1:
        return "no kernel win"
    if step_gain is None:
        return "not known"
    words: dict[SystemVerdict, Outcome] = {
        "system win": "kernel win, system win",
        "no system win": "kernel win, no system win",
        "undecided": "kernel win, system win undecided",
    }
    return words[system_verdict(step_gain, minimum)]


def needed_words(share: Interval, wanted: float) -> str:
    """What the kernel must reach for the projected gain at this share, or that nothing is enough."""
    head = f"to gain {plain(wanted * 100)} % at a share of {_percent(share)}"
    best, worst = needed_speedup(share.high, wanted), needed_speedup(share.low, wanted)
    middle = needed_speedup(share.value, wanted)
    if middle is None:
        text = (
            f"{head} no kernel is fast enough: without any attention the step gains"
            f" {plain(most(share.value) * 100, 2)} %; the share would have to be"
            f" {needed_share(wanted) * 100:.0f} % at least"
        )
        return text + (f" ({plain(best, 2)} × faster at its upper end)" if best else "")
    ends = {plain(s, 2) if s else "impossible" for s in (best, worst)}
    slowest = f"{plain(worst, 2)} ×" if worst else "impossible"
    spread = f" ({plain(best, 2)} × … {slowest})" if best and len(ends) > 1 else ""
    return f"{head} the kernel must be {plain(middle, 2)} × faster{spread}"


def _percent(share: Interval) -> str:
    low, high = plain(share.low * 100), plain(share.high * 100)
    return f"{plain(share.value * 100)} %" + ("" if low == high else f" ({low}–{high} %)")


@dataclass(frozen=True)
class Paired:
    """One process's times in ms of the step with the kernel run once and twice."""

    once: float
    twice: float


def share_from_passes(pairs: Sequence[Paired], alpha: float) -> Interval:
    """Share of the step that the kernel takes, from steps that run it once and twice.

    t(2) - t(1) is what one more pass adds, so t(2) / t(1) - 1 is the share; t interval over processes.
    """
    from math import log

    from occupancy_probe.validate.statistics import estimate_from

    of = estimate_from([[log(p.twice / p.once)] for p in pairs], alpha)
    low, high = (of.low, of.high) if of.df else (of.ratio, of.ratio)
    return Interval(value=of.ratio - 1, low=max(0.0, low - 1), high=max(0.0, high - 1))
