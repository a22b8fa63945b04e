"""The real worker that asks a driver, but for the driver: it notes what was done when, and where.

``ANSWERS`` names the file of notes; a kernel of 8 warps cannot be loaded, and under ``LATE_COMPILE`` one
of 1 warp is compiled once more while the GPU is held. Under ``NO_CONTEXT`` the GPU gives none.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from occupancy_probe.execute import driver_worker
from occupancy_probe.launch import loaded


def note(what: str) -> None:
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES")
    with Path(os.environ["ANSWERS"]).open("a") as stream:
        stream.write(f"{what} {gpu} {time.time()}\n")


def make_context():
    if os.environ.get("NO_CONTEXT"):
        raise RuntimeError("CUDA error: out of memory")
    note("context")


def ask_driver(kernel, target):
    note("ask")
    warps = kernel.metadata.num_warps
    if warps == 8:
        raise RuntimeError("out of resource")
    if os.environ.get("LATE_COMPILE") and warps == 1:
        import triton
        from triton import knobs

        with knobs.compilation.scope():
            knobs.compilation.always_compile = True
            triton.compile(kernel.src, target=kernel.metadata.target, options={"num_warps": 1})
    return {"registers": 32, "shared_bytes": kernel.metadata.shared, "ctas_per_sm": 2}


if __name__ == "__main__":
    loaded.make_context = make_context
    loaded.ask_driver = ask_driver
    driver_worker.main()
