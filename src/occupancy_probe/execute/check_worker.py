"""Child process: check the arms it is given, one after another (see :mod:`.supervise`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from occupancy_probe.execute.job import job_problem, receive, take_turn
from occupancy_probe.execute.supervise import tell
from occupancy_probe.launch import Problem
from occupancy_probe.records import Check

_now = "before the first arm"


def main() -> None:
    """Check each arm on each workload, tell each arm's checks."""
    job = receive()
    if os.environ.get("TRITON_INTERPRET") == "1":
        from occupancy_probe.launch.interpreter import mend_bf16

        mend_bf16()
    problem = job_problem(job)
    warnings = _warnings(job, problem)
    if job["device"] == "cuda":
        import torch

        from occupancy_probe.launch.watch import nothing_compiles

        torch.cuda.mem_get_info()  # makes the context before the GPU is held
        take_turn()
        with nothing_compiles(lambda: _now):
            _check_all(job, problem, warnings)
    else:
        _check_all(job, problem, warnings)


def _check_all(job: Mapping[str, Any], problem: Problem, warnings: dict[str, list[str]]) -> None:
    global _now
    from occupancy_probe.execute.check import Prepared, check, prepare

    def ready_for(name: str) -> Prepared:
        return prepare(
            problem,
            name,
            job["workloads"][name],
            job["device"],
            job["seed"],
            job["repeats"] if name == job["largest"] else 0,
            warnings.get(name),
        )

    ready = {name: ready_for(name) for name in job["workloads"]}
    for arm in job["tasks"]:
        tell(begin=arm)
        checks: list[Check] = []
        for name, prepared in ready.items():
            _now = f"{name}, arm {arm}"
            with _noted(arm, name, checks):
                checks.append(check(problem, prepared, job["arms"][arm]))
            if prepared.spoiled(problem):  # the next arm must not pay for it
                ready[name] = ready_for(name)
        tell(done=arm, checks=[c.model_dump(mode="json") for c in checks])


@contextmanager
def _noted(arm: str, workload: str, checks: list[Check]) -> Iterator[None]:
    """Any fault of a launch is this arm's result; a compile while the GPU is held is the run's."""
    from occupancy_probe.launch.watch import CompiledWhileHeld

    try:
        yield
    except CompiledWhileHeld as e:
        tell(failed=arm, reason=str(e), fatal=True)
        os._exit(4)
    except Exception as e:
        words = f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e) else ''}"
        checks.append(Check(workload=workload, verdict="error", reason=words))
        if "CUDA" in words or "Accelerator" in words:
            _give_up(arm, checks)


def _give_up(arm: str, checks: list[Check]) -> None:
    """A CUDA error leaves the context unusable: report and let a fresh process do the rest."""
    tell(done=arm, checks=[c.model_dump(mode="json") for c in checks])
    os._exit(3)


def _warnings(job: Mapping[str, Any], problem: Problem) -> dict[str, list[str]]:
    """Per workload; none where the launch cannot be traced, which the check itself will show."""
    if job["device"] != "cuda":
        return {}
    from occupancy_probe.execute.sizes import study_offsets
    from occupancy_probe.gpu import target

    found = {}
    config = next(iter(job["arms"].values()))
    for name, axes in job["workloads"].items():
        try:
            found[name] = study_offsets(
                problem, axes, config, target(job["target"]), Path(job["folder"])
            )
        except Exception:
            continue
    return found


if __name__ == "__main__":
    main()
