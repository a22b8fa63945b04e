"""How far ahead the main loop's loads run, read from Triton's GPU dialect (TTGIR)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

_DOT = re.compile(r"\b(?:tt\.dot|tt\.dot_scaled|ttng\.warp_group_dot|ttng\.tc_gen5_mma\w*)\b")
_LOAD = re.compile(
    r"\b(?:tt\.load|tt\.descriptor_load|tt\.descriptor_gather|amdg?\.buffer_load|amdgpu\.buffer_load)\b"
)
_COPY = re.compile(
    r"\b(?:ttg\.async_copy_global_to_local|ttng\.async_tma_copy_global_to_local"
    r"|ttng\.async_tma_gather|amdg?\.(?:buffer_load_to_local|async_\w+))\b"
)
_SHAPED = re.compile(r"(?:tensor|memdesc|(?<=> )|(?<=-> ))<((?:\d+x)+)(!tt\.ptr<)?([a-zA-Z]\w*)")
_POOL = re.compile(r"(%\S+) = ttg\.local_alloc : \(\) -> !ttg\.memdesc<(\d+)x")
_VIEW = re.compile(r"(%\S+) = ttg\.memdesc_(?:index|subview|subslice) (%[^\s\[,]+)")
_CONVERTED = re.compile(
    r"(%\S+) = (?:ttg\.convert_layout|amdg?\.in_thread_transpose|amdgpu\.in_thread_transpose) (%\S+)"
)
_STORE = re.compile(r"ttg\.local_store (%[^\s,]+), (%\S+)")
_VALUE = re.compile(r"\s*(%[^\s,:]+)(?::\d+)? =")
_NAME = re.compile(r"%[\w$.#-]+")


@dataclass(frozen=True)
class Pipeline:
    """One pass of one CTA through the main loop: the innermost loop with the most FLOP in dots.

    flop: of its dots. loaded_bytes: from device memory. depth: passes that the largest load is ahead
    of its use; 0 is a load that its own pass waits for. in_flight_bytes: what the CTA keeps in flight
    at most, every load counted as often as it is ahead, and at least once.
    """

    flop: int
    loaded_bytes: int
    depth: int
    in_flight_bytes: int


@dataclass(frozen=True)
class _Loop:
    head: str
    body: tuple[str, ...]
    """Lines of the loop that are not in a loop inside it."""
    innermost: bool


def read_pipeline(ttgir: str) -> Pipeline | None:
    """The main loop's pipeline; None for a kernel without a loop that loads."""
    pools = {m[1]: int(m[2]) for m in _POOL.finditer(ttgir)}
    views = {m[1]: m[2] for m in _VIEW.finditer(ttgir)}
    loops = [loop for loop in _loops(ttgir) if loop.innermost]
    main = max(loops, key=_flop, default=None)
    if main is None:
        return None
    loads = _loads(main, pools, views)
    if not loads:  # warp-specialized: other warps load in a loop of their own
        loads = [load for loop in loops for load in _loads(loop, pools, views)]
    if not loads:
        return None
    largest = max(size for size, _ in loads)
    return Pipeline(
        flop=_flop(main),
        loaded_bytes=sum(size for size, _ in loads),
        depth=min(depth for size, depth in loads if size == largest),
        in_flight_bytes=sum(size * max(depth, 1) for size, depth in loads),
    )


def _loops(ttgir: str) -> list[_Loop]:
    """Every ``scf.for`` and ``scf.while``, by the balance of braces."""
    found: list[_Loop] = []
    open_: list[tuple[int, str, list[str], list[bool]]] = []
    level = 0
    for line in ttgir.splitlines():
        code = re.sub(r"\{[^{}]*\}", "", line.split(" loc(")[0])  # attributes on one line
        if re.search(r"\bscf\.(?:for|while)\b", line):
            for _, _, _, inner in open_[-1:]:
                inner.append(True)
            open_.append((level, line, [], []))
        elif open_:
            open_[-1][2].append(line)
        level += code.count("{") - code.count("}")
        while open_ and level <= open_[-1][0] and "{" not in code:
            _, head, body, inner = open_.pop()
            found.append(_Loop(head, tuple(body), not inner))
    return found


def _loads(loop: _Loop, pools: dict[str, int], views: dict[str, str]) -> list[tuple[int, int]]:
    """(bytes, depth) of every load of the loop from device memory into a tile."""
    arguments = re.findall(r"(%[\w$.#-]+) = ", loop.head.split("iter_args(")[-1])
    yields: list[str] = []
    for line in loop.body:
        if "scf.yield" in line:
            yields = _NAME.findall(line.split("scf.yield")[1].split(" : ")[0])
    stored = _stored(loop, pools, views)
    found = []
    for line in loop.body:
        copy = _COPY.search(line)
        if not copy and not _LOAD.search(line):
            continue
        if not (size := _bytes(line)):
            continue  # a scalar
        if copy:
            operands = _NAME.findall(line[copy.end() :])
            depth = max((_buffers(o, pools, views) for o in operands), default=0)
        else:
            value = _VALUE.match(line)
            name = value[1] if value else ""
            depth = stored.get(name) or _passes(name, yields, arguments)
        found.append((size, depth))
    return found


def _stored(loop: _Loop, pools: dict[str, int], views: dict[str, str]) -> dict[str, int]:
    """Values that the loop puts into a pool through registers, with the buffers of that pool (AMD)."""
    source: dict[str, str] = {}
    found: dict[str, int] = {}
    for line in loop.body:
        if converted := _CONVERTED.search(line):
            source[converted[1]] = converted[2]
        if store := _STORE.search(line):
            name, buffers = store[1], _buffers(store[2], pools, views)
            while buffers and name not in found:
                found[name] = buffers
                name = source.get(name, name)
    return found


def _buffers(name: str, pools: dict[str, int], views: dict[str, str]) -> int:
    """Buffers of the pool that a view is part of; 0 for anything else."""
    while name in views:
        name = views[name]
    return pools.get(name, 0)


def _passes(name: str, yields: list[str], arguments: list[str]) -> int:
    """Passes through the loop that a value is carried before its use, in registers."""
    depth = 0
    while name in yields and depth < len(yields):
        name = arguments[yields.index(name)] if yields.index(name) < len(arguments) else ""
        depth += 1
    return depth


def _flop(loop: _Loop) -> int:
    """2·M·N·K of every dot of the loop."""
    total = 0
    for line in loop.body:
        if _DOT.search(line):
            shapes = [_shape(m[1]) for m in _SHAPED.finditer(line.split(" : ")[-1])]
            if len(shapes) >= 2 and len(shapes[0]) >= 2 <= len(shapes[1]):
                total += 2 * prod(shapes[0]) * shapes[1][-1]
    return total


def _bytes(line: str) -> int:
    """Size of the tile that a load brings: the last one named in the line."""
    shaped = list(_SHAPED.finditer(line.split(" loc(")[0]))
    if not shaped:
        return 0
    last = shaped[-1]
    return prod(_shape(last[1])) * _bits(last[3]) // 8


def _shape(text: str) -> list[int]:
    return [int(n) for n in text.split("x") if n]


def _bits(kind: str) -> int:
    """``bf16`` 16, ``i8`` 8, ``f8E4M3FN`` 8, ``f32`` 32."""
    digits = re.match(r"[a-z]+(\d+)", kind)
    return int(digits[1]) if digits else 8
