"""Targets and devices, as data: read once from the YAML tables beside this module."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from occupancy_probe.exc import StudyError


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    source: str = Field(description="where the figures come from")


class Target(_Row):
    """A GPU architecture with its limits, such as ``sm_90`` or ``gfx942``.

    "SM" also means AMD's compute unit, "CTA" its work-group, "warp" its wave, "shared" its LDS.
    ``backend``, ``arch`` and ``warp_size`` are what Triton's ``GPUTarget`` takes.
    """

    backend: Literal["cuda", "hip"]
    arch: int | str
    warp_size: Literal[32, 64] = Field(description="threads")
    shared_per_sm_bytes: PositiveInt
    shared_per_block_bytes: PositiveInt = Field(description="what a CTA can opt in to")
    reserved_shared_bytes: int = Field(ge=0, description="taken by the driver in every CTA")
    shared_granularity_bytes: PositiveInt = Field(description="allocation unit of a CTA's share")
    max_warps_per_sm: PositiveInt
    max_ctas_per_sm: PositiveInt
    registers_per_sm: PositiveInt = Field(description="32-bit registers")
    max_registers_per_thread: PositiveInt
    max_threads_per_cta: PositiveInt
    tensor_memory_columns: int = Field(ge=0, description="columns per SM; 0 without the memory")
    device: str | None = Field(description="the device that a plan assumes, by its name")


class Device(_Row):
    """A GPU model with the figures that a plan needs; vendor's peak values, in decimal units."""

    target: str
    sm_count: PositiveInt = Field(description="SMs or CUs")
    bandwidth_gb_s: PositiveFloat = Field(description="peak, 10^9 bytes per second")
    l2_mb: PositiveFloat = Field(description="megabytes; per XCD on AMD")
    note: str = Field(default="", description="which figures are uncertain, and why")
    match: tuple[str, ...] = Field(description="regular expressions of the whole reported name")


RowT = TypeVar("RowT", bound=_Row)


def target(name: str) -> Target:
    """The target of this name, e.g. ``sm_120``; raises :class:`StudyError` if there is none."""
    return _find("target", name, targets())


def device(name: str) -> Device:
    """The device of this name, e.g. ``H200``; raises :class:`StudyError` if there is none."""
    return _find("device", name, devices())


@cache
def targets() -> dict[str, Target]:
    """Every known target by name, in the order of the table. Do not modify."""
    return {name: Target(name=name, **row) for name, row in _table("targets").items()}


@cache
def devices() -> dict[str, Device]:
    """Every known device by name, in the order of the table. Do not modify."""
    return {name: Device(name=name, **row) for name, row in _table("devices").items()}


def device_of_nvml_name(nvml_name: str) -> Device | None:
    """The device whose reported name this is, e.g. "NVIDIA H200"; None for a model not listed."""
    for found in devices().values():
        if any(re.fullmatch(pattern, nvml_name) for pattern in found.match):
            return found
    return None


def _table(kind: str) -> dict[str, dict[str, Any]]:
    path = Path(__file__).with_name(f"{kind}.yaml")
    table: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text("utf-8"))[kind]
    return table


def _find(kind: str, name: str, rows: dict[str, RowT]) -> RowT:
    if name in rows:
        return rows[name]
    raise StudyError(f"unknown {kind} {name!r}{_closest(name, rows)}; known: {', '.join(rows)}")


def _closest(name: str, known: Iterable[str]) -> str:
    by_folded = {entry.casefold(): entry for entry in known}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return f", did you mean {by_folded[found[0]]!r}?" if found else ""
