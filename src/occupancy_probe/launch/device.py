"""The number of SMs that a launch should plan for, on a real device or a traced target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_planned: ContextVar[int | None] = ContextVar("planned_sm_count", default=None)


def sm_count(device: str) -> int:
    """SMs of ``device``: the hardware's on "cuda", the planned device's in a trace, else 1."""
    if (planned := _planned.get()) is not None:
        return planned
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_properties(device).multi_processor_count
    return 1


@contextmanager
def planned_sm_count(count: int) -> Iterator[None]:
    """Make :func:`sm_count` answer ``count``, whatever the device."""
    token = _planned.set(count)
    try:
        yield
    finally:
        _planned.reset(token)
