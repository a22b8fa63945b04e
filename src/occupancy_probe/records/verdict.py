"""What is concluded: results, findings, the verdict per device."""

from __future__ import annotations

from typing import Any, Literal

from occupancy_probe.records.base import Part, Record
from occupancy_probe.records.system import Bound, Ruling, System
from occupancy_probe.records.tuning import Answer, Audit, AutotuneRuns, FirstTouch, TuningAdvice


class Result(Part):
    """One arm on one workload and device against the baseline: ratio of times, below 1 is faster."""

    arm: str
    workload: str
    device: str
    time_us: float | None = None
    """Median over replicates of the arm's time per launch."""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_adjusted: float | None = None
    verdict: Literal[
        "faster",
        "slower",
        "equivalent",
        "undecided",
        "rejected",
        "wrong",
        "exploratory",
        "not measured",
        "baseline",
    ]
    reason: str | None = None
    noise_floor: float | None = None
    """|log ratio| bound of the null arm on this workload, as a fraction."""
    evidence: str | None = None
    """The record that holds the samples, relative to the study's results."""


class Assumption(Part):
    """One ``assume`` line with the values it was judged by."""

    text: str
    verdict: Literal["confirmed", "refuted", "not known"]
    values: dict[str, Any] = {}


class DoseFigure(Part):
    """One dose of one arm on one workload."""

    arm: str
    dose: str
    workload: str
    ctas: int
    """CTAs per SM that the driver allows."""
    resident_ctas: int
    """On the fullest SM: no more than the grid has for it."""
    resident_warps: int
    time_us: float
    ratio: float
    """To the unpadded baseline in the same blocks."""
    low: float
    high: float
    emulates: list[str] = []
    """Targets whose residency this is; never their result."""


class DoseFinding(Part):
    """One statement about residency, tried on one workload."""

    question: Literal["more warps hide the latency", "one wide CTA equals two narrow ones"]
    text: str
    workload: str
    ratio: float
    """Time of the first named over that of the second."""
    low: float
    high: float
    p: float
    """Of the test that decided, adjusted (Holm) over all tests of the question."""
    verdict: Literal["confirmed", "refuted", "undecided"]


class EmulatedRatio(Part):
    """One arm against the baseline on one workload, each at its CTAs per SM on another target."""

    arm: str
    workload: str
    ctas: int
    warps: int
    """Of one CTA of the arm; :attr:`baseline_warps` of one of the baseline's."""
    baseline_ctas: int
    baseline_warps: int
    ratio: float
    """Time of the arm over that of the baseline, both padded, in the same blocks."""
    low: float
    high: float
    """Interval over processes of this one comparison, adjusted for nothing."""

    def compared(self) -> str:
        """Such as ``t32-w8-s2: 1 × 8 warps against baseline: 1 × 4``."""
        return (
            f"{self.arm}: {self.ctas} × {self.warps} warps against"
            f" baseline: {self.baseline_ctas} × {self.baseline_warps}"
        )


class Emulation(Part):
    """The arms at one target's residency, run on another GPU: exploratory, and not that target's result."""

    target: str
    label: str
    """What this is and what it is not, to be shown wherever a ratio is."""
    ratios: list[EmulatedRatio]
    left_out: list[str] = []
    """Arms or workloads without a ratio, and why."""

    def rows(self) -> dict[str, dict[str, EmulatedRatio]]:
        """By what is compared, then workload."""
        found: dict[str, dict[str, EmulatedRatio]] = {}
        for r in self.ratios:
            found.setdefault(r.compared(), {})[r.workload] = r
        return found

    def workloads(self) -> list[str]:
        return list(dict.fromkeys(r.workload for r in self.ratios))


class DoseVerdict(Part):
    """Time against resident warps on one device, the code unchanged."""

    figures: list[DoseFigure]
    findings: list[DoseFinding]
    sentences: list[str]
    verified: int
    """Doses whose CTAs per SM the driver was asked for."""
    notes: list[str] = []
    emulations: list[Emulation] = []
    """By target whose residency is emulated; empty in verdicts made before this was judged."""


class Drops(Part):
    """Blocks of one workload that were left out."""

    workload: str
    again: bool = False
    """When the arm that was picked was measured again."""
    doses: bool = False
    """When the occupancy doses were measured."""
    blocks: int
    """Measured, the dropped ones included."""
    dropped: int
    reasons: list[str] = []
    """Throttle reasons of the replicates that lost blocks; none: their SM clock moved."""
    empty: int = 0
    """Processes of which no block was left: they count for nothing."""

    def words(self) -> str:
        """Such as ``c96 21 of 30 (sw_power_cap)``."""
        name = self.workload + " re-measured" * self.again + " doses" * self.doses
        why = ", ".join(self.reasons) or "SM clock moved"
        gone = f"; {self.empty} of its processes kept none" if self.empty else ""
        return f"{name} {self.dropped:,} of {self.blocks:,} ({why}{gone})"


class GpuUse(Part):
    """GPU seconds of a device's records: measurement, confirmation and doses."""

    held_seconds: float
    busy_seconds: float
    workloads: dict[str, float]
    """Wall seconds of the replicates of each workload's measurement, by workload."""
    again_seconds: float = 0.0
    """Wall seconds of the replicates of the confirmation."""
    dose_seconds: float = 0.0
    """Wall seconds of the replicates of the doses."""
    handover_seconds: float | None = None
    """Held outside of all replicates; None where a record does not know how long it held."""
    arms: dict[str, float]
    """GPU seconds of each arm's samples in measurement and confirmation."""
    dose_busy_seconds: float = 0.0
    """GPU seconds of the doses, their warm-up included."""
    warm_up_seconds: float | None = None
    """Busy before measurement and confirmation; None where a record does not know its arms' seconds."""
    blocks: int
    dropped: int
    drops: list[Drops] = []
    """Workloads that lost blocks."""
    uuids: list[str]


class Confirmation(Part):
    """The arm that was picked from many, measured again against the baseline in fresh processes."""

    arm: str
    ratio: float
    """Geometric mean over the workloads of the decision rule's ``improve``."""
    low: float
    high: float
    held: bool
    """Faster at each of those workloads, p values corrected over them."""
    workloads: dict[str, tuple[float, float, float]] = {}
    """Ratio and interval of each."""


class DeviceVerdict(Part):
    """What the decision rule says on one device."""

    device: str
    device_name: str
    target: str
    source: Literal["measured here", "published evidence"]
    measured_at: str
    plan_commit: str | None
    preregistered: bool
    versions: dict[str, str]
    decision: str
    """adopt <arm>, or reject, in the plan's words."""
    picked: str | None = None
    """The arm that the rule picks, before it is measured again."""
    adopted: str | None
    """The same if it was faster again, else none."""
    conclusions: list[str]
    results: list[Result]
    floors: dict[str, dict[str, float]] = {}
    """Per workload: bandwidth_us, issue_us, floor_us."""
    confirmation: Confirmation | None = None
    """The arm that was picked, on replicates taken after it was picked."""
    dose: DoseVerdict | None = None
    gpu: GpuUse | None = None
    calibration: str | None = None
    """What the harness claims and sees on this device, in one line."""
    ruling: Ruling | None = None
    bounds: list[Bound] = []
    system: System | None = None
    first_touch: list[FirstTouch] = []
    """Per bucket of the autotuner whose configs were measured."""
    tuning_advice: TuningAdvice | None = None
    autotune_runs: AutotuneRuns | None = None


class Verdict(Record):
    """The outcome of a study: one entry per device, and the assumptions."""

    plan_hash: str
    plan_commit: str | None
    devices: list[DeviceVerdict]
    assumptions: list[Assumption]
    notes: list[str] = []
    """Records that were left out, and why."""
    audit: Audit | None = None
    """Of the autotuner around the kernel; None where it was not audited."""
    tuning_answers: list[Answer] = []
    expected: System | None = None
    """The step as a series that the study names has it, before anything was measured."""
