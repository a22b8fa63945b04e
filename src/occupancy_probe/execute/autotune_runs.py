"""Real autotune runs on the GPU here, each the first call in a fresh process: which config wins, how often."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Condition
from typing import Any

from occupancy_probe.exc import DeviceError
from occupancy_probe.execute.device import GpuTurn, run_versions
from occupancy_probe.execute.job import problem_job
from occupancy_probe.execute.supervise import Turn, supervise
from occupancy_probe.gpu import PresentDevice
from occupancy_probe.records import AutotuneRun, AutotuneRuns
from occupancy_probe.study import Study, Workload

WORKER = "occupancy_probe.execute.autotune_worker"
LIMIT_S = 600.0
"""For one run: compiling every config and timing it."""
TOGETHER = 5
"""Processes that start at once. All import before the first of them tunes: a launch is timed from
Python, so a busy CPU would show in it."""

Progress = Callable[[int, int, str], None]


def autotune_runs(
    study: Study,
    workloads: Sequence[Workload],
    count: int,
    device: PresentDevice,
    progress: Progress = lambda done, total, what: None,
) -> AutotuneRuns:
    """``count`` runs at each of ``workloads``, one process each, one after another on the GPU.

    The compile cache is shared, so the first run compiles and the others show what timing alone
    costs; Triton's disk cache of autotuning is switched off. A run that fails is kept with its reason.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    wanted = [(w, seed) for w in workloads for seed in range(count)]
    runs: list[AutotuneRun] = []

    for first in range(0, len(wanted), TOGETHER):
        some = wanted[first : first + TOGETHER]
        group = _Group(len(some))

        def run(workload: Workload, seed: int, group: _Group = group) -> AutotuneRun:
            return _run(study, workload, seed, _TurnOf(group, GpuTurn(device)))

        with ThreadPoolExecutor(len(some)) as pool:
            for found in pool.map(run, *zip(*some, strict=True)):
                runs.append(found)
                progress(len(runs), len(wanted), f"first call at {found.workload}")
    return AutotuneRuns(
        study=study.name,
        depends={"launch": study.launch_digest},
        versions=run_versions(device),
        device=device.slug,
        device_name=device.name,
        device_uuid=device.uuid,
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


class _Group:
    """Processes that started together."""

    def __init__(self, size: int) -> None:
        self._starting = size
        self._changed = Condition()

    def arrived(self) -> None:
        """One is ready, or will never be."""
        with self._changed:
            self._starting -= 1
            self._changed.notify_all()

    def wait(self) -> None:
        """Until every one has arrived."""
        with self._changed:
            self._changed.wait_for(lambda: self._starting <= 0)


class _TurnOf:
    """The turn of one process of a group: it begins when all of them are ready."""

    def __init__(self, group: _Group, turn: Turn) -> None:
        self.environment: Mapping[str, str] = turn.environment
        self._group, self._turn = group, turn
        self._arrived = False

    def enter(self) -> dict[str, Any]:
        self._arrive()
        self._group.wait()
        return self._turn.enter()

    def leave(self) -> None:
        self._arrive()
        self._turn.leave()

    def _arrive(self) -> None:
        if not self._arrived:
            self._arrived = True
            self._group.arrived()


def _run(study: Study, workload: Workload, seed: int, turn: Turn) -> AutotuneRun:
    job: dict[str, Any] = {
        **problem_job(study),
        "axes": workload.axes,
        "config": study.file.baseline,
        "seed": seed,
    }
    own = {"TRITON_CACHE_AUTOTUNING": "0"}
    try:
        [(_, said)] = supervise(WORKER, job, [workload.name], LIMIT_S, own, turn)
    except OSError as e:  # no process to be had
        said = {"failed": workload.name, "reason": str(e)}
    finally:
        turn.leave()  # whatever happened: others of its group wait for it
    if "failed" in said:
        return AutotuneRun(workload=workload.name, winner={}, seconds=0.0, error=said["reason"])
    return AutotuneRun.model_validate({"workload": workload.name, **said["run"]})
