"""Real autotune runs on the GPU here, each the first call in a fresh process: which config wins, how often."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from occupancy_probe.exc import DeviceError
from occupancy_probe.execute.device import GpuTurn, run_versions
from occupancy_probe.execute.job import problem_job
from occupancy_probe.records import AutotuneRun, AutotuneRuns
from occupancy_probe.study import Study, Workload

WORKER = "occupancy_probe.execute.autotune_worker"
LIMIT_S = 600.0
"""For one run: importing, compiling every config and timing it."""

Progress = Callable[[int, int, str], None]


def autotune_runs(
    study: Study,
    workloads: Sequence[Workload],
    count: int,
    turn: GpuTurn,
    progress: Progress = lambda done, total, what: None,
) -> AutotuneRuns:
    """``count`` runs at each of ``workloads``, one process each, the GPU held throughout.

    The compile cache is shared, so the first run compiles and the others show what timing alone
    costs; Triton's disk cache of autotuning is switched off. A run that fails is kept with its reason.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    uuid = turn.enter()["uuid"]
    runs: list[AutotuneRun] = []
    try:
        for workload in workloads:
            for i in range(count):
                runs.append(_run(study, workload, i, {"CUDA_VISIBLE_DEVICES": uuid}))
                progress(len(runs), count * len(workloads), f"first call at {workload.name}")
    finally:
        turn.leave()
    return AutotuneRuns(
        study=study.name,
        depends={"launch": study.launch_digest},
        versions=run_versions(turn.device),
        device=turn.device.slug,
        device_name=turn.device.name,
        runs=runs,
        started_at=started,
    )


def chosen(study: Study, names: Sequence[str]) -> list[Workload]:
    """The measured workloads of these names; the first and the last without names."""
    if not names:
        return list({w.name: w for w in (study.workloads[0], study.workloads[-1])}.values())
    known = {w.name: w for w in study.workloads}
    if unknown := [n for n in names if n not in known]:
        raise DeviceError(f"no workload {', '.join(unknown)}; the study has {', '.join(known)}")
    return [known[n] for n in names]


def _run(study: Study, workload: Workload, seed: int, gpu: Mapping[str, str]) -> AutotuneRun:
    job: dict[str, Any] = {
        **problem_job(study),
        "axes": workload.axes,
        "config": study.file.baseline,
        "seed": seed,
    }
    environment = {**os.environ, **gpu, "TRITON_CACHE_AUTOTUNING": "0"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", WORKER],
            input=json.dumps(job) + "\n",
            capture_output=True,
            text=True,
            env=environment,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return _failed(workload, f"no answer in {LIMIT_S:g} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return _failed(workload, lines[-1][:300] if lines else f"exit status {done.returncode}")
    return AutotuneRun.model_validate(
        {"workload": workload.name, **json.loads(done.stdout.splitlines()[-1])}
    )


def _failed(workload: Workload, why: str) -> AutotuneRun:
    return AutotuneRun(workload=workload.name, winner={}, seconds=0.0, error=why)
