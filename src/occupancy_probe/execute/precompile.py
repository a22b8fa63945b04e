"""Compile what a stage will launch before it takes the GPU: in child processes, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from occupancy_probe.execute.device import sm_count
from occupancy_probe.execute.supervise import supervise
from occupancy_probe.gpu import PresentDevice


def precompile(
    problem: Mapping[str, Any],
    workloads: Mapping[str, Mapping[str, Any]],
    configs: Mapping[str, Mapping[str, Any]],
    device: PresentDevice,
    limit_s: float,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    workers: int | None = None,
) -> dict[str, str]:
    """Fill Triton's cache for every config × workload on ``device``.

    problem: see :func:`.job.problem_job`. workloads: name → axes. configs: by arm. limit_s: for one
    arm. Returns why an arm could not be compiled, by arm; it is for the stage itself to judge that.
    """
    job = {
        **problem,
        "workloads": dict(workloads),
        "configs": dict(configs),
        "target": device.target,
        "sm_count": sm_count(device),
    }
    module = "occupancy_probe.execute.precompile_worker"
    return on_all_cores(module, job, list(configs), limit_s, progress, workers)


def on_all_cores(
    module: str,
    job: Mapping[str, Any],
    names: list[str],
    limit_s: float,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    workers: int | None = None,
) -> dict[str, str]:
    """Let children ``module`` compile ``names``, each its share; why some could not be, by name.

    job: for each child; see :func:`.supervise.supervise`. limit_s: for one name.
    """
    count = max(1, min(workers or os.cpu_count() or 1, len(names)))
    failed: dict[str, str] = {}
    done = [0]

    def work(share: list[str]) -> None:
        for name, message in supervise(module, job, share, limit_s):
            if "failed" in message:
                failed[name] = message["reason"]
            done[0] += 1
            progress(done[0], len(names), f"compiled {name}")

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, [names[i::count] for i in range(count)]))
    return failed
