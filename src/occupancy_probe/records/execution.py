"""What ran: correctness, samples, doses, calibration, serving."""

from __future__ import annotations

from typing import Any, Literal

from occupancy_probe.records.base import Part, Record


class OutputError(Part):
    """Distance of one output from float64: maxima of absolute error and of error over its gate."""

    max_absolute: float
    gate_used: float
    """Largest |d| / (absolute + relative·|ref|): above 1 is wrong."""
    one_minus_cosine: float
    relative_norm: float
    not_written: int
    """Elements that still hold the poison."""


class Check(Part):
    """One arm on one workload against float64."""

    workload: str
    verdict: Literal["right", "wrong", "error", "no answer"]
    outputs: dict[str, OutputError] = {}
    guard_rows_overwritten: int = 0
    replay_equals_eager: bool | None = None
    """None where no graph was captured (interpreter)."""
    replay_follows_inputs: bool | None = None
    """A replay after other values were put into the same tensors is right for those values."""
    repeats: int = 0
    """Launches on the same input that were compared bit by bit."""
    reason: str | None = None
    warnings: list[str] = []
    """What does not disqualify: offsets that may wrap in 32 bits."""


class Correctness(Record):
    """One arm on one device, all workloads; ``mode`` says what it proves."""

    arm: str
    config: dict[str, Any]
    device: str
    device_name: str
    device_uuid: str | None = None
    """None in the interpreter, and in records made before this was noted."""
    mode: Literal["gpu", "logic"]
    verdict: Literal["right", "wrong", "error", "no answer"]
    checks: list[Check]
    stands_for: list[str] = []
    """Arms that are the same to the interpreter (same tile; warps and stages mean nothing)."""


class Clocks(Part):
    """State of the GPU over one replicate: SM clock in MHz, °C, W, throttle reasons seen."""

    sm_mhz_low: float
    sm_mhz_median: float
    sm_mhz_high: float
    temperature_c: float
    power_w: float
    throttle: list[str] = []


class Replicate(Part):
    """Fresh allocation and fresh captures in one process; raw samples in µs per launch."""

    process: int
    allocation: int
    arms: dict[str, list[float]]
    """Per arm, one sample per block, in block order; blocks are random orders of all arms."""
    clocks: Clocks | None = None
    device_uuid: str | None = None
    """The GPU; None in records made before this was noted."""
    dropped: int = 0
    """Blocks left out for a throttle reason or a clock that moved."""


class Measurement(Record):
    """All replicates of one workload on one device."""

    plan_commit: str | None
    """Commit that holds the plan; None: measured without one, exploratory."""
    device: str
    device_name: str
    device_uuid: str
    workload: str
    regime: str
    input_sets: int
    """Instances that one sample rotates over."""
    replicates: list[Replicate]
    disqualified: dict[str, str] = {}
    """Arms that crashed or hung while being timed, with the reason."""
    configs: dict[str, dict[str, Any]] = {}
    """The config of every arm that was timed; empty in records made before this was noted."""
    started_at: str
    gpu_seconds: float
    """Wall seconds of this workload's replicates in the processes that held the GPU."""
    launches_per_sample: int | None = None
    """Launches that one sample is the mean of; None in records made before this was noted."""
    swept_bytes: int = 0
    """Read between samples to make up what the input sets lack of 4 × L2."""
    busy_seconds: float = 0.0
    """GPU seconds of samples, sweeps and clock warm-up by CUDA events; a lower bound, the making of
    inputs and captures counts as idle."""
    held_seconds: float = 0.0
    """Share of the time from taking the GPU's lock to releasing it."""
    arm_seconds: dict[str, float] = {}
    """GPU seconds of each arm's samples."""


class DosePoint(Part):
    """One cap on the CTAs per SM of one arm."""

    ctas: int
    """CTAs that fit an SM with this much shared memory."""
    shared_bytes: int
    """Dynamic shared memory of the launch, the padding included."""
    driver_ctas: int | None = None
    """What ``cuOccupancyMaxActiveBlocksPerMultiprocessor`` says of it; None: not launched yet."""
    emulates: list[str] = []
    """Targets on which the arm as it is has this many CTAs per SM; their residency, not their result."""


class Dose(Record):
    """One arm's binary under caps on its CTAs per SM, in the same blocks as the unpadded baseline."""

    plan_commit: str | None
    device: str
    device_name: str
    device_uuid: str
    arm: str
    config: dict[str, Any]
    num_warps: int
    points: dict[str, DosePoint]
    """By dose name, ``<arm>@<CTAs>``."""
    grids: dict[str, int] = {}
    """CTAs of the arm's grid, by workload."""
    replicates: dict[str, list[Replicate]] = {}
    """By workload; arms are the baseline and this arm's doses. Replicates of equal process and
    allocation in two arms' records of one run come from the same blocks."""
    notes: list[str] = []
    """Doses that were left out, and why."""
    started_at: str
    gpu_seconds: float = 0.0
    busy_seconds: float = 0.0
    held_seconds: float = 0.0


class Calibration(Record):
    """What the harness itself claims and sees on a device, on a kernel of known cost."""

    device: str
    device_name: str
    device_uuid: str
    trials: int
    processes: int
    blocks: int
    alpha: float
    claimed: int
    """A/A trials in which a difference was named: p < alpha and beyond the null arm's own interval."""
    claimed_by_p_alone: int
    claimed_sequential: int
    """All of A, then all of B; IQR-trimmed; Welch's t over samples, p < alpha."""
    claimed_interleaved: int
    """Interleaved in random order on one allocation and capture; Wilcoxon over pairs, p < alpha."""
    power_at_1_percent: float
    """Share of trials in which a kernel with 1 % more work was named slower."""
    power_at_half_percent: float
    measured_at_1_percent: float
    """Median ratio that was measured for it."""
    measured_at_half_percent: float
    gpu_seconds_per_trial: float
    """Wall seconds with the GPU, the classical methods not counted."""
    samples_file: str
    started_at: str


class Serving(Record):
    """A real server under a load, one arm at a time; every restart of the server is a replicate."""

    plan_commit: str | None
    device: str
    device_name: str
    device_uuid: str | None = None
    """None where the study names the server's GPUs itself, and in records made before this was noted."""
    workload: str
    kernel: str
    """``module:kernel`` that was forced."""
    restarts: int
    """Planned for every arm."""
    replicates: list[Replicate]
    """One per round: µs per output token of each arm, the inverse of tokens per second."""
    failures: list[str] = []
    """Restarts that gave no figure, and why."""
    started_at: str
    seconds: float
