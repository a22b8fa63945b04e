"""Distance of a result from its float64 reference, and whether it passes its gates."""

from __future__ import annotations

import math

import torch

from occupancy_probe.launch import Tolerance
from occupancy_probe.records import OutputError
from occupancy_probe.templating import plain


def output_error(
    result: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance, not_written: int
) -> OutputError:
    """Errors of ``result`` (any float dtype) against ``reference`` (float64, same shape).

    Equal infinities count as equal; a NaN, or an infinity where the reference is finite, makes
    ``gate_used`` infinite.
    """
    got, ref = result.to(torch.float64).flatten(), reference.to(torch.float64).flatten()
    finite = torch.isfinite(ref)
    mismatch = (~finite & (got != ref) & ~(torch.isnan(got) & torch.isnan(ref))) | (
        finite & ~torch.isfinite(got)
    )
    if bool(mismatch.any()):
        return OutputError(
            max_absolute=math.inf,
            gate_used=math.inf,
            one_minus_cosine=math.inf,
            relative_norm=math.inf,
            not_written=not_written,
        )
    got, ref = got[finite], ref[finite]
    distance = (got - ref).abs()
    gate = tolerance.absolute + tolerance.relative * ref.abs()
    used = torch.where(distance > 0, distance / gate, 0.0)  # 0 / 0 where an exact gate is met
    norm_ref, norm_got = float(ref.norm()), float(got.norm())
    cosine = 1.0 if norm_ref == norm_got == 0 else 0.0
    if norm_ref > 0 and norm_got > 0:
        cosine = float((got / norm_got) @ (ref / norm_ref))  # a product of norms may underflow
    return OutputError(
        max_absolute=float(distance.max()) if len(distance) else 0.0,
        gate_used=float(used.max()) if len(distance) else 0.0,
        one_minus_cosine=max(0.0, 1.0 - cosine) if len(ref) else 0.0,
        relative_norm=float((got - ref).norm()) / norm_ref if norm_ref > 0 else norm_got,
        not_written=not_written,
    )


def fault(error: OutputError, tolerance: Tolerance) -> str | None:
    """The first gate that ``error`` does not pass, in words; None when all hold."""
    if error.not_written:
        return f"{error.not_written} elements not written"
    if not error.gate_used <= 1:
        return f"error is {plain(error.gate_used)} × the elementwise gate (|d| up to {plain(error.max_absolute)})"
    if tolerance.cosine is not None and error.one_minus_cosine > tolerance.cosine:
        return f"1 - cosine {plain(error.one_minus_cosine)} > {plain(tolerance.cosine)}"
    if tolerance.norm is not None and error.relative_norm > tolerance.norm:
        return f"relative norm of the error {plain(error.relative_norm)} > {plain(tolerance.norm)}"
    return None
