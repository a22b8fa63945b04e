"""From machine code and TTGIR to the digest of one kernel, and what differs between two."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_probe.gpu import Target
from occupancy_probe.launch.compile import Binary, disassemble
from occupancy_probe.records import Code, Feasibility
from occupancy_probe.research.machine import (
    MachineCode,
    count,
    read_amdgcn,
    read_sass,
    text_section,
)
from occupancy_probe.research.pipeline import Pipeline, read_pipeline

_SOURCE_MMA = re.compile(
    r"\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)\b|llvm\.amdgcn\.s?(?:mfma|wmma)(?=[^\n]*\()"
)


@dataclass(frozen=True)
class Material:
    """What the digest of one kernel is made from; small enough to travel between processes."""

    num_warps: int
    source_mma: int
    """Matrix multiplications before the assembler, which may unroll loops."""
    pipeline: Pipeline | None
    sass: bytes
    """Bare NVIDIA machine code, still to be disassembled; empty on AMD."""
    counted: MachineCode | None
    """AMD's, which LLVM prints."""


def material(binary: Binary, target: Target) -> Material:
    """Everything but the disassembly, which is cheaper for many kernels at once."""
    nvidia = target.backend == "cuda"
    source = binary.texts["ptx" if nvidia else "llir"]
    if not nvidia:  # LLVM declares what it calls
        source = "\n".join(x for x in source.splitlines() if not x.startswith("declare"))
    return Material(
        num_warps=binary.num_warps,
        source_mma=len(_SOURCE_MMA.findall(source)),
        pipeline=read_pipeline(binary.texts["ttgir"]),
        sass=text_section(binary.cubin) if nvidia else b"",
        counted=None if nvidia else count(read_amdgcn(binary.texts["amdgcn"])),
    )


def digest_codes(materials: Sequence[Material], target: Target) -> list[Code | None]:
    """The digests of many kernels of one target; None where there is no disassembler for it."""
    if target.backend != "cuda":
        return [_code(m, m.counted) for m in materials]
    text = disassemble(b"".join(m.sass for m in materials), target)
    if text is None:
        return [None] * len(materials)
    codes = read_sass(text, [len(m.sass) for m in materials])
    return [_code(m, count(code)) for m, code in zip(materials, codes, strict=True)]


def _code(m: Material, counted: MachineCode | None) -> Code | None:
    if counted is None:
        return None
    loop, pipeline = counted.loop, m.pipeline
    flop = None
    if loop and loop.mma and m.source_mma and pipeline and pipeline.flop:
        flop = pipeline.flop * max(1, round(loop.mma / m.source_mma))
    return Code(
        instructions=counted.instructions,
        async_copies=counted.async_copies,
        barriers=counted.barriers,
        mma=counted.mma,
        loop_instructions=loop.instructions if loop else None,
        loop_mma=loop.mma if loop else None,
        loop_flop=flop,
        instructions_per_kflop=round(loop.instructions * m.num_warps / flop * 1e3, 3)
        if loop and flop
        else None,
        loop_bytes=pipeline.loaded_bytes if pipeline else None,
        prefetch_depth=pipeline.depth if pipeline else None,
        in_flight_bytes=pipeline.in_flight_bytes if pipeline else None,
    )


def changes(record: Feasibility, records: Mapping[str, Feasibility], baseline: str) -> list[str]:
    """What ``record``'s config changed in the code, in words; empty for the baseline.

    Against the arm with the same code where there is one, else against the baseline.
    """
    if record.arm == baseline:
        return []
    other = records[record.same_code_as or baseline]
    knobs = config_change(other.config, record.config)
    if record.same_code_as:
        return [f"{knobs}: no change in code"]
    if record.code_sha256 is None or other.code_sha256 is None:
        return []
    if record.code is None or other.code is None:
        return [f"{knobs}: other code"] if record.verdict == "fits" else []
    found = _differences(other.code, record.code)
    if not found:
        found = ["the same instructions in another order, with other operands or another grid"]
    return [f"{knobs}: {found[0]}", *found[1:]]


def config_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """``num_stages 3 → 4``; several in the config's own order."""
    keys = [k for k in dict.fromkeys((*old, *new)) if old.get(k) != new.get(k)]
    return ", ".join(f"{k} {old.get(k, 'unset')} → {new.get(k, 'unset')}" for k in keys)


def _differences(old: Code, new: Code) -> list[str]:
    found = []
    if old.prefetch_depth != new.prefetch_depth:
        found.append(f"prefetch depth {_said(old.prefetch_depth)} → {_said(new.prefetch_depth)}")
    for before, after in (
        (old.async_copies, new.async_copies),
        (old.barriers, new.barriers),
        (old.mma, new.mma),
    ):
        for opcode in sorted(before.keys() | after.keys()):
            if more := after.get(opcode, 0) - before.get(opcode, 0):
                found.append(f"{'+' if more > 0 else '−'}{abs(more)} {opcode}")
    for was, now, unit in (
        (old.loop_instructions, new.loop_instructions, "instructions in the main loop"),
        (old.instructions_per_kflop, new.instructions_per_kflop, "instructions per kFLOP"),
    ):
        if was != now:
            found.append(f"{_said(was)} → {_said(now)} {unit}")
    if not found and old.instructions != new.instructions:
        found.append(f"{old.instructions:,} → {new.instructions:,} instructions, none in the loop")
    return found


def _said(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
