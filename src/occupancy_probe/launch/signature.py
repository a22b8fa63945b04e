"""The Problem of a study that has no ``launch``: its signature with sizes, for the trace alone."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from occupancy_probe.exc import ProblemError
from occupancy_probe.launch.force import forced
from occupancy_probe.launch.problem import Inputs, Problem, Traffic
from occupancy_probe.launch.unwrap import layers, unwrap
from occupancy_probe.study import signature as sizes
from occupancy_probe.study.schema import Signature

if TYPE_CHECKING:
    import torch

FEASIBILITY_ONLY = "no launch: feasibility only"
"""What the stages that would run the kernel say of such a study."""

_NAMES = {
    "i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2",
    "fp8e4b8": "float8_e4m3fnuz", "fp8e5b16": "float8_e5m2fnuz",
}  # fmt: skip
"""Triton's short names of element types, and torch's."""


class SignatureProblem(Problem):
    """Launches ``kernel`` with tensors of the signature's sizes on torch's meta device."""

    outputs = ()
    tolerance: ClassVar = {}

    def __init__(self, signature: Signature, kernel: Any, baseline: Mapping[str, Any]) -> None:
        self.kernel = kernel  # type: ignore[misc]
        self._signature = signature
        _check_names(signature, kernel, baseline)

    def make_inputs(self, workload: Mapping[str, Any], device: str, seed: int) -> Inputs:
        if device != "meta":
            raise ProblemError(FEASIBILITY_ONLY)
        return dict(workload)

    def launch(self, inputs: Inputs, config: Mapping[str, Any]) -> None:
        names = {**inputs, **config}
        given = sizes.arguments(self._signature, names)
        passed = {k: _made(v) for k, v in given.items() if k not in config}
        forced(self.kernel, config)[sizes.grid(self._signature, names)](**passed)

    def reference(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        raise ProblemError(FEASIBILITY_ONLY)

    def traffic(self, workload: Mapping[str, Any]) -> Traffic:
        return Traffic(*sizes.work(self._signature, workload))


def _made(value: Any) -> Any:
    """A tensor, descriptor, dtype or plain value as the kernel is to be given it."""
    if isinstance(value, tuple):
        return tuple(_made(v) for v in value)
    if not isinstance(value, sizes.Sized):
        return value
    if value.shape is None:
        return _triton_dtype(value.dtype)
    import torch

    strides = value.strides or _contiguous(value.shape)
    tensor = torch.empty_strided(
        value.shape, strides, dtype=_torch_dtype(value.dtype), device="meta"
    )
    if value.block_shape is not None:
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor(tensor, list(value.shape), list(strides), list(value.block_shape))
    return _Aligned(tensor, value.align) if value.align < 16 else tensor


class _Aligned:
    """A tensor for Triton's binder whose address is a multiple of ``align`` and of no more."""

    def __init__(self, tensor: torch.Tensor, align: int) -> None:
        self.dtype, self.shape, self._align = tensor.dtype, tensor.shape, align

    def data_ptr(self) -> int:
        return self._align


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(size, 1))
    return tuple(strides[: len(shape)])


def _torch_dtype(name: str) -> torch.dtype:
    import torch

    found = getattr(torch, _NAMES.get(name, name), None)
    if not isinstance(found, torch.dtype):
        raise ProblemError(f"signature: no element type {name!r}; known: {', '.join(_NAMES)}")
    return found


def _triton_dtype(name: str) -> Any:
    import triton.language as tl

    known = tl.dtype.SINT_TYPES + tl.dtype.UINT_TYPES + tl.dtype.FP_TYPES
    full = {"i": "int", "u": "uint"}
    short = full.get(name[0], name[0]) + name[1:] if name[1:].isdigit() else name
    for candidate in (short, name):
        if candidate in known:
            return tl.dtype(candidate)
    raise ProblemError(f"signature: no element type {name!r}; known: {', '.join(_NAMES)}")


def _check_names(signature: Signature, kernel: Any, baseline: Mapping[str, Any]) -> None:
    """Every argument of the kernel is given by signature, config, heuristics or default; no others."""
    function = unwrap(kernel)
    parameters = inspect.signature(function.fn).parameters
    for name in signature.arguments:
        if name not in parameters:
            near = difflib.get_close_matches(name, parameters, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(parameters)}"
            raise ProblemError(f"signature.arguments.{name}: no argument of the kernel; {hint}")
    guessed = {n for layer in layers(kernel) for n in getattr(layer, "values", None) or ()}
    missing = [
        n
        for n, p in parameters.items()
        if p.default is p.empty and n not in {*signature.arguments, *baseline, *guessed}
    ]
    if missing:
        raise ProblemError(
            f"signature.arguments: {', '.join(missing)} missing; the kernel takes"
            f" {', '.join(parameters)}"
        )
