"""Offsets that may wrap: tensors of 2 GiB or more beside integers of 32 bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from occupancy_probe.gpu import Target
from occupancy_probe.launch import Inputs, Problem

LIMIT = 2**31


def wide_offsets(inputs: Inputs, signatures: Iterable[Mapping[str, Any]]) -> list[str]:
    """A warning per tensor whose last byte or element lies at ``LIMIT`` or beyond.

    signatures: argument → type of every launch on these inputs. A product of 32-bit integers wraps
    there (319 × 7,864,320 becomes −1,786,249,216), silently; nothing is said where all integer
    arguments have 64 bits.
    """
    narrow = sorted({n for s in signatures for n, kind in s.items() if kind == "i32"})
    if not narrow:
        return []
    found = []
    for name, value in inputs.items():
        if not hasattr(value, "element_size"):
            continue
        extent = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
        size = extent * value.element_size()
        if value.numel() and size > LIMIT:
            unit = f"{extent:,} elements" if extent > LIMIT else f"{size:,} bytes"
            found.append(
                f"{name}: {unit} reach beyond 2^31 while {', '.join(narrow)} are i32: an offset"
                " computed in 32 bits wraps; cast one factor to tl.int64"
            )
    return found


def study_offsets(
    problem: Problem,
    axes: Mapping[str, Any],
    config: Mapping[str, Any],
    target: Target,
    folder: Path,
) -> list[str]:
    """:func:`wide_offsets` of one workload, from meta tensors: nothing is allocated or compiled."""
    from occupancy_probe.launch.trace import recording

    inputs = problem.make_inputs(axes, "meta", 0)
    with recording(target, folder) as noted:
        problem.launch(inputs, config)
    return wide_offsets(inputs, [spec.signature for spec, _ in noted])
