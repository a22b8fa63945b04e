"""Child process: load kernels onto the GPU that it sees and ask its driver (see :mod:`.driver_figures`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from occupancy_probe.execute.job import receive, take_turn
from occupancy_probe.execute.supervise import tell
from occupancy_probe.gpu import Target, target
from occupancy_probe.launch import loaded
from occupancy_probe.launch.watch import CompiledWhileHeld, nothing_compiles
from occupancy_probe.records import Specialization


def main() -> None:
    """Each task is one specialization, by its key, told with its figures.

    Before the GPU's turn: the CUDA context, and every kernel from Triton's cache.
    """
    job = receive()
    folder, chosen = Path(job["folder"]), target(job["target"])
    loaded.make_context()
    kernels: dict[str, Any] = {}
    for key in job["tasks"]:
        spec = Specialization.model_validate(job["specializations"][key])
        try:
            kernels[key] = loaded.ready_to_load(folder, spec, chosen)
        except Exception as e:  # told when it is its turn
            kernels[key] = e
    take_turn()
    with nothing_compiles(lambda: f"asking {chosen.name}'s driver"):
        for key in job["tasks"]:
            tell(begin=key)
            _tell_figures(key, kernels, chosen)


def _tell_figures(key: str, kernels: Mapping[str, Any], chosen: Target) -> None:
    kernel = kernels[key]
    try:
        if isinstance(kernel, Exception):
            raise kernel
        figures = loaded.ask_driver(kernel, chosen)
    except CompiledWhileHeld as e:
        tell(failed=key, reason=str(e), fatal=True)
        os._exit(4)
    except Exception as e:  # one kernel that cannot be loaded is a result
        tell(failed=key, reason=f"{type(e).__name__}: {e}")
    else:
        tell(done=key, figures=figures)


if __name__ == "__main__":
    main()
