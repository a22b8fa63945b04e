"""Answer for a GPU that is not here, and note who asked: lists and prune functions may ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from occupancy_probe.gpu import Target, device
from occupancy_probe.launch.driver import compile_only


@contextmanager
def posing_as(target: Target) -> Iterator[set[str]]:
    """Inside, torch.cuda and Triton's driver describe ``target`` and its plan device.

    Yields the set of questions that were asked, e.g. ``torch.cuda.get_device_capability``.
    """
    import torch
    from triton.runtime.driver import driver

    asked: set[str] = set()
    answers = _answers(target)
    before = {name: getattr(torch.cuda, name) for name in answers}
    with compile_only(target):
        driver._active.utils = SimpleNamespace(
            get_device_properties=_noting(
                "driver.utils.get_device_properties", _limits(target), asked
            )
        )
        original = driver._active.get_current_target
        driver._active.get_current_target = _noting("driver.get_current_target", original(), asked)
        for name, answer in answers.items():
            setattr(torch.cuda, name, _noting(f"torch.cuda.{name}", answer, asked))
        try:
            yield asked
        finally:
            for name, function in before.items():
                setattr(torch.cuda, name, function)


def _noting(name: str, answer: Any, asked: set[str]) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: Any) -> Any:
        asked.add(name)
        return answer

    return ask


def _answers(target: Target) -> dict[str, Any]:
    known = device(target.device) if target.device else None
    major, minor = divmod(target.arch, 10) if isinstance(target.arch, int) else (9, 0)
    name = str(known) if known else target.name
    properties = SimpleNamespace(
        name=name,
        major=major,
        minor=minor,
        multi_processor_count=known.sm_count if known else 128,
        warp_size=target.warp_size,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=target.shared_per_block_bytes,
        shared_memory_per_multiprocessor=target.shared_per_sm_bytes,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=target.max_warps_per_sm * target.warp_size,
        L2_cache_size=int(known.l2_mb * 10**6) if known else 0,
        gcnArchName=str(target.arch),
    )
    return {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": name,
        "get_device_capability": (major, minor),
        "get_device_properties": properties,
    }


def _limits(target: Target) -> dict[str, int]:
    known = device(target.device) if target.device else None
    return {
        "max_shared_mem": target.shared_per_block_bytes,
        "max_num_regs": 65536,
        "multiprocessor_count": known.sm_count if known else 128,
        "warpSize": target.warp_size,
        "mem_bus_width": 0,
        "sm_clock_rate": 0,
        "mem_clock_rate": 0,
    }
