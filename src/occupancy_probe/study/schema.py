"""The shape of a study file, section by section; :mod:`.load` turns a file into these models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Slug = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
"""A name that is safe as a file name: it cannot leave the study's folder."""

Scalar = bool | int | float | str
Values = dict[str, list[Scalar]]


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
    """Which kernel, through which Problem."""

    path: str
    """Folder with ``problem.py``, relative to the study file."""
    problem: str
    """Class in ``problem.py``."""
    function: str
    """The JIT function that the config applies to; its figures stand for the arm."""
    parameters: dict[str, Any] = {}
    """Keyword arguments of the Problem's class."""


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
    logic: list[WorkloadRule] = Field(min_length=1)
    """Workloads small enough for Triton's interpreter, checked where no GPU is."""
    seed: int = 0
    time_limit_s: float = Field(120, gt=0)
    """Per arm; an arm that takes longer is disqualified."""


class Measurement(Section):
    """How much is measured; see the protocol in the plan."""

    regime: Literal["cold", "warm"] = "cold"
    """cold: inputs rotate over at least 4 × L2; warm: one input set, named as such."""
    processes: int = Field(default=6, ge=2)
    """Outer replicates: fresh processes."""
    allocations: int = Field(default=2, ge=1)
    """Inner replicates: fresh allocations and graph captures in each process."""
    blocks: int = Field(16, ge=4)
    """Blocks per replicate; every block is a fresh random order of all arms."""
    clock_tolerance: float = Field(0.03, gt=0)
    """A block whose SM clock is off its replicate's median by more than this is dropped."""
    seed: int = 0


class Decision(Section):
    """The rule by which verdicts are given, fixed before the first sample."""

    alpha: float = Field(0.05, gt=0, lt=0.5)
    """Error rate of the whole family arms × workloads (Holm)."""
    margin: float = Field(0.01, gt=0)
    """Differences within this fraction count as equivalent."""
    improve: str
    """Workloads where the arm must be faster, an expression over their axes."""
    guard: str = "True"
    """Workloads where the arm must not lose more than ``guard_loss``."""
    guard_loss: float = Field(0.02, ge=0)


class Limits(Section):
    """Bounds on the work itself."""

    compile_s: float = Field(120, gt=0)
    """Seconds for one compile; beyond it the arm is rejected."""


class Commit(Section):
    """Subjects of the commits that the workflow makes (Jinja over ``study``)."""

    plan: str = "docs({{ study.name }}): A/B plan — {{ study.title }}"
    evidence: str = "docs({{ study.name }}): A/B evidence on {{ device }}"


class StudyFile(Section):
    """One hypothesis: everything that is fixed before anything is measured."""

    name: Slug
    title: str
    document: Slug
    """Name of the plan document, without ``.md``."""
    hypothesis: Hypothesis
    projection: Projection | None = None
    kernel: Kernel
    baseline: dict[str, Scalar]
    baseline_why: str = "what runs today"
    arms: list[ConfigRule] = Field(min_length=1)
    targets: list[str] = Field(min_length=1)
    workloads: list[WorkloadRule] = Field(min_length=1)
    assume: list[str] = []
    """Statements the study rests on; research reports each as confirmed or refuted."""
    risks: list[str] = []
    checks: Checks
    measurement: Measurement = Measurement()
    decision: Decision
    limits: Limits = Limits()
    commit: Commit = Commit()
