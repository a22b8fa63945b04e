"""What a study launches: specializations, grids, the trace."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from occupancy_probe.digest import digest
from occupancy_probe.records.base import Part, Record


class KernelFile(Part):
    """Where somebody else's kernel is and what importing it takes; paths relative to the kernel's folder."""

    file: str
    function: str
    sys_path: list[str] = []
    stub_modules: list[str] = []
    requires: list[str] = []


class Specialization(Part):
    """All that a compile job needs beside the target; made by Triton's binder."""

    file: str
    """Source file of the kernel, relative to the kernel's folder."""
    kernel: str
    """The studied kernel's name as the study gives it; else the JIT function's own."""
    qualname: str = ""
    """Name under which ``file`` defines the JIT function; empty: ``kernel``."""
    source: str = ""
    """Triton's hash of the function and of every JIT function it calls, wherever they are defined."""
    sys_path: list[str] = []
    """Folders that ``file`` imports from, relative to the kernel's folder."""
    stub_modules: list[str] = []
    signature: dict[str, Any]
    """Argument → type, e.g. ``*fp8e4nv``, ``i32``, ``tensordesc<bf16[64, 64]>``, ``constexpr``."""
    constants: list[tuple[list[int], Any]]
    """Position path → value of every constexpr and every argument that equals 1 or is None."""
    attributes: list[tuple[list[int], Any]]
    """Position path → attributes such as ``tt.divisibility 16``."""
    options: dict[str, Any]
    """num_warps, num_stages … as the launch gave them."""

    @property
    def key(self) -> str:
        """Identity of the specialization, independent of the target."""
        return digest(self.model_dump())[:16]

    def words(self) -> str:
        """In words: each argument with its type and what the compiler may assume."""
        constants = {tuple(p): v for p, v in self.constants}
        divisible = {tuple(p) for p, v in self.attributes if v}

        def one(path: tuple[int, ...], kind: Any) -> str:
            if path in constants:
                return f"={_constant(constants[path])}"
            if isinstance(kind, dict):  # a named tuple
                kind = kind["fields"][-1]
            if isinstance(kind, (list, tuple)):
                parts = [one((*path, i), k).removeprefix("=") for i, k in enumerate(kind)]
                return f": ({', '.join(p.removeprefix(': ') for p in parts)})"
            return f": {kind}" + ("/16" if path in divisible else "")

        return ", ".join(f"{n}{one((i,), k)}" for i, (n, k) in enumerate(self.signature.items()))


def _constant(value: Any) -> str:
    """A constant of a specialization as a reader would write it (see launch/encoding.py)."""
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_constant, value))})"
    if not isinstance(value, dict):
        return str(value)
    ((kind, content),) = value.items()
    if kind in ("jit", "enum"):
        return ".".join(content[1:])
    if kind == "fields":
        return f"{content[1]}({', '.join(map(_constant, content[2]))})"
    return _constant(content)


class Call(Part):
    """One kernel launch: which specialization, over which grid (CTAs), with which scalars."""

    specialization: str
    grid: list[int] = Field(min_length=1, max_length=3)
    scalars: dict[str, int | float | str | None] = {}
    """Values of the arguments that are no tensors, constexprs included."""
    dtypes: dict[str, str] = {}
    """Element types of the tensor arguments."""


class ArmTrace(Part):
    """The launches of one arm on one workload, planned for one target."""

    target: str
    arm: str
    workload: str
    calls: list[Call] = []
    error: str | None = None
    """Why the launch cannot even be specialized, in Triton's words."""


class Trace(Record):
    """Every launch that a study makes, without one having been compiled."""

    sm_counts: dict[str, int]
    """SMs that the launches were planned for, per target."""
    specializations: dict[str, Specialization]
    launches: list[ArmTrace]
    traffic: dict[str, dict[str, float]]
    """Per workload: bytes, flop, sm_clocks of one launch."""
    facts: dict[str, dict[str, Any]]
    """Per arm: the Problem's named quantities."""
    autotune: dict[str, Any] | None
    """Key and configs of the autotuner around the kernel; None where there is none."""
    sources: dict[str, str] = {}
    """SHA-256 of every file that defines a launched JIT function or one that it calls, by its path
    relative to the kernel's folder; Triton's own are left out."""
