"""Calibration: 100 trials of the replicate protocol on a kernel whose true ratios are known.

Every process gives each trial one replicate, with an allocation and captures of its own, so a trial
has as many process replicates as there are processes, at the cost of that many starts in all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from occupancy_probe.exc import DeviceError
from occupancy_probe.execute.device import GpuTurn, sm_count
from occupancy_probe.execute.precompile import precompile
from occupancy_probe.execute.supervise import supervise
from occupancy_probe.gpu import PresentDevice

WORKER = "occupancy_probe.execute.calibrate_worker"
STEPS = 200
ENTRIES = 1 << 26
"""256 MB of int32: more than four times the L2 cache of the GPUs in the table but the largest."""
PROGRAMS_PER_SM = 2
LAUNCHES = 2
SAMPLES = 64
"""Of each arm by the classical methods."""
TRIAL_LIMIT_S = 120.0


def arm_configs(names: tuple[str, str, str, str, str]) -> dict[str, dict[str, int]]:
    """The kernel, its two twins, and the kernel with 1 % and 0.5 % more steps."""
    steps = (STEPS, STEPS, STEPS, STEPS * 101 // 100, STEPS * 201 // 200)
    return {n: {"steps": s, "num_warps": 1} for n, s in zip(names, steps, strict=True)}


def calibrate(
    kernel: Path,
    names: tuple[str, str, str, str, str],
    turn: GpuTurn,
    trials: int,
    processes: int,
    blocks: int,
    seed: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    worker: str | None = None,
) -> list[dict[str, Any]]:
    """Raw samples per trial: ``replicates``, ``interleaved``, ``sequential``, ``seconds``.

    kernel: folder of the calibration kernel. names: of the kernel, the twin for the noise floor, the
    twin that is compared, the one with 1 % and the one with 0.5 % more work.
    """
    job, configs = calibration_job(kernel, names, turn.device, blocks, seed), arm_configs(names)
    axes = job["point"]["axes"]
    precompile(job, {"chase": axes}, {n: configs[n] for n in names[:1]}, turn.device, 300)
    found: list[dict[str, Any]] = [{"replicates": [], "seconds": 0.0} for _ in range(trials)]
    tasks = [str(i) for i in range(trials)]
    for process in range(processes):
        job |= {"process": process, "classical": tasks[process::processes]}
        told = supervise(worker or WORKER, job, tasks, TRIAL_LIMIT_S, turn=turn)
        for done, (task, message) in enumerate(told, 1):
            if "failed" in message:
                raise DeviceError(f"calibration failed at trial {task}: {message['reason']}")
            trial = found[int(task)]
            trial["replicates"] += message["replicates"]
            trial["seconds"] += message["seconds"]
            if classical := message["classical"]:
                trial |= {m: classical[m] for m in ("interleaved", "sequential")}
            total = processes * trials
            progress(process * trials + done, total, f"process {process + 1} of {processes}")
    return found


def calibration_job(
    kernel: Path, names: Sequence[str], device: PresentDevice, blocks: int, seed: int
) -> dict[str, Any]:
    """What every process of a calibration is told."""
    configs = arm_configs((names[0], names[1], names[2], names[3], names[4]))
    return {
        "folder": str(kernel),
        "problem": "Chase",
        "parameters": {},
        "seed": seed,
        "samples": SAMPLES,
        "compared": [names[0], names[2]],
        "timing": {"blocks": blocks, "regime": "cold", "clock_tolerance": 0.03},
        "point": {
            "axes": {"entries": ENTRIES, "programs": PROGRAMS_PER_SM * sm_count(device)},
            "arms": {n: {"config": c} for n, c in configs.items()},
            "rotation": {"sets": LAUNCHES, "launches": LAUNCHES, "swept_bytes": 0},
        },
    }
