"""What Triton's interpreter needs before its results can be believed."""

from __future__ import annotations

from typing import Any

import numpy as np


def mend_bf16() -> None:
    """All of the below: what bf16 needs in the interpreter to come near what a GPU computes."""
    promote_bf16_dot()
    round_bf16_casts()
    promote_bf16_arithmetic()


def promote_bf16_dot() -> None:
    """Make ``tl.dot`` on bf16 operands compute in float32 instead of on raw 16-bit integers.

    The interpreter (3.6 to 3.9) stores bf16 as uint16 and multiplies those integers without an
    error. bf16 → float32 is exact, so promoting both operands of ``create_dot`` mends it.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    original = InterpreterBuilder.create_dot
    if getattr(original, "promotes_bf16", False):
        return

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        return original(self, _promoted(a), _promoted(b), d, *rest)

    create_dot.promotes_bf16 = True  # type: ignore[attr-defined]
    InterpreterBuilder.create_dot = create_dot


def round_bf16_casts() -> None:
    """Make float32 → bf16 round to nearest even, as GPUs do, instead of cutting bits off.

    Truncation doubles the error of every cast and biases it towards zero: gates made for a GPU fail.
    """
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    original = InterpreterBuilder.cast_impl
    if getattr(original, "rounds_bf16", False):
        return

    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        if source.dtype.scalar != tl.float32 or kind.scalar != tl.bfloat16:
            return original(self, source, kind)
        return TensorHandle(_round_to_bf16(np.asarray(source.data)), tl.bfloat16)

    cast_impl.rounds_bf16 = True  # type: ignore[attr-defined]
    InterpreterBuilder.cast_impl = cast_impl


def promote_bf16_arithmetic() -> None:
    """Make element-wise operations on bf16 compute in float32 and round, as GPUs do.

    The interpreter applies NumPy's to the raw integers: products, sums, comparisons and minima of
    bf16 come out as garbage, and a bf16 constant cannot be made at all.
    """
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    if getattr(InterpreterBuilder, "promotes_bf16", False):
        return

    def mended(original: Any, operands: int) -> Any:
        def operation(self: Any, *args: Any) -> Any:
            handles, rest = args[:operands], args[operands:]
            if all(h.dtype.scalar != tl.bfloat16 for h in handles):
                return original(self, *args)
            result = original(self, *map(_promoted, handles), *rest)
            if not np.issubdtype(result.data.dtype, np.floating):
                return result  # a comparison
            return TensorHandle(_round_to_bf16(result.data), tl.bfloat16)

        return operation

    def get_bf16(self: Any, value: float) -> Any:
        return TensorHandle(_round_to_bf16(np.array([value], np.float32)), tl.bfloat16)

    for name, operands in (("unary_op", 1), ("binary_op", 2), ("ternary_op", 3)):
        setattr(InterpreterBuilder, name, mended(getattr(InterpreterBuilder, name), operands))
    InterpreterBuilder.get_bf16 = get_bf16
    InterpreterBuilder.promotes_bf16 = True


def _promoted(handle: Any) -> Any:
    """A bf16 handle as float32, exactly; any other as it is."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if handle.dtype.scalar != tl.bfloat16:
        return handle
    bits = handle.data.astype(np.uint32) << 16
    return TensorHandle(bits.view(np.float32), tl.float32)


def _round_to_bf16(values: np.ndarray) -> np.ndarray:
    """Upper 16 bits of float32 ``values``, rounded to nearest even; NaN stays a quiet NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)
