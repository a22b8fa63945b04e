"""A kernel of known cost: every lane follows a chain of dependent gathers, ``steps`` long."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["steps"])
def chase(table, start, end, steps, LANES: tl.constexpr):
    """end[lane] = the place reached from start[lane] after ``steps`` gathers from ``table``."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    at = tl.load(start + lane)
    for _ in range(steps):
        at = tl.load(table + at)
    tl.store(end + lane, at)
