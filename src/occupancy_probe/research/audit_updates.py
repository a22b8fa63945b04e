"""What the tuned kernel does to its arguments: in-place updates, and key arguments it never reads."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from occupancy_probe.gpu import Target
from occupancy_probe.launch.autotune import Touch, updates_left
from occupancy_probe.launch.compile import compiled_kernel
from occupancy_probe.launch.ttir import Flow
from occupancy_probe.launch.tuned import autotuners
from occupancy_probe.launch.unwrap import unwrap
from occupancy_probe.records import InPlace, Specialization

SPECIALIZATIONS = 16
"""Variants of a kernel whose TTIR is looked at; beyond them only what may be assumed differs."""


def read_flows(
    folder: Path, touches: Sequence[Touch], target: Target
) -> list[tuple[Flow, dict[str, Any]]]:
    """Def-use of every distinct specialization, with a config that has it.

    Configs are looked at one by one: a compile-time parameter (a split count, say) may decide
    between a store and an atomic. Launch options do not change TTIR.
    """
    distinct: dict[str, tuple[Specialization, dict[str, Any]]] = {}
    for touch in touches:
        for tried in touch.benched or ([touch.launched] if touch.launched else []):
            if tried.specialization is not None:
                plain = tried.specialization.model_copy(update={"options": {}})
                distinct.setdefault(plain.key, (tried.specialization, tried.config))
    flows = []
    for spec, config in list(distinct.values())[:SPECIALIZATIONS]:
        try:
            text = compiled_kernel(folder, spec, target).asm["ttir"]
        except Exception:  # feasibility has the compiler's words
            continue
        flows.append((Flow(text), config))
    return flows


def in_place(
    kernel: Any,
    flows: Sequence[tuple[Flow, dict[str, Any]]],
    touches: Sequence[Touch],
    target: Target,
) -> list[InPlace]:
    """One entry per argument that some config updates, with the worst status of any config."""
    tuner, names = autotuners(kernel)[0], unwrap(kernel).arg_names
    sizes: dict[str, int] = {}
    aliases: set[tuple[str, ...]] = set()
    for touch in touches:
        tensors = touch.tensors(names)
        for name, tensor in tensors.items():
            sizes[name] = max(sizes.get(name, 0), getattr(tensor, "nbytes", 0))
        aliases.update(_aliases(tensors))
    called = next((t for t in touches if t.arguments != ((), {})), None)
    found: dict[str, InPlace] = {}
    for flow, config in flows:
        for update in flow.updates(aliases):
            name = update.argument
            protection = _protection(tuner, name, config)
            if name in found and (protection or found[name].protection is None):
                continue
            status: Literal["protected", "unsafe", "latent"] = (
                "protected" if protection else "unsafe" if len(tuner.configs) > 1 else "latent"
            )
            left = updates_left(kernel, called, name, target) if called else None
            found[name] = InPlace(
                argument=name,
                by=update.by,
                status=status,
                protection=protection,
                bytes=sizes.get(name, 0),
                after_first_call=left,
            )
    return list(found.values())


def unread_keys(
    kernel: Any, keys: Sequence[str], flows: Sequence[Flow], touches: Sequence[Touch]
) -> dict[str, int]:
    """Key arguments that do not reach the kernel's code: by TTIR, or by the source of constexprs."""
    mentioned = _mentioned(unwrap(kernel))
    unread = {}
    for key in keys:
        if key not in unwrap(kernel).arg_names:
            continue
        compiled = [f for f in flows if f"%{key}" in f.arguments]
        never = key not in mentioned or (compiled and all(key in f.unread() for f in compiled))
        if never:
            unread[key] = len({repr(t.values.get(key)) for t in touches if key in t.values})
    return unread


def _aliases(tensors: Mapping[str, Any]) -> set[tuple[str, ...]]:
    """Arguments that are the same memory."""
    by_storage: dict[Any, list[str]] = {}
    for name, tensor in tensors.items():
        if hasattr(tensor, "untyped_storage"):
            by_storage.setdefault(tensor.untyped_storage()._cdata, []).append(name)
    return {tuple(names) for names in by_storage.values() if len(names) > 1}


def _protection(tuner: Any, argument: str, config: Mapping[str, Any]) -> str | None:
    """What keeps timing ``config`` from leaving its mark on ``argument``."""
    own = next((c for c in tuner.configs if c.all_kwargs() == config), None)
    if getattr(tuner, "user_defined_pre_hook", False) or (own is not None and own.pre_hook):
        return "pre_hook"
    if argument in tuner.restore_value:
        return "restore_value"
    return "reset_to_zero" if argument in tuner.reset_to_zero else None


def safety_of(
    in_place: Sequence[InPlace], known: bool
) -> Literal["safe", "protected", "latent", "unsafe", "not known"]:
    """The worst status of any argument."""
    if not known:
        return "not known"
    for status in ("unsafe", "latent", "protected"):
        if any(i.status == status for i in in_place):
            return status  # type: ignore[return-value]
    return "safe"


def _mentioned(function: Any) -> set[str]:
    """Names that the body of a JIT function reads."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function.fn)))
    body = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)).body
    return {n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name)}
