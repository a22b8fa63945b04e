"""Load a traced kernel onto the GPU that is here and ask the driver what it takes; nothing is launched."""

from __future__ import annotations

import ctypes
from pathlib import Path

from occupancy_probe.exc import DeviceError
from occupancy_probe.gpu import Target
from occupancy_probe.launch.compile import compiled_kernel
from occupancy_probe.launch.padding import max_active_ctas
from occupancy_probe.records import Specialization

_STATIC_SHARED, _LOCAL, _REGISTERS = 1, 3, 4
"""CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, _LOCAL_SIZE_BYTES and _NUM_REGS of cuda.h."""


def ask_driver(folder: Path, spec: Specialization, target: Target) -> dict[str, int]:
    """What the driver says of ``spec`` on the current device, whose target must be ``target``.

    registers: per thread. shared_bytes: dynamic, per CTA. ctas_per_sm: by
    ``cuOccupancyMaxActiveBlocksPerMultiprocessor``. static_shared_bytes and local_bytes (stack frame
    and spills, per thread) are the driver's own, in its own granules. Raises :class:`DeviceError`,
    or what Triton raises where a kernel cannot be loaded.
    """
    import torch

    torch.zeros(1, device="cuda")  # the context that modules are loaded into
    kernel = compiled_kernel(folder, spec, target)
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
