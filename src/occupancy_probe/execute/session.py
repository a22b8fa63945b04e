"""In a worker that times: compile, take the GPU's turn, and give every workload its replicates."""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn

from occupancy_probe.execute.job import job_problem, receive, take_turn
from occupancy_probe.execute.rotation import Rotation
from occupancy_probe.execute.supervise import tell
from occupancy_probe.launch import Problem
from occupancy_probe.launch.watch import CompiledWhileHeld, load_launches, nothing_compiles


class Session:
    """One process with the GPU: what all its replicates share."""

    def __init__(self, job: Mapping[str, Any], problem: Problem, uuid: str) -> None:
        from occupancy_probe.execute.replicate import Timing

        self.job, self.problem, self.uuid = job, problem, uuid
        self.timing = Timing(**job["timing"])
        self.warm_s = 0.0
        """GPU seconds of the warm-up."""
        self.now = "before the first arm"
        """What is being done, for messages."""
        self.arm = ""
        """The arm that is being launched for the first time; empty while all run."""

    def replicates(
        self,
        workload: str,
        point: Mapping[str, Any],
        allocations: int,
        first_allocation: int = 0,
    ) -> dict[str, Any]:
        """``allocations`` replicates of one workload, as a message.

        point: ``axes``, ``arms`` (name → config and perhaps ``shared_bytes``), ``rotation``.
        """
        from occupancy_probe.execute import replicate as r
        from occupancy_probe.execute.blocks import Spent, Sweep

        started, spent = time.perf_counter(), Spent()
        seed = self.job["seed"] + 10_000 * self.job["process"]
        rng = random.Random(f"{seed} {workload} {first_allocation}")
        rotation = Rotation(**point["rotation"])
        arms = {
            name: r.TimedArm(self.problem, arm["config"], arm.get("shared_bytes"))
            for name, arm in point["arms"].items()
        }
        instances = r.make_instances(self.problem, point["axes"], rotation.sets, seed)
        sweep = Sweep(rotation.swept_bytes)
        taken = []
        for allocation in range(first_allocation, first_allocation + allocations):
            instances = r.fresh(instances, rng)
            taken.append(
                r.take_replicate(
                    arms,
                    instances,
                    rotation,
                    sweep,
                    self.timing,
                    (self.job["process"], allocation),
                    rng.randrange(1 << 30),
                    self.uuid,
                    spent,
                    partial(self._begin, workload),
                )
            )
        capped = {n: a.padding for n, a in arms.items() if a.padding}
        return {
            "replicates": [t.model_dump(mode="json") for t in taken],
            "seconds": time.perf_counter() - started,
            "busy_s": spent.busy_s,
            "arm_seconds": spent.arms,
            "driver_ctas": {n: p.resident_ctas() for n, p in capped.items()},
            "grids": {n: p.ctas for n, p in capped.items()},
        }

    def _begin(self, workload: str, arm: str) -> None:
        self.now, self.arm = (f"{workload}, arm {arm}" if arm else workload), arm
        tell(begin=workload, arm=arm)


@contextmanager
def session() -> Iterator[Session]:
    """Everything up to a warm GPU; inside, nothing may be compiled.

    Before the GPU's turn: imports, the CUDA context, and the binaries of all arms from Triton's
    cache, none of which runs anything there.
    """
    job = receive()
    import torch

    from occupancy_probe.execute.blocks import Spent
    from occupancy_probe.execute.replicate import warm_up
    from occupancy_probe.gpu import session as nvml

    problem = job_problem(job)
    torch.cuda.mem_get_info()  # makes the context
    _load_binaries(problem, job)
    gc.collect()
    gc.freeze()  # so that collecting before every capture takes no time of the GPU
    uuid = take_turn()
    found = Session(job, problem, uuid)
    with nvml(), nothing_compiles(lambda: found.now):
        spent = Spent()
        warm_up(uuid, spent)
        found.warm_s = spent.busy_s
        yield found


def tell_fault(held: Session, task: str, error: Exception) -> NoReturn:
    """Say whose fault it is and end at once: after a CUDA error the process is of no more use."""
    said = str(error).strip().splitlines()
    fatal = isinstance(error, CompiledWhileHeld)
    words = said[0] if fatal and said else f"{type(error).__name__}: {said[0] if said else ''}"
    tell(failed=task, arm=held.arm, reason=words, fatal=fatal)
    os._exit(3)


def _load_binaries(problem: Problem, job: Mapping[str, Any]) -> None:
    """What cannot be loaded is the fault of its arm and shows when that is launched."""
    from occupancy_probe.launch import sm_count

    points = job["workloads"].values() if "workloads" in job else [job["point"]]
    for point in points:
        configs = {repr(a["config"]): a["config"] for a in point["arms"].values()}
        for config in configs.values():
            with suppress(Exception):
                load_launches(problem, point["axes"], config, sm_count("cuda"))
