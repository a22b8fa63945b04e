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


class Specialization(Part):
    """All that a compile job needs beside the target; made by Triton's binder."""

    file: str
    """Source file of the kernel, relative to the kernel's folder where it lies inside."""
    kernel: str
    """Name of the JIT function in ``file``."""
    signature: dict[str, Any]
    """Argument → type, e.g. ``*fp8e4nv``, ``i32``, ``constexpr``."""
    constants: list[tuple[list[int], Any]]
    """Position path → value of every constexpr and every argument that equals 1."""
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
        parts = []
        for i, (name, kind) in enumerate(self.signature.items()):
            if (i,) in constants:
                parts.append(f"{name}={constants[(i,)]}")
            else:
                parts.append(f"{name}: {kind}" + ("/16" if (i,) in divisible else ""))
        return ", ".join(parts)


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


class Bucket(Part):
    """What the autotuner's key makes of some workloads: it tunes once for all of them."""

    key: dict[str, int | float | str | None]
    workloads: list[str]
    grids: list[list[int]]
    """Grids of the baseline's launches that share the bucket."""


class Audit(Record):
    """The autotuner around the kernel against the launches that the study makes."""

    key: list[str]
    configs: list[dict[str, Any]]
    dead_names: list[str]
    """Key names that are no argument of the kernel: ignored up to Triton 3.8, ValueError from 3.9."""
    buckets: list[Bucket]
    blind_to: list[str]
    """Arguments that vary over the workloads of one bucket."""
    findings: list[str]


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
    reason: str | None = None


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
    started_at: str
    gpu_seconds: float


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


class Verdict(Record):
    """The outcome of a study: one entry per device, and the assumptions."""

    plan_hash: str
    plan_commit: str | None
    devices: list[DeviceVerdict]
    assumptions: list[Assumption]
    notes: list[str] = []
    """Records that were left out, and why."""


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
        raise RecordError(f"{path}: schema {found!r}, this version reads {SCHEMA!r}")
    try:
        return kind.model_validate(content)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise RecordError(
            f"{path}: {place}: {first['msg']}; delete it to have it made again"
        ) from e


def read_if_fresh(path: Path, kind: type[R], depends: dict[str, str]) -> R | None:
    """The record at ``path`` if it is whole and was made from ``depends``, else None."""
    if not path.exists():
        return None
    try:
        record = read_record(path, kind)
    except RecordError:
        return None
    return record if record.depends == depends else None
