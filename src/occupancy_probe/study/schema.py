"""The shape of a study file, section by section; :mod:`.load` turns a file into these models."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

Slug = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
"""A name that is safe as a file name: it cannot leave the study's folder."""

Scalar = bool | int | float | str
Values = dict[str, list[Scalar]]


def _compiled(key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as e:
        raise ValueError(f"{key} {text!r} is no regular expression: {e}; correct it") from e


class Section(BaseModel):
    """A part of a study file: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Hypothesis(Section):
    """What is to be changed, why it should help, and how that will be found out."""

    what: str
    why: str
    how: str


class Projection(Section):
    """The gain foreseen before any measurement, as fractions of ``metric``."""

    metric: str
    low: float
    high: float
    where: str = "True"
    """Workloads it speaks of, an expression over their axes."""
    arms: list[Slug] = []
    """Arms it speaks of; empty: every arm but the baseline."""


class Kernel(Section):
    """Which kernel: through a Problem of yours, or in a file of somebody else's, or both."""

    path: str | None = None
    """Folder with ``problem.py``, relative to the study file."""
    problem: str | None = None
    """Class in ``problem.py``; a study with a ``signature`` has none."""
    function: str
    """The JIT function that the config applies to; its figures stand for the arm."""
    parameters: dict[str, Any] = {}
    """Keyword arguments of the Problem's class."""
    file: str | None = None
    """Python file that defines ``function``, relative to the study file; it is not edited. The
    Problem finds the kernel, with all that is wrapped around it, as ``self.kernel``."""
    sys_path: list[str] = []
    """Folders that ``file`` imports from, relative to the study file."""
    stub_modules: list[str] = []
    """Modules that are not here and not needed by the kernel: inert while ``file`` is imported.
    A package that ``file`` itself lies in is entered without running its ``__init__.py``."""
    requires: list[str] = []
    """Distributions that must be installed, e.g. ``einops>=0.8``."""
    sources: list[str] = []
    """More folders, relative to the study file, whose Python files the Problem is made of."""

    @model_validator(mode="after")
    def _complete(self) -> Kernel:
        if (self.path is None) != (self.problem is None):
            raise ValueError("path and problem go together; give both or neither")
        if self.file is None and self.path is None:
            raise ValueError("give path and problem, or file and a signature")
        for key in ("sys_path", "stub_modules", "requires"):
            if getattr(self, key) and self.file is None:
                raise ValueError(f"{key} belongs to a kernel given by file")
        return self


class Argument(Section):
    """A tensor argument, or with ``block_shape`` a tensor descriptor over one."""

    dtype: str
    """Triton's short name, e.g. ``bf16``, ``fp8e4nv``, ``i32``; without ``shape`` the type itself."""
    shape: list[Scalar] | None = None
    """Elements per dimension: numbers, or expressions over workload axes and config."""
    strides: list[Scalar] | None = None
    """Elements, as ``shape``; contiguous by default."""
    block_shape: list[Scalar] | None = None
    """Block of a host-side ``TensorDescriptor``, as ``shape``."""
    align: int = Field(16, ge=1)
    """Bytes that the address is a multiple of; 16 is what allocators give at least."""


class Text(Section):
    """A string as it stands, in place of an expression."""

    text: str


Single = Argument | Text | Scalar | None
ArgumentValue = Single | list[Single]


class Signature(Section):
    """What a launch passes, for a kernel without a ``launch``: feasibility only."""

    arguments: dict[str, ArgumentValue]
    """By name: a tensor; a scalar as number or expression over workload axes and config; a list
    for a tuple; null for None. Arguments named like a key of the config are given by it."""
    grid: list[Scalar] = Field(min_length=1, max_length=3)
    """CTAs per dimension: numbers, or expressions with ``cdiv``, ``min``, ``max``, ``next_power_of_2``."""
    bytes: Scalar = 0
    """Fewest bytes through device memory, number or expression over the axes; 0: not known."""
    flop: Scalar = 0


class ConfigRule(Section):
    """Declares configs; exactly one of ``vary``, ``grid``, ``list``, ``use``."""

    vary: Values | None = None
    """One factor at a time, from the baseline."""
    grid: Values | None = None
    """The full product; keys left out keep the baseline's value."""
    list_: list[dict[str, Scalar]] | None = Field(default=None, alias="list")
    """Configs one by one, as differences from the baseline."""
    use: str | None = None
    """``module:function`` beside the study file; called with the baseline, returns configs."""
    where: str = "True"
    """Keeps the configs for which this expression over their keys is true."""
    name: str | None = None
    """Name of the arm, with ``{key}`` in place of values, e.g. ``t{BLOCK_T}-w{num_warps}``."""
    why: str
    """The reason; goes into the plan."""

    @model_validator(mode="after")
    def _exactly_one(self) -> ConfigRule:
        if sum(v is not None for v in (self.vary, self.grid, self.list_, self.use)) != 1:
            raise ValueError("give exactly one of vary, grid, list, use")
        return self


class WorkloadRule(Section):
    """Declares workloads: the product of ``grid``, or ``list`` one by one."""

    grid: Values | None = None
    list_: list[dict[str, Scalar]] | None = Field(default=None, alias="list")
    name: str | None = None
    """As for config rules, e.g. ``c{concurrency}``; default: every axis and its value."""

    @model_validator(mode="after")
    def _exactly_one(self) -> WorkloadRule:
        if (self.grid is None) == (self.list_ is None):
            raise ValueError("give exactly one of grid, list")
        return self


class Checks(Section):
    """Correctness beyond the measured workloads."""

    device: list[WorkloadRule] = []
    """More workloads checked on a GPU (edge cases)."""
    logic: list[WorkloadRule] = []
    """Workloads small enough for Triton's interpreter, checked where no GPU is; needed by a Problem."""
    seed: int = 0
    time_limit_s: float = Field(120, gt=0)
    """Per arm; an arm that takes longer is disqualified."""


class Stop(Section):
    """When measuring ends: after all processes, or at a look at which every comparison is decided.

    Each of n looks uses alpha / n (Bonferroni), so looking keeps the error rate, whatever the data.
    """

    looks: list[int] = []
    """Numbers of processes at which the data may be looked at; empty: only when all are done."""

    @model_validator(mode="after")
    def _ascending(self) -> Stop:
        if self.looks != sorted(set(self.looks)) or any(n < 2 for n in self.looks):
            raise ValueError("looks are ascending numbers of processes, 2 or more")
        return self


class DosePlan(Section):
    """The occupancy dose: the same binary with its CTAs per SM capped by padding shared memory."""

    arms: list[Slug] = Field(min_length=1)
    """Arms whose residency is varied; ``baseline`` may be one."""
    workloads: str = "True"
    """Workloads, an expression over their axes."""
    ctas: Literal["auto"] | list[int] = "auto"
    """Caps; auto: 1 to what the arm has by itself on the device."""
    emulate: list[str] = []
    """Targets whose residency is pointed out among the doses: an emulation, not their result."""
    processes: int = Field(default=6, ge=2)
    allocations: int = Field(default=2, ge=1)
    blocks: int = Field(32, ge=4)


class Measurement(Section):
    """How much is measured; see the protocol in the plan."""

    regime: Literal["cold", "warm", "eager"] = "cold"
    """cold: at least 4 × L2 of other data between two uses of an input; warm: one input set; both as
    CUDA graphs. eager: cold, launched from Python, so launch overhead is part of the time."""
    processes: int = Field(default=6, ge=2)
    """Outer replicates: fresh processes."""
    allocations: int = Field(default=2, ge=1)
    """Inner replicates: fresh allocations and graph captures in each process."""
    blocks: int = Field(16, ge=4)
    """Blocks per replicate; every block is a fresh random order of all arms."""
    clock_tolerance: float = Field(0.03, gt=0)
    """A block whose SM clock is off its replicate's median by more than this is dropped."""
    seed: int = 0
    stop: Stop = Stop()

    @model_validator(mode="after")
    def _looks_end_with_the_last_process(self) -> Measurement:
        if self.stop.looks and self.stop.looks[-1] != self.processes:
            raise ValueError("stop.looks must end with the number of processes")
        return self


Outcome = Literal["adopt", "adopt_above", "inconclusive", "rewrite", "reject"]


class Autotune(Section):
    """How the program around the kernel reaches its autotuner."""

    warmup: list[WorkloadRule] = []
    """Launched eagerly before anything is captured, in this order."""
    capture: list[WorkloadRule] = Field(min_length=1)
    """Launched inside CUDA-graph capture, in this order."""


class Decision(Section):
    """The rule by which verdicts are given, fixed before the first sample."""

    alpha: float = Field(0.05, gt=0, lt=0.5)
    """Error rate of the whole family arms × workloads (Holm)."""
    margin: float = Field(0.01, gt=0)
    """Differences within this fraction count as equivalent."""
    improve: str
    """Workloads where the arm must be faster, an expression over their axes."""
    guard: str = "True"
    """Workloads where the arm must not lose more than ``guard_loss``: all by default, none by "False",
    else others than those of ``improve``."""
    guard_loss: float = Field(0.02, ge=0)
    metric: Literal["kernel", "end_to_end"] = "kernel"
    """What must gain: the kernel's time, or the throughput of the step around it (``throughput``)."""
    minimum_effect: float = Field(0.0, ge=0, lt=1)
    """Least gain that is worth a change, as a fraction; all of the interval must reach it."""
    outcomes: list[Outcome] = ["adopt", "reject"]
    """What may be decided; tried in this order: adopt, adopt_above, inconclusive, rewrite, reject."""
    above: str | None = None
    """Axis from a value of which on an arm may be adopted (``adopt_above``)."""
    rewrite_headroom: float = Field(1.5, gt=1)
    """``rewrite``: nothing passes, and the best time is at least this many times its floor."""

    @field_validator("margin", "guard_loss", "minimum_effect")
    @classmethod
    def _a_fraction(cls, value: float) -> float:
        if value >= 1:
            raise ValueError("give a fraction below 1; 0.02 means 2 %")
        return value

    @model_validator(mode="after")
    def _threshold_needs_an_axis(self) -> Decision:
        if "adopt_above" in self.outcomes and self.above is None:
            raise ValueError("outcome adopt_above needs `above`, the axis of its threshold")
        return self


class Share(Section):
    """Which part of the step the kernel takes; exactly one of the ways to know it."""

    value: float | None = Field(None, gt=0, le=1)
    range_: tuple[float, float] | None = Field(None, alias="range")
    """Lowest and highest share that is thought possible."""
    profile: str | None = None
    """A CSV of times per kernel, Nsight's ``cuda_gpu_kern_sum`` CSV, or a PyTorch (Chrome) trace,
    relative to the study file."""
    kernels: str | None = None
    """With ``profile``: regular expression over kernel names; default: the studied kernel's."""
    launches: float | None = Field(None, gt=0)
    """Launches of the kernel per step: share = launches × its time / step time of the model."""
    passes: str | None = None
    """In a study of the whole step: axis that says how often a step runs the kernel, 1 or 2; what the
    second pass adds is the share."""

    @model_validator(mode="after")
    def _one_way(self) -> Share:
        ways = (self.value, self.range_, self.profile, self.launches, self.passes)
        if sum(v is not None for v in ways) != 1:
            raise ValueError("give exactly one of value, range, profile, launches, passes")
        if self.range_ and not 0 <= self.range_[0] <= self.range_[1] <= 1:
            raise ValueError("range is [lowest, highest] within 0 … 1")
        if self.kernels and not self.profile:
            raise ValueError("kernels belongs to profile")
        if self.kernels:
            _compiled("kernels", self.kernels)
        return self


class Throughput(Section):
    """The step around the kernel: how its time grows with concurrency, and the kernel's share."""

    series: str | None = None
    """A bundled series by name, a file (CSV, JSON, YAML) relative to the study file, or ``measured``:
    this study times whole steps itself."""
    step: str | None = None
    """Study file, relative to this one, of the whole step with the same arms: its measured times are
    the series, its share and its gains are shown beside the projected ones."""
    axis: str = "concurrency"
    """The workload axis that counts requests in flight."""
    where: str = "True"
    """Workloads that the step speaks of, an expression over their axes."""
    share: Share | None = None

    @model_validator(mode="after")
    def _one_series(self) -> Throughput:
        if (self.series is None) == (self.step is None):
            raise ValueError("give exactly one of series, step")
        return self


class Serve(Section):
    """A server to start afresh for every sample, with the arm forced through its environment.

    Commands are lists, not shell lines; ``{port}`` is replaced, and another ``{name}`` is a fault;
    ``{ name }`` and ``${NAME}`` stay. They run as you: read them first.
    """

    command: list[str] = Field(min_length=1)
    health: str = "http://127.0.0.1:{port}/health"
    """Answers with status 200 as soon as requests can be sent."""
    start_s: float = Field(600, gt=0)
    stop_s: float = Field(30, gt=0)
    environment: dict[str, str] = {}
    kernel: str
    """The kernel as the server imports it, ``module:kernel``: what is forced to each arm's config."""
    restarts: int = Field(5, ge=2)
    """Samples per arm; arms are interleaved in random order, restart by restart."""

    @field_validator("kernel")
    @classmethod
    def _module_and_kernel(cls, value: str) -> str:
        if not re.fullmatch(r"[^:\s]+:[^:\s]+", value):
            raise ValueError("write module:kernel, as the server imports it")
        return value


class Load(Section):
    """What is run against the server, and how its output says tokens per second."""

    command: list[str] = Field(min_length=1)
    """``{port}`` and the workload's axes, e.g. ``{concurrency}``, are replaced."""
    limit_s: float = Field(1800, gt=0)
    regex: str | None = None
    """Over standard output; its first group is tokens per second, the last match counts."""
    json_path: str | None = None
    """Dotted path into a JSON object that standard output ends with, e.g. ``summary.output_tok_s``."""
    where: str | None = None
    """Workloads, an expression over their axes; default: those of ``decision.improve``."""

    @model_validator(mode="after")
    def _one_way(self) -> Load:
        if (self.regex is None) == (self.json_path is None):
            raise ValueError("give exactly one of regex, json_path")
        if self.regex is not None and _compiled("regex", self.regex).groups < 1:
            raise ValueError("regex needs a group around tokens per second, e.g. ([0-9.]+) tok/s")
        return self


class Limits(Section):
    """Bounds on the work itself."""

    compile_s: float = Field(120, gt=0)
    """Seconds for one compile; beyond it the arm is rejected."""
    spill_bytes: int | None = Field(None, ge=0)
    """Bytes that a thread may spill (ptxas' spill stores); beyond it the arm is rejected. Without a
    budget spills are a warning: spilling configs are sometimes the fastest."""


class Commit(Section):
    """Subjects of the commits that the workflow makes (Jinja over ``study``)."""

    plan: str = "docs({{ study.name }}): A/B plan — {{ study.title }}"
    evidence: str = "docs({{ study.name }}): A/B evidence on {{ device }}"
    amendment: str = ""
    """Of a plan that replaces a committed one; empty: the plan's own subject, marked as amended."""


class StudyFile(Section):
    """One hypothesis: everything that is fixed before anything is measured."""

    name: Slug
    title: str
    document: Slug
    """Name of the plan document, without ``.md``."""
    hypothesis: Hypothesis
    projection: Projection | None = None
    kernel: Kernel
    signature: Signature | None = None
    """In place of a Problem: arguments with sizes, for feasibility only."""
    environments: dict[Slug, str] = {}
    """Other Tritons by name: a Python executable, a virtual environment, or a folder that holds
    ``triton``; relative to the study file. The same matrix is made under each and compared."""
    baseline: dict[str, Scalar]
    baseline_why: str = "what runs today"
    arms: list[ConfigRule] = Field(min_length=1)
    targets: list[str] = Field(min_length=1)
    workloads: list[WorkloadRule] = Field(min_length=1)
    assume: list[str] = []
    """Statements the study rests on; research reports each as confirmed or refuted."""
    risks: list[str] = []
    checks: Checks = Checks()
    measurement: Measurement = Measurement()
    dose: DosePlan | None = None
    decision: Decision
    throughput: Throughput | None = None
    serve: Serve | None = None
    load: Load | None = None
    limits: Limits = Limits()
    commit: Commit = Commit()
    autotune: Autotune | None = None
    must_fit: list[str] | dict[str, list[Slug]] = []
    """Targets on which every arm must fit, or target → arms; `snakemake feasibility` fails else."""
