"""From microseconds to tokens: model, projection, bounds, ruling."""

from __future__ import annotations

from typing import Literal

from occupancy_probe.records.base import Part


class Interval(Part):
    """A value with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


class FlaggedPoint(Part):
    """A point of a series that no model was fitted to."""

    concurrency: float
    step_ms: float
    expected_ms: float
    reason: str


class ModelFit(Part):
    """One throughput model fitted to a series: t = overhead + slope · basis(C), times in ms."""

    name: Literal["line", "experts"]
    overhead_ms: Interval
    slope_ms: Interval
    """Per request (line) or per active expert (experts)."""
    marginal_ms: Interval
    """Cost of one more request at the largest concurrency of the series."""
    largest_error: float
    """|fit / measured - 1| over the fitted points."""
    held_out_error: float
    """Root mean square relative error of each point as predicted from the others."""
    held_out_largest: float
    saturation_tokens_per_s: Interval | None = None
    """1 / b, the line's limit; the experts' form has none."""
    half_way_concurrency: Interval | None = None
    """a / b, where the line reaches half of that."""


class ThroughputModel(Part):
    """A series of step times and what was fitted to it."""

    series: str
    source: str
    points: list[tuple[float, float]]
    """Concurrency, step time in ms; flagged points included."""
    flagged: list[FlaggedPoint]
    fits: list[ModelFit]
    chosen: Literal["line", "experts"]
    """The one with the smaller held-out error."""


class EndToEnd(Part):
    """What one arm means for the whole step at one workload; gains are fractions of throughput."""

    arm: str
    workload: str
    concurrency: float | None
    ratio: Interval
    """Kernel time, arm / baseline."""
    share: Interval | None = None
    """Of the step that the kernel takes under the baseline."""
    projected: Interval | None = None
    measured: Interval | None = None
    """Of the step study's own A/B of this arm."""
    measured_verdict: str | None = None
    outcome: str
    """kernel win, no system win; …"""


class System(Part):
    """The step around the kernel on one device."""

    model: ThroughputModel | None = None
    share_source: str | None = None
    shares: dict[str, Interval] = {}
    """Per workload."""
    gains: list[EndToEnd] = []
    needed: list[str] = []
    """What the kernel would have to reach for the projected gain, in words."""
    notes: list[str] = []


class Bound(Part):
    """What limits the best measured time of a workload, and what a rewrite could gain at most."""

    workload: str
    arm: str
    time_us: float
    limit: Literal["bandwidth", "issue", "waves", "latency"] | None = None
    """None for a whole step: it has many kernels, and no one grid."""
    floor_us: float
    headroom: float
    """time / floor: the speed-up that no rewrite can exceed, as far as the floor is known."""
    step_gain: Interval | None = None
    """End-to-end gain of a kernel at its floor."""
    why: str


class Ruling(Part):
    """The decision rule applied: the rule in words, what it came to, and the figures it rests on."""

    rule: str
    outcome: Literal["adopt", "adopt_above", "reject", "rewrite", "inconclusive", "none"]
    text: str
    arm: str | None = None
    above: float | None = None
    """Adopted only from this value of the rule's axis on."""
    numbers: list[str] = []
