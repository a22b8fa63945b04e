"""A Triton driver that answers for a GPU that is not here, so that Triton's own binder specializes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from occupancy_probe.gpu import Target

_device_numbers: dict[str, int] = {}


def gpu_target(target: Target) -> GPUTarget:
    """Triton's name for ``target``."""
    return GPUTarget(target.backend, target.arch, target.warp_size)


class CompileOnlyDriver:
    """Stands for one target.

    Each target has a device number of its own: JITFunction keeps its caches by device number, and
    one number for two targets would hand back the first target's binary.
    """

    def __init__(self, target: Target) -> None:
        self._target = gpu_target(target)
        self._device = _device_numbers.setdefault(target.name, len(_device_numbers))

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return self._device

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("meta")

    def get_benchmarker(self) -> Any:
        raise RuntimeError(
            "a compile-only driver runs nothing; force a config instead of autotuning"
        )


@contextmanager
def compile_only(target: Target) -> Iterator[None]:
    """Make ``target`` the active device of this process."""
    before = driver._active
    driver.set_active(CompileOnlyDriver(target))  # type: ignore[arg-type]
    try:
        yield
    finally:
        driver._active = before
