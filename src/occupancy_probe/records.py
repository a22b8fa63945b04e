"""The JSON records that stages hand to each other: one file each, written once and atomically."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from occupancy_probe.digest import digest
from occupancy_probe.exc import RecordError

SCHEMA: Final = "occupancy-probe/1"
"""One version for all records; a reader refuses any other."""


class Part(BaseModel):
    """A piece of a record; floats may be NaN or infinite and are kept so."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class Record(Part):
    """What every record says of itself."""

    schema_: Literal["occupancy-probe/1"] = Field(default=SCHEMA, alias="schema")
    study: str
    depends: dict[str, str] = {}
    """Hashes of what the record was made from; another value means stale."""
    versions: dict[str, str] = {}
    """Triton, torch, ptxas, driver … at the time; another value means drift, not stale."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, ser_json_inf_nan="constants"
    )


class Reason(Part):
    """Why an arm cannot run: a limit with numbers, or the compiler's words."""

    limit: str
    required: int | None = None
    allowed: int | None = None
    text: str


class Code(Part):
    """What a kernel's machine code does, by its instructions; static counts, not executions.

    The main loop is the innermost loop with the most matrix multiplications, or the longest one.
    """

    instructions: int
    async_copies: dict[str, int] = {}
    """Opcode → count of the copies that bypass registers (LDGSTS, UBLKCP, UTMALDG …)."""
    barriers: dict[str, int] = {}
    mma: dict[str, int] = {}
    """Full opcode → count of matrix multiplications (HMMA.16816.F32.BF16, UTCHMMA, v_mfma_…)."""
    loop_instructions: int | None = None
    """One pass of one warp through the main loop."""
    loop_mma: int | None = None
    loop_flop: int | None = None
    """FLOP of the dots of the same pass of the whole CTA, redundant ones not counted."""
    instructions_per_kflop: float | None = None
    """Instructions that the CTA's warps issue in the main loop for 1,000 FLOP of its dots."""
    loop_bytes: int | None = None
    """What the CTA loads from device memory in one pass of Triton's loop."""
    prefetch_depth: int | None = None
    """Passes that the largest load is ahead of its use; 0: its own pass waits for it."""
    in_flight_bytes: int | None = None
    """Most that one CTA keeps in flight in its main loop."""


class Coverage(Part):
    """How a workload's grid covers the device that a target stands for."""

    workload: str
    device: str
    ctas: int
    waves: float
    fill: float
    """Share of the slots of all waves, the last included, that are used."""
    resident_ctas_per_sm: int
    """On the fullest SM: no more than the grid has for it."""
    grid_limited: bool
    """The grid caps residency, so more occupancy cannot be used."""
    in_flight_bytes: int | None = None
    """Most that the CTAs of the fullest SM keep in flight; None where the code's loop loads nothing."""
    covered_latency_ns: float | None = None
    """Latency at which that sustains the device's peak bandwidth (Little's law)."""


class Neighbour(Part):
    """A config near a rejected one, compiled as well."""

    change: str
    """Difference from the rejected config, e.g. ``num_stages 4 → 3``."""
    config: dict[str, Any]
    verdict: Literal["fits", "rejected", "unsupported"]
    shared_bytes: int | None = None
    registers: int | None = None
    ctas_per_sm: int | None = None
    warps_per_sm: int | None = None
    reason: str | None = None


class Variant(Part):
    """One specialization of one kernel that an arm launches, compiled for one target."""

    kernel: str
    workloads: list[str]
    """Workloads whose launches use it."""
    specialization: str
    """Types and what is constant, 1 or divisible by 16, in words."""
    shared_bytes: int
    tensor_memory_columns: int
    threads: int
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    ctas_per_sm: int
    warps_per_sm: int
    occupancy: float
    limiter: list[str]
    code_sha256: str
    compile_seconds: float
    vgprs: int | None = None
    """AMD: vector registers without the accumulation registers; ``registers`` is the sum."""
    agprs: int | None = None
    sgprs: int | None = None
    code: Code | None = None


class KernelFile(Part):
    """Where somebody else's kernel is and what importing it takes; paths relative to the kernel's folder."""

    file: str
    function: str
    sys_path: list[str] = []
    stub_modules: list[str] = []
    requires: list[str] = []


class Specialization(Part):
    """All that a compile job needs beside the target; made by Triton's binder."""

    file: str
    """Source file of the kernel, relative to the kernel's folder."""
    kernel: str
    """The studied kernel's name as the study gives it; else the JIT function's own."""
    qualname: str = ""
    """Name under which ``file`` defines the JIT function; empty: ``kernel``."""
    source: str = ""
    """Triton's hash of the function and of every JIT function it calls, wherever they are defined."""
    sys_path: list[str] = []
    """Folders that ``file`` imports from, relative to the kernel's folder."""
    stub_modules: list[str] = []
    signature: dict[str, Any]
    """Argument → type, e.g. ``*fp8e4nv``, ``i32``, ``tensordesc<bf16[64, 64]>``, ``constexpr``."""
    constants: list[tuple[list[int], Any]]
    """Position path → value of every constexpr and every argument that equals 1 or is None."""
    attributes: list[tuple[list[int], Any]]
    """Position path → attributes such as ``tt.divisibility 16``."""
    options: dict[str, Any]
    """num_warps, num_stages … as the launch gave them."""

    @property
    def key(self) -> str:
        """Identity of the specialization, independent of the target."""
        return digest(self.model_dump())[:16]

    def words(self) -> str:
        """In words: each argument with its type and what the compiler may assume."""
        constants = {tuple(p): v for p, v in self.constants}
        divisible = {tuple(p) for p, v in self.attributes if v}

        def one(path: tuple[int, ...], kind: Any) -> str:
            if path in constants:
                return f"={_constant(constants[path])}"
            if isinstance(kind, dict):  # a named tuple
                kind = kind["fields"][-1]
            if isinstance(kind, (list, tuple)):
                parts = [one((*path, i), k).removeprefix("=") for i, k in enumerate(kind)]
                return f": ({', '.join(p.removeprefix(': ') for p in parts)})"
            return f": {kind}" + ("/16" if path in divisible else "")

        return ", ".join(f"{n}{one((i,), k)}" for i, (n, k) in enumerate(self.signature.items()))


def _constant(value: Any) -> str:
    """A constant of a specialization as a reader would write it (see launch/encoding.py)."""
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_constant, value))})"
    if not isinstance(value, dict):
        return str(value)
    ((kind, content),) = value.items()
    if kind in ("jit", "enum"):
        return ".".join(content[1:])
    if kind == "fields":
        return f"{content[1]}({', '.join(map(_constant, content[2]))})"
    return _constant(content)


class Call(Part):
    """One kernel launch: which specialization, over which grid (CTAs), with which scalars."""

    specialization: str
    grid: list[int] = Field(min_length=1, max_length=3)
    scalars: dict[str, int | float | str | None] = {}
    """Values of the arguments that are no tensors, constexprs included."""
    dtypes: dict[str, str] = {}
    """Element types of the tensor arguments."""


class ArmTrace(Part):
    """The launches of one arm on one workload, planned for one target."""

    target: str
    arm: str
    workload: str
    calls: list[Call] = []
    error: str | None = None
    """Why the launch cannot even be specialized, in Triton's words."""


class Trace(Record):
    """Every launch that a study makes, without one having been compiled."""

    sm_counts: dict[str, int]
    """SMs that the launches were planned for, per target."""
    specializations: dict[str, Specialization]
    launches: list[ArmTrace]
    traffic: dict[str, dict[str, float]]
    """Per workload: bytes, flop, sm_clocks of one launch."""
    facts: dict[str, dict[str, Any]]
    """Per arm: the Problem's named quantities."""
    autotune: dict[str, Any] | None
    """Key and configs of the autotuner around the kernel; None where there is none."""
    sources: dict[str, str] = {}
    """SHA-256 of every file that defines a launched JIT function or one that it calls, by its path
    relative to the kernel's folder; Triton's own are left out."""


class Bucket(Part):
    """What the autotuner's key makes of some workloads: it tunes once for all of them."""

    key: dict[str, int | float | str | None]
    dtypes: list[str] = []
    """Element types of the tensor arguments, which Triton adds to every key."""
    workloads: list[str]
    """In the order in which the study names them: the first one tunes."""
    grids: list[list[int]]
    """Grids of their launches, under the config that was chosen."""
    configs: int = 0
    """Configs that the first launch times, after prune functions; 0: it times none."""


class TunedConfig(Part):
    """One config of the autotuner's list and what becomes of it on each target."""

    config: dict[str, Any]
    fate: dict[str, Literal["fits", "skipped", "aborts", "pruned", "not known"]]
    """skipped: it raises what the autotuner counts as infinitely slow, in silence. aborts: it raises
    anything else, which ends the program's launch. pruned: a prune function takes it out."""
    reasons: dict[str, str] = {}

    def is_arm(self, config: dict[str, Any]) -> bool:
        """Whether an arm's config is this one: options that say Triton's default may be left out."""
        default = {"num_ctas": 1, "num_warps": 4, "num_stages": 3}
        return all(config.get(k, default.get(k)) == v for k, v in self.config.items())


class InPlace(Part):
    """An argument whose new contents depend on its old ones."""

    argument: str
    by: str
    """The operation that shows it, from TTIR."""
    status: Literal["protected", "unsafe", "latent"]
    """unsafe: timing corrupts it. latent: it would, if there were a second config."""
    protection: str | None = None
    """restore_value, reset_to_zero or pre_hook."""
    bytes: int
    """What restore_value clones before every timed call, at the largest workload."""
    after_first_call: float | None = None
    """Contents after the first call if each launch adds 1 to 10: 11 is right. By Triton's own code,
    with one timed call per config; its benchmark makes hundreds."""


class KeyReached(Part):
    """A key that the autotuner meets, and the workload that brings it."""

    workload: str
    key: dict[str, int | float | str | None]
    dtypes: list[str] = []


class CaptureSafety(Part):
    """The study's warm-up list against its capture list."""

    warmup: list[str]
    capture: list[str]
    first_in_capture: list[KeyReached]
    """Keys that tune inside a capture, which fails; none: safe."""
    calls: list[str]
    """Workloads, one per key that is captured: launching these before any capture is enough."""


class WiderKey(Part):
    """The key with what shapes the grid added to it."""

    added: list[str]
    """Workload axes, or arguments, that vary inside a bucket and change its grid."""
    is_argument: bool
    """Whether all of them are arguments of the kernel, so that the key alone has to be edited."""
    buckets: int
    tuning_launches: int
    seconds: float
    not_warmed: list[str] = []
    """Captured workloads whose key the warm-up list would then not reach."""


class Audit(Record):
    """The autotuner around the kernel, by Triton's own code, against the launches that the study makes."""

    key: list[str] = []
    configs: list[TunedConfig] = []
    dead_names: list[str] = []
    """Key names that are no argument of the kernel: ignored up to Triton 3.8, ValueError from 3.9."""
    unread: dict[str, int] = {}
    """Key arguments that the kernel never reads, with the number of their values here."""
    buckets: list[Bucket] = []
    blind_to: list[str] = []
    """Arguments that vary over the workloads of one bucket."""
    grid_blind: list[str] = []
    """Workload axes and arguments that change the grid inside one bucket."""
    tuning_launches: int = 0
    """Configs timed over all buckets."""
    seconds_per_config: float = 0.0
    """Timing alone, by the autotuner's own settings; compiling comes on top."""
    in_place: list[InPlace] = []
    in_place_known: bool = True
    """False: the kernel could not be compiled, so nothing is known of in-place updates."""
    safety: Literal["safe", "protected", "latent", "unsafe", "not known"] = "safe"
    restore_bytes: int = 0
    """What restore_value for all in-place arguments would clone before every timed call."""
    lists: dict[str, list[dict[str, Any]]] = {}
    """Per target, where importing the kernel there makes another list than importing it here does."""
    asks: list[str] = []
    """What the module asks of the GPU that is present when it is imported."""
    prune_asks: list[str] = []
    """What prune functions and hooks ask of the GPU when a launch tunes."""
    conflicts: list[str] = []
    errors: dict[str, str] = {}
    """Workloads whose launch through the autotuner raises, with the reason."""
    capture: CaptureSafety | None = None
    wider_key: WiderKey | None = None
    """None where nothing that shapes the grid is missing from the key."""
    findings: list[str] = []

    @property
    def tuning_seconds(self) -> float:
        """Seconds of timing over all buckets."""
        return self.tuning_launches * self.seconds_per_config


class Feasibility(Record):
    """What one arm becomes on one target; the figures are those of its worst variant."""

    arm: str
    config: dict[str, Any]
    target: str
    verdict: Literal["fits", "rejected", "unsupported"]
    reasons: list[Reason] = []
    shared_bytes: int | None = None
    tensor_memory_columns: int | None = None
    threads: int | None = None
    registers: int | None = None
    stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    ctas_per_sm: int | None = None
    warps_per_sm: int | None = None
    occupancy: float | None = None
    limiter: list[str] = []
    same_code_as: str | None = None
    code_sha256: str | None = None
    variants: list[Variant] = []
    compile_seconds: float = 0.0
    vgprs: int | None = None
    agprs: int | None = None
    sgprs: int | None = None
    code: Code | None = None
    warnings: list[str] = []
    """What does not reject the arm: spills, with their bytes."""
    changed: list[str] = []
    """What the config changed against the baseline, or against the arm with the same code, in words."""
    coverage: list[Coverage] = []
    """Per workload, on the device that the target stands for."""
    neighbours: list[Neighbour] | None = None
    """Configs near a rejected one, nearest first in each direction; None: not looked for."""


class DriverKernel(Part):
    """One kernel of an arm as the driver loaded it, beside what the record said without a GPU."""

    arm: str
    kernel: str
    workloads: list[str]
    recorded: dict[str, int]
    """registers, shared_bytes and ctas_per_sm of the feasibility record."""
    driver: dict[str, int]
    """The same from the driver, CTAs by ``cuOccupancyMaxActiveBlocksPerMultiprocessor``; also its
    static shared memory and local memory, in bytes."""
    differs: list[str]
    """Names of the figures that are not equal."""


class DriverCheck(Record):
    """Feasibility without a GPU held against the driver of the GPU that is here."""

    device: str
    device_name: str
    target: str
    kernels: list[DriverKernel]
    missing: list[str] = []
    """Fitting arms that were not compared, and why."""


class ArmDrift(Part):
    """One arm on one target under two Tritons: every pair is from, to."""

    target: str
    arm: str
    figures: dict[str, tuple[Any, Any]]
    """verdict, registers, shared_bytes, ctas_per_sm; others where they moved."""
    code: tuple[str | None, str | None]
    """Identity of the machine code; None where there is none."""
    reasons: tuple[str, str]

    def moved(self, key: str) -> bool:
        before, after = self.figures[key]
        return bool(before != after)

    @property
    def same_figures(self) -> bool:
        return not any(map(self.moved, self.figures)) and self.reasons[0] == self.reasons[1]

    @property
    def same_code(self) -> bool:
        return self.code[0] == self.code[1]


class EnvironmentDrift(Record):
    """The matrix of a study under another Triton, held against the one under this."""

    environment: str
    before: dict[str, str]
    """Versions of the matrix that is compared with."""
    after: dict[str, str]
    arms: list[ArmDrift]
    missing: list[str] = []
    """Arms that one of the two matrices does not have."""


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
    limit: Literal["bandwidth", "issue", "waves", "latency"]
    floor_us: float
    headroom: float
    """time / floor: the kernel speed-up that no rewrite can exceed, as far as the floor is known."""
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


class DoseVerdict(Part):
    """Time against resident warps on one device, the code unchanged."""

    figures: list[DoseFigure]
    findings: list[DoseFinding]
    sentences: list[str]
    verified: int
    """Doses whose CTAs per SM the driver was asked for."""
    notes: list[str] = []


class GpuUse(Part):
    """GPU seconds of a device's records."""

    held_seconds: float
    busy_seconds: float
    workloads: dict[str, float]
    """Wall seconds of the replicates of each workload, by workload."""
    arms: dict[str, float]
    """GPU seconds of each arm's samples."""
    blocks: int
    dropped: int
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


class AutotuneRun(Part):
    """One real autotune run in a fresh process: the first call of the kernel, at one workload."""

    workload: str
    winner: dict[str, Any]
    timings_us: list[tuple[dict[str, Any], list[float]]] = []
    """Per config what the benchmark said: median, 20 % and 80 % quantiles; infinite: it failed."""
    seconds: float
    """Of the whole first call, compiling included."""
    error: str | None = None


class AutotuneRuns(Record):
    """Repeated real autotune runs on one device."""

    device: str
    device_name: str
    runs: list[AutotuneRun]
    started_at: str


class FirstTouch(Part):
    """One bucket of the autotuner on one device: what is chosen at each first workload, and its loss."""

    origin: str
    """Where the times come from and how they were taken."""
    workloads: list[str]
    configs: list[dict[str, Any]]
    """In the order of the list: on a tie the first one wins."""
    times_us: list[list[float]]
    """Per config, per workload; infinite where it cannot run."""
    chosen: list[int]
    """Per workload touched first: index of the config that wins there."""
    losses: list[list[float]]
    """Per workload touched first, per workload: its time over the best of the list, minus 1."""
    worst: float
    worst_first: str
    worst_at: str
    winners: list[dict[str, int]] = []
    """Per workload: how often each config (by index) wins over the study's own replicates."""
    unlisted: dict[str, float] = {}
    """Per workload: how much faster the best measured arm is than the best of the list, as loss."""
    unlisted_arm: str | None = None
    """That arm, where it is the same at the worst workload."""


class Answer(Part):
    """A question that a reader has, answered by records."""

    question: str
    answer: str


class TuningAdvice(Part):
    """What to do about the autotuner on one device, with the numbers that say so."""

    advice: Literal["keep", "pin one config", "add to key", "pin per bucket"]
    why: str
    config: dict[str, Any] | None = None
    """The config to pin, for `pin one config`."""
    per_workload: dict[str, dict[str, Any]] = {}
    """The config to pin at each workload, for `pin per bucket`."""


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
    adopted: str | None
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


class WorkloadPlan(Part):
    """A workload with what the trace and the Problem say of it."""

    name: str
    axes: dict[str, Any]
    bytes: int
    flop: int
    sm_clocks: float
    grids: dict[str, list[int]]
    """Per target: the CTAs of the baseline's launch of the studied kernel, as its grid."""


class ArmPlan(Part):
    """An arm as planned."""

    name: str
    config: dict[str, Any]
    why: list[str]
    facts: dict[str, Any]


class Plan(Record):
    """The frozen plan: a pure function of study, kernel source and Problem; ``plan_hash`` names it."""

    plan_hash: str
    title: str
    document: str
    sections: dict[str, Any]
    """The study file's sections as loaded."""
    arms: list[ArmPlan]
    workloads: list[WorkloadPlan]
    targets: list[str]
    kernels: list[str] = []
    """Kernels of one launch of the baseline, in order: all of them are timed together."""
    autotune: dict[str, Any] | None
    """Key and configs of the autotuner around the kernel; None where there is none."""


class PlanCommit(Record):
    """Where the plan stands in history."""

    plan_hash: str
    commit: str | None
    """None: commits are switched off, or there was an override."""
    committed_at: str | None
    preregistered: bool
    note: str


class Change(Part):
    """One value that is another now."""

    what: str
    before: Any
    after: Any


class Figure(Part):
    """Something that was published, held against the same thing made again."""

    kind: Literal["plan", "feasibility", "logic", "statistics", "document", "timing"]
    subject: str
    """Arm, or what else the figure speaks of."""
    where: str
    """Target, device and workload, as far as they apply."""
    outcome: Literal["same", "moved", "reversed", "not comparable"]
    """reversed: a verdict that is now its opposite (fits / rejected, faster / slower, right / wrong)."""
    changes: list[Change] = []
    why: str | None = None
    """Why it is not comparable, or what else is to be said."""
    versions_before: dict[str, str] = {}
    versions_after: dict[str, str] = {}


class PublishedDrift(Record):
    """Published feasibility against what this environment makes of the same kernel and configs."""

    figures: list[Figure]


class Reproduction(Record):
    """A past revision tried again: every figure, and what follows from all of them."""

    revision: str
    """As it was asked for."""
    commit: str
    subject: str
    committed_at: str
    environment: Literal["present", "locked"]
    workflow: Literal["its own", "today's"]
    figures: list[Figure]
    verdict: Literal["reproduced", "reproduced in part", "reversed", "gone"]
    notes: list[str] = []


R = TypeVar("R", bound=Record)


def write_text(path: Path, text: str) -> None:
    """Write ``path`` as a whole or not at all: temporary file beside it, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_record(path: Path, record: Record) -> None:
    """Write ``record`` as JSON; numbers lists stay on one line to keep raw samples compact."""
    write_text(path, to_json(record))


def to_json(record: Record) -> str:
    """Readable and stable JSON: one key per line, lists of scalars on one line."""
    return _render(record.model_dump(mode="python", by_alias=True), 0) + "\n"


def _render(value: Any, depth: int) -> str:
    pad, inner = " " * depth, " " * (depth + 1)
    if isinstance(value, dict) and value:
        items = (
            f"{inner}{json.dumps(str(k), ensure_ascii=False)}: {_render(v, depth + 1)}"
            for k, v in value.items()
        )
        return "{\n" + ",\n".join(items) + f"\n{pad}}}"
    if isinstance(value, (list, tuple)) and any(isinstance(v, (dict, list, tuple)) for v in value):
        return "[\n" + ",\n".join(inner + _render(v, depth + 1) for v in value) + f"\n{pad}]"
    return json.dumps(value, ensure_ascii=False)


def read_record(path: Path, kind: type[R]) -> R:
    """Load and check a record; RecordError names the file and what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise RecordError(f"{path}: {e.strerror}; make the stage that writes it again") from e
    except (ValueError, RecursionError) as e:
        raise RecordError(
            f"{path}: truncated or not JSON ({e}); delete it to have it made again"
        ) from e
    found = content.get("schema") if isinstance(content, dict) else None
    if found != SCHEMA:
        raise RecordError(
            f"{path}: schema {found!r}, this version reads {SCHEMA!r}{_remedy(found)}"
        )
    try:
        return kind.model_validate(content)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise RecordError(
            f"{path}: {place}: {first['msg']}; delete it to have it made again"
        ) from e


def _remedy(schema: Any) -> str:
    """What to do about a record that a newer version of this tool wrote."""
    kind, _, number = str(schema).rpartition("/")
    newer = kind == SCHEMA.rpartition("/")[0] and number.isdecimal()
    if newer and int(number) > int(SCHEMA.rpartition("/")[2]):
        return "; made by a newer version: update this one, the record is left as it is"
    return ""


def read_if_fresh(path: Path, kind: type[R], depends: dict[str, str]) -> R | None:
    """The record at ``path`` if it is whole and was made from ``depends``, else None."""
    if not path.exists():
        return None
    try:
        record = read_record(path, kind)
    except RecordError:
        return None
    return record if record.depends == depends else None
