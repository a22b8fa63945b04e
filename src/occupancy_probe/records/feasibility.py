"""What an arm becomes on a target: limits, code, residency, neighbours, drift."""

from __future__ import annotations

from typing import Any, Literal

from occupancy_probe.records.base import Part, Record


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
    device_uuid: str | None = None
    """None in records made before this was noted."""
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
