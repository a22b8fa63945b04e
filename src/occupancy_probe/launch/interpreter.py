"""What Triton's interpreter needs before its results can be believed."""

from __future__ import annotations

from typing import Any

import numpy as np


def promote_bf16_dot() -> None:
    """Make ``tl.dot`` on bf16 operands compute in float32 instead of on raw 16-bit integers.

    The interpreter (3.6 to 3.9) stores bf16 as uint16 and multiplies those integers without an
    error. bf16 → float32 is exact, so promoting both operands of ``create_dot`` mends it.
    """
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    original = InterpreterBuilder.create_dot
    if getattr(original, "promotes_bf16", False):
        return

    def promote(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = handle.data.astype(np.uint32) << 16
        return TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        return original(self, promote(a), promote(b), d, *rest)

    create_dot.promotes_bf16 = True  # type: ignore[attr-defined]
    InterpreterBuilder.create_dot = create_dot
