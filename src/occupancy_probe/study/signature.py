"""A signature at one workload and config: expressions become sizes and values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from occupancy_probe.exc import StudyError
from occupancy_probe.study.expressions import evaluate
from occupancy_probe.study.schema import Argument, Signature, Text

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cdiv": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
    "next_power_of_2": lambda n: 1 << (n - 1).bit_length(),
}


@dataclass(frozen=True)
class Sized:
    """A tensor argument with numbers: elements, not bytes. Without a shape it is the dtype alone.

    block_shape: makes it a tensor descriptor. align: bytes that the address is a multiple of.
    """

    dtype: str
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    block_shape: tuple[int, ...] | None
    align: int


def arguments(signature: Signature, names: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument's value or :class:`Sized`; ``names`` are workload axes and config."""
    return {
        name: _value(value, names, f"signature.arguments.{name}")
        for name, value in signature.arguments.items()
    }


def grid(signature: Signature, names: Mapping[str, Any]) -> tuple[int, ...]:
    """CTAs per dimension; StudyError where that is no positive whole number."""
    found = _sizes(signature.grid, names, "signature.grid")
    if min(found) < 1:
        raise StudyError(f"signature.grid: {list(found)} has a dimension without CTAs; correct it")
    return found


def work(signature: Signature, names: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes and FLOP of one launch, 0 where the signature does not say."""
    return (
        int(_scalar(signature.bytes, names, "signature.bytes")),
        int(_scalar(signature.flop, names, "signature.flop")),
    )


def _value(value: Any, names: Mapping[str, Any], place: str) -> Any:
    if isinstance(value, Argument):
        return Sized(
            value.dtype,
            None if value.shape is None else _sizes(value.shape, names, f"{place}.shape"),
            None if value.strides is None else _sizes(value.strides, names, f"{place}.strides"),
            None
            if value.block_shape is None
            else _sizes(value.block_shape, names, f"{place}.block_shape"),
            value.align,
        )
    if isinstance(value, Text):
        return value.text
    if isinstance(value, list):
        return tuple(_value(v, names, f"{place}[{i}]") for i, v in enumerate(value))
    return _scalar(value, names, place)


def _sizes(values: list[Any], names: Mapping[str, Any], place: str) -> tuple[int, ...]:
    found = [_scalar(v, names, place) for v in values]
    if wrong := [v for v in found if not isinstance(v, int) or v < 0]:
        raise StudyError(f"{place}: {wrong[0]!r} is no number of elements; use // or cdiv(a, b)")
    return tuple(found)


def _scalar(value: Any, names: Mapping[str, Any], place: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return evaluate(value, names, _FUNCTIONS)
    except StudyError as e:
        raise StudyError(f"{place}: {e}; for a string write {{text: {value}}}") from e
