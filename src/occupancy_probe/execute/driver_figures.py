"""What the driver of one GPU says of kernels: compiled before on all cores, loaded when it is their turn.

The process that loads sees that GPU only, so that its answers are that GPU's (see :class:`.device.GpuTurn`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from occupancy_probe.exc import DeviceError
from occupancy_probe.execute.device import GpuTurn
from occupancy_probe.execute.precompile import on_all_cores
from occupancy_probe.execute.supervise import supervise
from occupancy_probe.records import Specialization

LOAD_LIMIT_S = 60.0
"""For loading one kernel and asking."""

COMPILER = "occupancy_probe.execute.driver_compile_worker"
WORKER = "occupancy_probe.execute.driver_worker"


def driver_figures(
    folder: Path,
    specializations: Mapping[str, Specialization],
    turn: GpuTurn,
    compile_s: float,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    worker: str | None = None,
) -> dict[str, dict[str, int] | str]:
    """Figures of each specialization on the GPU of ``turn``, or why there are none, by the same keys.

    folder: of the kernel. compile_s: limit of one compile. For the figures see
    :func:`.launch.loaded.ask_driver`. DeviceError if something is compiled while the GPU is held, or
    if there are figures of no kernel at all.
    """
    job = {
        "folder": str(folder),
        "target": turn.device.target,
        "specializations": {k: s.model_dump(mode="json") for k, s in specializations.items()},
    }

    def compiled(done: int, total: int, key: str) -> None:
        progress(done, total, "kernels compiled")

    found: dict[str, dict[str, int] | str] = {}
    found.update(on_all_cores(COMPILER, job, list(specializations), compile_s, compiled))
    todo = [key for key in specializations if key not in found]
    for key, message in supervise(worker or WORKER, job, todo, LOAD_LIMIT_S, turn=turn):
        if message.get("fatal"):
            raise DeviceError(message["reason"])
        found[key] = message["reason"] if "failed" in message else message["figures"]
    reasons = [found[key] for key in todo or found]
    if reasons and all(isinstance(reason, str) for reason in reasons):
        raise DeviceError(
            f"{turn.device.name} {turn.device.uuid}: no kernel was answered ({reasons[0]}); look"
            " with nvidia-smi for free memory, compute mode Default and a driver that answers, and"
            " run it again"
        )
    return found
