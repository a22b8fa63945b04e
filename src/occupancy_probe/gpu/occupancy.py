"""Residency arithmetic: how many CTAs fit on an SM, and why not more.

Source of the CUDA formula: ``cuda_occupancy.h`` of CUDA 13. It assumes the largest shared-memory
carveout, and leaves out named barriers (at most 16 per CTA bind only in warp-specialized kernels)
and tensor memory (a CTA that finds none free is resident and waits).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from occupancy_probe.gpu.targets import Target

PARTITIONS = 4
"""Register files per SM: the sub-partitions of an NVIDIA SM, the SIMDs of an AMD compute unit."""

REGISTER_GRANULARITY = 8
"""Registers per thread are allocated in eights: 256 per warp of 32, VGPR granules on CDNA."""


@dataclass(frozen=True)
class Occupancy:
    """What of a kernel is resident on one SM while the grid is large enough."""

    ctas_per_sm: int
    warps_per_sm: int
    occupancy: float
    """Resident warps as a fraction of the SM's warp slots."""
    limiter: tuple[str, ...]
    """The terms of ``by`` that give the minimum; several on a tie."""
    by: Mapping[str, int] = field(hash=False)
    """CTAs per SM that each term alone would allow; "shared memory" is absent if none is used."""


@dataclass(frozen=True)
class Excess:
    """One limit of a target that a kernel exceeds; ``required`` and ``allowed`` in its own unit."""

    limit: str
    required: int
    allowed: int
    text: str


@dataclass(frozen=True)
class Waves:
    """How a grid covers a device."""

    waves: float
    """CTAs of the grid over the CTAs that the device holds at once."""
    count: int
    """Rounds until every CTA has run, the last perhaps partly empty: ceil(waves)."""
    fill: float
    """Share of the slots of those rounds that are used: waves / count."""
    resident_ctas_per_sm: int
    """CTAs that the fullest SM really holds: no more than the grid has for it."""
    grid_limited: bool
    """The grid, not the kernel's resources, caps residency, so more occupancy cannot be used."""

    def resident_warps_per_sm(self, num_warps: int) -> int:
        """Warps that the fullest SM really holds, at ``num_warps`` warps per CTA."""
        return self.resident_ctas_per_sm * num_warps


def occupancy(target: Target, registers: int, num_warps: int, shared_bytes: int) -> Occupancy:
    """CTAs per SM of a kernel with ``registers`` per thread and ``num_warps`` warps per CTA.

    ``shared_bytes`` is static plus dynamic shared memory per CTA, *without* the KB that the driver
    reserves. A kernel that cannot launch has 0 CTAs per SM; :func:`limits` says why.

    CUDA: with ra = 32 x registers rounded up to 256, each of 4 partitions holds floor(16384 / ra)
    warps. The launch check ra x (warps rounded up to 4) <= 65,536 follows from that: where it
    fails, the partitions hold fewer warps than the CTA has.

    AMD (CDNA 3 and 4; LLVM's AMDGPU guide): ``registers`` is VGPRs plus AGPRs per lane. A SIMD has
    512 per lane in granules of 8, so the compute unit holds min(8, floor(512 / VGPRs rounded up
    to 8)) x 4 waves; LDS is handed out in granules of its own. In this table's units that is the
    same arithmetic: the term "registers" is the quotient, the term "warps" the 8 per SIMD.
    """
    if num_warps < 1 or registers < 0 or shared_bytes < 0:
        raise ValueError("a CTA has at least one warp and no negative resources")
    too_many_threads = num_warps * target.warp_size > target.max_threads_per_cta
    by = {
        "registers": _warps_by_registers(target, registers) // num_warps,
        "warps": 0 if too_many_threads else target.max_warps_per_sm // num_warps,
        "CTA slots": target.max_ctas_per_sm,
    }
    if share := _shared_allocated(target, shared_bytes):
        by["shared memory"] = target.shared_per_sm_bytes // share
    ctas = min(by.values())
    return Occupancy(
        ctas_per_sm=ctas,
        warps_per_sm=ctas * num_warps,
        occupancy=ctas * num_warps / target.max_warps_per_sm,
        limiter=tuple(term for term in _TERMS if by.get(term) == ctas),
        by={term: by[term] for term in _TERMS if term in by},
    )


_TERMS = ("registers", "shared memory", "warps", "CTA slots")


def limits(
    target: Target, shared_bytes: int, threads: int, registers: int, tensor_memory_columns: int
) -> tuple[Excess, ...]:
    """The limits that one CTA exceeds, none if it can launch; 0 stands for a figure not known.

    ``shared_bytes`` is without the reserved KB, ``threads`` per CTA, ``registers`` per thread.
    """
    warps = -(-threads // target.warp_size)
    block_registers = _warp_registers(target, registers) * _round_up(warps, PARTITIONS)
    on = f"on {target.name}"
    checks = (
        ("shared memory", shared_bytes, target.shared_per_block_bytes, " B", f"per block {on}"),
        ("threads", threads, target.max_threads_per_cta, "", f"per CTA {on}"),
        ("registers per thread", registers, target.max_registers_per_thread, "", on),
        ("registers per CTA", block_registers, target.registers_per_sm, "", on),
        ("tensor memory", tensor_memory_columns, target.tensor_memory_columns, " columns", on),
    )
    return tuple(
        Excess(limit, required, allowed, f"{limit} {required:,}{unit} > {allowed:,}{unit} {where}")
        for limit, required, allowed, unit, where in checks
        if required > allowed
    )


def waves(ctas: int, sm_count: int, ctas_per_sm: int) -> Waves:
    """How a grid of ``ctas`` covers ``sm_count`` SMs that hold ``ctas_per_sm`` of them each."""
    if min(ctas, sm_count, ctas_per_sm) < 1:
        raise ValueError("waves need at least one CTA, one SM and one CTA per SM")
    slots = sm_count * ctas_per_sm
    count = -(-ctas // slots)
    available = -(-ctas // sm_count)
    return Waves(
        waves=ctas / slots,
        count=count,
        fill=ctas / (slots * count),
        resident_ctas_per_sm=min(ctas_per_sm, available),
        grid_limited=available < ctas_per_sm,
    )


def shared_padding(target: Target, shared_bytes: int, ctas: int) -> int:
    """Shared bytes to launch with, in all, so that exactly ``ctas`` CTAs fit an SM's shared memory.

    ``shared_bytes`` is what the kernel needs, both without the reserved KB. The largest such size
    is returned: every dose then fills the SM's shared memory, so the L1 cache that shares it
    keeps its size from dose to dose. Registers or warps may still allow fewer CTAs.
    Raises :class:`ValueError` if no size does it.
    """
    if not 1 <= ctas <= target.max_ctas_per_sm:
        raise ValueError(f"{target.name} holds 1 to {target.max_ctas_per_sm} CTAs per SM")
    unit = target.shared_granularity_bytes
    share = target.shared_per_sm_bytes // ctas // unit * unit
    padded = min(share - target.reserved_shared_bytes, target.shared_per_block_bytes)
    if padded < shared_bytes:
        raise ValueError(f"{shared_bytes:,} B of shared memory do not fit {target.name} x {ctas}")
    if target.shared_per_sm_bytes // _shared_allocated(target, padded) != ctas:
        raise ValueError(f"no size of shared memory holds {target.name} at {ctas} CTAs per SM")
    return padded


def bytes_in_flight_needed(latency_ns: float, bandwidth_gb_s: float) -> float:
    """Bytes in flight, device-wide, that sustain a bandwidth (10^9 B/s) at a latency: Little's law."""
    return latency_ns * bandwidth_gb_s


def _warps_by_registers(target: Target, registers: int) -> int:
    if registers > target.max_registers_per_thread:
        return 0
    per_partition = target.registers_per_sm // PARTITIONS
    return per_partition // _warp_registers(target, max(registers, 1)) * PARTITIONS


def _warp_registers(target: Target, registers: int) -> int:
    return _round_up(registers, REGISTER_GRANULARITY) * target.warp_size


def _shared_allocated(target: Target, shared_bytes: int) -> int:
    return _round_up(shared_bytes + target.reserved_shared_bytes, target.shared_granularity_bytes)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
