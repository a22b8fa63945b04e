"""What machine code does: instructions by kind, and the main loop, from SASS or AMD assembly."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

NVIDIA_MMA = re.compile(r"(?:UTC)?[HIQBDO]G?MMA\b")
AMD_MMA = re.compile(r"v_s?(?:mfma|wmma)")
_ASYNC = re.compile(
    r"(?:LDGSTS|UBLKCP|UBLKPF|UTMALDG|UTMASTG|UTMAREDG|UTMAPF)\b|(?:global|buffer)_load_lds"
)
_BARRIER = re.compile(r"(?:BAR|SYNCS|UCGABAR_\w+|ARRIVES)\b|s_barrier")
_SASS = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
_AMD = re.compile(r"\t([a-z]\w+)(.*)")


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``place`` orders them, ``jump`` is the place a branch goes to."""

    place: int
    opcode: str
    jump: int | None = None


@dataclass(frozen=True)
class Loop:
    """The main loop: the innermost one with the most MMA, or without MMA the longest innermost one."""

    instructions: int
    mma: int


@dataclass(frozen=True)
class MachineCode:
    """Static counts; padding is left out. Keys are opcodes, of MMA with all their modifiers."""

    instructions: int
    async_copies: dict[str, int]
    barriers: dict[str, int]
    mma: dict[str, int]
    loop: Loop | None


def text_section(cubin: bytes) -> bytes:
    """The bare machine code of a cubin."""
    elf = ELFFile(io.BytesIO(cubin))
    return b"".join(s.data() for s in elf.iter_sections() if s.name.startswith(".text."))


def read_sass(text: str, sizes: Sequence[int]) -> list[list[Instruction]]:
    """Instructions of several kernels out of one listing; sizes: bytes of code of each, in order."""
    ends, end = [], 0
    for size in sizes:
        end += size
        ends.append(end)
    found: list[list[Instruction]] = [[] for _ in sizes]
    kernel = 0
    for match in _SASS.finditer(text):
        place = int(match[1], 16)
        while place >= ends[kernel]:
            kernel += 1
        opcode = match[2]
        if opcode == "NOP":
            continue
        jump = None
        if opcode.startswith("BRA") and (addresses := re.findall(r"\b0x[0-9a-f]+", match[3])):
            jump = int(addresses[-1], 16)
        found[kernel].append(Instruction(place, opcode, jump))
    return found


def read_amdgcn(text: str) -> list[Instruction]:
    """Instructions of the kernel in AMD assembly as LLVM prints it."""
    labels: dict[str, int] = {}
    lines: list[tuple[str, str]] = []
    for line in text.split("s_endpgm")[0].splitlines():
        if label := re.match(r"(\.LBB\w+):", line):
            labels[label[1]] = len(lines)
        elif (match := _AMD.match(line)) and not line.startswith("\t."):
            lines.append((match[1], match[2]))
    found = []
    for place, (opcode, rest) in enumerate(lines):
        goal = re.search(r"\.LBB\w+", rest) if "branch" in opcode else None
        if "buffer_load" in opcode and re.search(r"\blds\b", rest):
            opcode = "buffer_load_lds"
        found.append(Instruction(place, opcode, labels.get(goal[0]) if goal else None))
    return found


def count(code: Sequence[Instruction]) -> MachineCode:
    """The digest of one kernel's instructions."""
    opcodes = [i.opcode for i in code]
    return MachineCode(
        instructions=len(code),
        async_copies=_counts(o.split(".")[0] for o in opcodes if _ASYNC.match(o)),
        barriers=_counts(o.split(".")[0] for o in opcodes if _BARRIER.match(o)),
        mma=_counts(o for o in opcodes if is_mma(o)),
        loop=_main_loop(code),
    )


def is_mma(opcode: str) -> bool:
    """Whether it multiplies matrices."""
    return bool(NVIDIA_MMA.match(opcode) or AMD_MMA.match(opcode))


def _main_loop(code: Sequence[Instruction]) -> Loop | None:
    """By control flow: a loop is what lies between a backward branch and its goal.

    One-instruction loops (a branch to itself ends every NVIDIA kernel) and loops that only wait for a
    barrier are none.
    """
    spans = {(i.jump, i.place) for i in code if i.jump is not None and i.jump < i.place}
    loops: list[tuple[int, int, Loop]] = []
    for first, last in spans:
        body = [i.opcode for i in code if first <= i.place <= last]
        found = Loop(len(body), sum(map(is_mma, body)))
        waits = any(o.startswith("SYNCS") for o in body) and len(body) < _WAIT_LOOP
        if found.mma or not waits:
            loops.append((first, last, found))
    with_mma = [entry for entry in loops if entry[2].mma]
    candidates = with_mma or loops
    innermost = [
        loop
        for first, last, loop in candidates
        if not any(
            first <= start and end <= last and (start, end) != (first, last)
            for start, end, _ in candidates
        )
    ]
    return max(innermost, key=lambda loop: (loop.mma, loop.instructions), default=None)


_WAIT_LOOP = 8


def _counts(opcodes: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(opcodes).items()))
