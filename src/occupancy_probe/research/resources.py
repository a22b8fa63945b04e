"""Read what a compiled kernel costs: ptxas' own figures, and the identity of its machine code."""

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

    A stack frame is not always a spill; only the two spill figures are.
    """

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


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


def code_digest(cubin: bytes, *launch: int) -> str:
    """SHA-256 of the machine code alone (names, line tables and notes left out), and of ``launch``.

    cubin: an ELF file; its code stands in ``.text.*`` and its constants in ``.nv.constant*``.
    launch: numbers that make equal code behave differently (threads, shared bytes …).
    """
    found = hashlib.sha256(repr(launch).encode())
    for section in ELFFile(io.BytesIO(cubin)).iter_sections():
        if section.name.startswith((".text.", ".nv.constant2", ".nv.constant4")):
            found.update(section.data())
    return found.hexdigest()
