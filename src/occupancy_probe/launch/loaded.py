"""Load a traced kernel onto the GPU that is here and ask the driver what it takes; nothing is launched."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from occupancy_probe.exc import DeviceError
from occupancy_probe.gpu import Target
from occupancy_probe.launch.compile import compiled_kernel
from occupancy_probe.launch.padding import max_active_ctas
from occupancy_probe.launch.watch import make_launcher
from occupancy_probe.records import Specialization

_STATIC_SHARED, _LOCAL, _REGISTERS = 1, 3, 4
"""CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, _LOCAL_SIZE_BYTES and _NUM_REGS of cuda.h."""


def make_context() -> None:
    """The CUDA context that modules are loaded into, and Triton's own driver module."""
    import torch
    from triton.runtime.driver import driver

    torch.empty(1, device="cuda")
    _ = driver.active.utils  # compiled by a C compiler where Triton's cache has none


def ready_to_load(folder: Path, spec: Specialization, target: Target) -> Any:
    """Triton's compiled kernel of ``spec`` with all that loading it needs; nothing is loaded yet.

    Raises what Triton raises where it cannot be compiled.
    """
    kernel = compiled_kernel(folder, spec, target)
    make_launcher(kernel)
    return kernel


def ask_driver(kernel: Any, target: Target) -> dict[str, int]:
    """What the driver says of :func:`ready_to_load`'s kernel on the current device, a ``target``.

    registers: per thread. shared_bytes: dynamic, per CTA. ctas_per_sm: by
    ``cuOccupancyMaxActiveBlocksPerMultiprocessor``. static_shared_bytes and local_bytes (stack frame
    and spills, per thread) are the driver's own, in its own granules. Raises :class:`DeviceError`,
    or what Triton raises where a kernel cannot be loaded.
    """
    kernel._init_handles()
    threads, shared = kernel.metadata.num_warps * target.warp_size, kernel.metadata.shared
    return {
        "registers": _attribute(kernel.function, _REGISTERS),
        "shared_bytes": shared,
        "ctas_per_sm": max_active_ctas(kernel.function, threads, shared),
        "static_shared_bytes": _attribute(kernel.function, _STATIC_SHARED),
        "local_bytes": _attribute(kernel.function, _LOCAL),
    }


def _attribute(function: int, which: int) -> int:
    found = ctypes.c_int(0)
    library = ctypes.CDLL("libcuda.so.1")
    status = library.cuFuncGetAttribute(
        ctypes.byref(found), ctypes.c_int(which), ctypes.c_void_p(function)
    )
    if status:
        raise DeviceError(
            f"the driver does not say function attribute {which} (CUDA error {status})"
        )
    return found.value
