"""What a kernel does to its arguments, read off its TTIR: in-place updates and arguments never read.

TTIR is SSA text with the arguments' own names. Values are followed by def-use, through loops, so that
`a load from x ends up in a store to x` is seen and a kernel that merely writes x is not suspected.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_LOCATION = re.compile(r"\s*loc\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\)")
_RESULTS = re.compile(r"^(%[\w$.-]+)(?::(\d+))?((?:, %[\w$.-]+)*) = (.*)$")
_OPERATION = re.compile(r"^\"?([a-z_]+\.[\w.]+)")
_BINDING = re.compile(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)")
_ARGUMENT = re.compile(r"(%[\w$.-]+): ((?:!tt\.[^,{)]*(?:<[^>]*>*)?)|[\w<>]+)")

_REPEATABLE = {"and", "or", "max", "min", "umax", "umin", "exch"}
"""Atomics that leave the same after a second run as after the first, from the same operands."""


@dataclass(frozen=True)
class Update:
    """An argument whose new contents depend on its old ones: a second launch changes the result."""

    argument: str
    by: str
    """The operation, e.g. ``tt.store of what was loaded`` or ``tt.atomic_rmw fadd``."""


@dataclass
class _Memory:
    """One access: operation, its address, everything that decides what is written and whether."""

    operation: str
    address: str
    decides: list[str]
    results: list[str]


@dataclass
class _Frame:
    """A region that is open: what its yields feed and what decides whether it runs."""

    operation: str
    results: list[str]
    carried: list[str] = field(default_factory=list)
    decides: list[str] = field(default_factory=list)


class Flow:
    """Def-use of one TTIR module's public function."""

    def __init__(self, text: str) -> None:
        self.arguments: dict[str, str] = {}
        self.used: set[str] = set()
        self._next: dict[str, set[str]] = defaultdict(set)
        self._accesses: list[_Memory] = []
        self._frames: list[_Frame] = []
        self._scopes: list[dict[str, str]] = [{}]  # a name may stand again in a region beside
        self._count = 0
        for line in _function(text):
            self._read(_LOCATION.sub("", line).strip())

    def updates(self, aliases: Iterable[tuple[str, ...]] = ()) -> list[Update]:
        """Arguments that the kernel updates in place.

        aliases: groups of arguments that are the same memory in a launch: a load from one and a
        store to another is an update too.
        """
        groups = [tuple(f"%{name}" for name in group) for group in aliases]
        found: dict[str, Update] = {}
        for name, kind in self.arguments.items():
            if "!tt." not in kind:
                continue
            same = next((g for g in groups if name in g), (name,))
            addresses = self._reach(same, through_memory=False)
            mine = [a for a in self._accesses if a.address in addresses]
            direct = self._reach((name,), through_memory=False)
            tainted = self._reach([r for a in mine for r in a.results], through_memory=True)
            for access in (a for a in mine if a.address in direct):
                if (by := _update_by(access, tainted)) is not None:
                    found.setdefault(name[1:], Update(name[1:], by))
        return list(found.values())

    def unread(self) -> set[str]:
        """Arguments that no operation uses."""
        return {name[1:] for name in self.arguments if name not in self.used}

    def _reach(self, start: Iterable[str], through_memory: bool) -> set[str]:
        """Values that depend on ``start``; without memory, those that are an address made of it."""
        loaded = {r for a in self._accesses for r in a.results}
        seen, open_ = set(start), list(start)
        while open_:
            for value in self._next[open_.pop()] - seen:
                if through_memory or value not in loaded:
                    seen.add(value)
                    open_.append(value)
        return seen

    def _read(self, line: str) -> None:
        if line.startswith("tt.func"):
            head = line[line.index("(") : line.rindex("{")]
            self.arguments = dict(_ARGUMENT.findall(head))
            self._scopes[0].update({name: name for name in self.arguments})
            return
        if line.startswith("^"):
            self._enter_block(re.findall(r"(%[\w$.-]+):", line))
            return
        if line.startswith("}") and self._frames:
            if line.endswith("{"):  # `} else {`, `} do {`
                self._scopes[-1] = {}
            else:
                self._frames.pop()
                self._scopes.pop()
            return
        results, body = _split(line)
        match = _OPERATION.match(body)
        if match is None:
            return
        operation = match.group(1)
        loop = operation == "scf.for"
        head, _, rest = body.partition("iter_args")
        bindings = _BINDING.findall(rest if loop else body if operation == "scf.while" else "")
        own = {inner for inner, _ in bindings} | set(_VALUE.findall(head)[:1] if loop else [])
        operands = [self._value(v) for v in _VALUE.findall(_without_strings(body)) if v not in own]
        self.used.update(operands)
        made = [self._define(name) for name in results]
        opens = body.rstrip().endswith("{")
        if operation in ("scf.yield", "scf.condition"):
            self._yield(operation, operands)
        elif opens:
            self._open(operation, made, bindings, operands, sorted(own) if loop else [])
        if not operation.startswith("scf."):
            self._step(operation, made, operands, body)

    def _value(self, name: str) -> str:
        return next((s[name] for s in reversed(self._scopes) if name in s), name)

    def _define(self, name: str) -> str:
        self._count += 1
        self._scopes[-1][name] = f"{name}@{self._count}"
        return self._scopes[-1][name]

    def _open(
        self,
        operation: str,
        results: list[str],
        bindings: list[tuple[str, str]],
        operands: list[str],
        own: list[str],
    ) -> None:
        """A region begins; ``own`` are a loop's induction and carried names, defined inside it."""
        initial = [self._value(outer) for _, outer in bindings]
        decides = [] if operation == "scf.while" else operands[: len(operands) - len(initial)]
        self._scopes.append({})
        carried = [self._define(inner) for inner, _ in bindings]
        induction = [self._define(n) for n in own if n not in {inner for inner, _ in bindings}]
        for i, value in enumerate(initial):
            self._next[value].update(
                carried[i : i + 1], results if operation == "scf.while" else results[i : i + 1]
            )
        if operation.startswith("scf."):
            for value in decides:
                self._next[value].update(results, carried, induction)
        else:
            decides = []
        self._frames.append(_Frame(operation, results, carried, decides))

    def _enter_block(self, names: list[str]) -> None:
        """A block's arguments; those of a while loop's body are what its condition handed on."""
        made = [self._define(name) for name in names]
        if self._frames and self._frames[-1].operation == "scf.while":
            for value in self._frames[-1].carried:
                self._next[value].update(made)
            self._frames[-1].carried += made

    def _yield(self, operation: str, operands: list[str]) -> None:
        if not self._frames:
            return
        frame = self._frames[-1]
        if frame.operation == "scf.while":  # two regions with arguments of their own: all to all
            for value in operands:
                self._next[value].update(frame.results, frame.carried)
            if operation == "scf.condition":
                frame.decides += operands[:1]
            return
        for i, value in enumerate(operands):
            self._next[value].update(frame.results[i : i + 1], frame.carried[i : i + 1])

    def _step(self, operation: str, results: list[str], operands: list[str], body: str) -> None:
        for value in operands:
            self._next[value].update(results)
        if not operands or not _is_access(operation):
            return
        named = operation
        if operation.startswith(("tt.atomic_rmw", "tt.descriptor_reduce")):
            named += " " + body.split(operation, 1)[1].split(",")[0].split()[0]
        above = [value for frame in self._frames for value in frame.decides]
        for address in operands if operation == "tt.call" else operands[:1]:
            self._accesses.append(_Memory(named, address, [*operands, *above], results))


def _update_by(access: _Memory, tainted: set[str]) -> str | None:
    """How this access makes its argument's contents depend on what was there; None if it does not."""
    operation, _, kind = access.operation.partition(" ")
    if operation == "tt.call":
        return "a function that is not inlined"
    if operation == "tt.atomic_cas" or (kind and kind.lstrip("f") not in _REPEATABLE):
        return access.operation
    writes = "store" in operation or "scatter" in operation or bool(kind)
    if writes and any(value in tainted for value in access.decides):
        return f"{access.operation} that depends on what was loaded from it"
    return None


def _is_access(operation: str) -> bool:
    memory = ("load", "store", "gather", "scatter", "atomic", "descriptor_reduce")
    return operation == "tt.call" or (
        (operation.startswith("tt.") and any(word in operation for word in memory))
        and operation != "tt.gather"
    )


def _function(text: str) -> list[str]:
    """The lines of the public function."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if "tt.func public" in line)
    end = next(i for i in range(start + 1, len(lines)) if lines[i].startswith("  }"))
    return lines[start:end]


def _split(line: str) -> tuple[list[str], str]:
    """Results, one name each as uses write it, and the rest of the line."""
    match = _RESULTS.match(line)
    if match is None:
        return [], line
    first, count, more, body = match.groups()
    if count and int(count) > 1:
        return [f"{first}#{i}" for i in range(int(count))], body
    return [first, *_VALUE.findall(more)], body


def _without_strings(body: str) -> str:
    """Strings (inline assembly) have percent signs of their own."""
    return re.sub(r"\"(?:[^\"\\]|\\.)*\"", "", body)
