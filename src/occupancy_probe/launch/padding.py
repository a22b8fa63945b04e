"""Cap the CTAs per SM of one kernel: the same binary, launched with more dynamic shared memory.

Triton fixes a kernel's dynamic shared memory when its handles are initialised. A copy of the
compiled kernel whose ``metadata.shared`` is raised before that is the same machine code with another
footprint, so residency is a dose and the code is unchanged.
"""

from __future__ import annotations

import copy
import ctypes
from typing import Any

from occupancy_probe.exc import DeviceError
from occupancy_probe.launch.force import unwrap
from occupancy_probe.launch.intercept import Interceptor, Run, install, remove


class Padding(Interceptor):
    """A context in which every launch of ``kernel`` takes ``shared_bytes`` of dynamic shared memory.

    Works for eager launches and under graph capture, through any stack of autotuners; other kernels
    are left alone. Keep the object as long as graphs captured inside: it holds the loaded modules.
    """

    def __init__(self, kernel: Any, shared_bytes: int) -> None:
        self.shared_bytes = shared_bytes
        self._function = unwrap(kernel)
        self._copies: dict[int, tuple[Any, Any]] = {}
        self.ctas = 0
        """CTAs of the largest grid that was launched."""

    def __enter__(self) -> Padding:
        install(self)
        return self

    def __exit__(self, *error: object) -> None:
        remove(self)

    def launch(self, kernel: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        """Launch through the padded copy in place of the cached kernel, which stays as it was."""
        if kernel is not self._function or kwargs.get("warmup"):
            return proceed(*args, **kwargs)
        compiled = proceed(*args, **{**kwargs, "warmup": True})
        cache = _kernel_cache(kernel)
        key = next(k for k, known in cache.items() if known is compiled)
        cache[key] = padded = self._padded(compiled)
        try:
            launched = proceed(*args, **kwargs)
        finally:
            cache[key] = compiled
        self._note(kernel, args, kwargs)
        return launched if launched is not None else padded

    def resident_ctas(self) -> int:
        """CTAs that the driver lets one SM hold, the least of all variants that were launched."""
        if not self._copies:
            raise DeviceError("nothing was launched inside this padding; launch the kernel first")
        return min(
            max_active_ctas(k.function, 32 * k.metadata.num_warps, k.metadata.shared)
            for _, k in self._copies.values()
        )

    def _padded(self, compiled: Any) -> Any:
        if id(compiled) not in self._copies:
            self._copies[id(compiled)] = (compiled, padded_copy(compiled, self.shared_bytes))
        return self._copies[id(compiled)][1]

    def _note(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        grid = kwargs["grid"]
        if callable(grid):
            grid = grid({**dict(zip(kernel.arg_names, args, strict=False)), **kwargs})
        ctas = 1
        for extent in grid:
            ctas *= int(extent)
        self.ctas = max(self.ctas, ctas)


def padded_copy(compiled: Any, shared_bytes: int) -> Any:
    """``compiled`` with ``shared_bytes`` of dynamic shared memory, its handles still to be made.

    Raises :class:`ValueError` if the kernel needs more than that.
    """
    from triton.compiler.compiler import make_backend

    needed = compiled.metadata.shared
    if shared_bytes < needed:
        raise ValueError(
            f"{compiled.name} needs {needed:,} B of shared memory, not {shared_bytes:,}"
        )
    padded = copy.copy(compiled)
    padded.metadata = compiled.metadata._replace(shared=shared_bytes)
    padded.packed_metadata = make_backend(padded.metadata.target).pack_metadata(padded.metadata)
    padded.module = padded.function = padded._run = None
    if hasattr(padded, "_module_pid"):  # from 3.8, which unloads a collected kernel's module
        padded._module_pid = None
    return padded


def max_active_ctas(function: int, threads: int, shared_bytes: int) -> int:
    """CTAs per SM by ``cuOccupancyMaxActiveBlocksPerMultiprocessor``.

    function: a CUfunction handle. shared_bytes: dynamic, per CTA. Raises :class:`DeviceError`.
    """
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise DeviceError(f"residency cannot be verified without the CUDA driver: {e}") from e
    found = ctypes.c_int(0)
    status = library.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(found),
        ctypes.c_void_p(function),
        ctypes.c_int(threads),
        ctypes.c_size_t(shared_bytes),
    )
    if status:
        raise DeviceError(f"the driver cannot say how many CTAs fit an SM (CUDA error {status})")
    return found.value


def _kernel_cache(function: Any) -> dict[Any, Any]:
    """The compiled kernels of ``function`` on the current device, as launches look them up."""
    from triton.runtime.driver import driver

    cache: dict[Any, Any] = function.device_caches[driver.active.get_current_device()][0]
    return cache
