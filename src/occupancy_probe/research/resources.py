"""Read what a compiled kernel costs: the assemblers' own figures, and the identity of machine code."""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

from occupancy_probe.exc import RecordError

_USED = re.compile(r"Used (\d+) registers")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Resources:
    """Per thread: registers, and bytes of stack frame, spill stores and spill loads.

    A stack frame is not always a spill; only the two spill figures are. The last three are AMD's:
    ``registers`` is then vector and accumulation registers together, which share one file.
    """

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    vgprs: int | None = None
    agprs: int | None = None
    sgprs: int | None = None


def parse_ptxas_log(log: str) -> Resources:
    """Figures of the (only) kernel in the output of ``ptxas -v``; RecordError if there are none.

    A non-inlined device function reports a frame of its own: frames and spills are added up.
    """
    used = _USED.findall(log)
    if not used:
        raise RecordError(f"ptxas reported no registers; it said: {log.strip()[:200]!r}")
    frames = [tuple(map(int, f)) for f in _FRAME.findall(log)]
    stack, stores, loads = (sum(f[i] for f in frames) for i in range(3))
    return Resources(max(map(int, used)), stack, stores, loads)


def parse_amdgcn(assembly: str) -> Resources:
    """Figures of the kernel in LLVM's AMD assembly, from its metadata; RecordError if there are none.

    LLVM reports spilled vector registers, 4 bytes each, and does not tell stores from loads.
    ``.vgpr_count`` includes the accumulation registers where both share one file (gfx90a and later).
    """

    def figure(name: str) -> int:
        found = re.search(rf"^\s*(?:- )?\.{name}:\s*(\d+)\s*$", assembly, re.MULTILINE)
        if found is None:
            raise RecordError(f"no .{name} in the metadata of the AMD assembly")
        return int(found[1])

    total, agprs, spilled = map(figure, ("vgpr_count", "agpr_count", "vgpr_spill_count"))
    return Resources(
        registers=total,
        stack_bytes=figure("private_segment_fixed_size"),
        spill_store_bytes=4 * spilled,
        spill_load_bytes=4 * spilled,
        vgprs=total - agprs,
        agprs=agprs,
        sgprs=figure("sgpr_count"),
    )


def only_traps(ptx: str) -> bool:
    """Whether the compiler gave the kernel up: a body that stops and never returns.

    It does so beyond the tensor-memory limit; what is left needs a handful of registers.
    """
    body = ptx.partition(".entry")[2]
    return bool(re.search(r"^\s*trap;", body, re.MULTILINE)) and not re.search(
        r"^\s*(?:@\S+\s+)?ret;", body, re.MULTILINE
    )


def code_digest(cubin: bytes, *launch: int) -> str:
    """SHA-256 of the machine code alone (names, line tables and notes left out), and of ``launch``.

    cubin: an ELF file; NVIDIA's code stands in ``.text.*`` and its constants in ``.nv.constant*``,
    AMD's in ``.text``.
    launch: numbers that make equal code behave differently (threads, shared bytes …).
    """
    found = hashlib.sha256(repr(launch).encode())
    for section in ELFFile(io.BytesIO(cubin)).iter_sections():
        if section.name.startswith((".text", ".nv.constant2", ".nv.constant4")):
            found.update(section.data())
    return found.hexdigest()
