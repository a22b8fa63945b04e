"""Child process: one process-level replicate, all its workloads (see :mod:`.supervise`)."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path

from occupancy_probe.execute.supervise import tell


def main() -> None:
    """Read the job from stdin; each task is one workload, told with its replicates."""
    job = json.load(sys.stdin)
    from occupancy_probe.execute.replicate import Timing, take_replicate, warm_up
    from occupancy_probe.launch.load import load_problem

    problem = load_problem(Path(job["folder"]), job["problem"], job["parameters"])
    timing = Timing(**job["timing"])
    warm_up(job["uuid"])
    for workload in job["tasks"]:
        tell(begin=workload)
        started = time.perf_counter()
        point = job["workloads"][workload]
        replicates = [
            take_replicate(
                problem,
                point["axes"],
                point["arms"],
                point["sets"],
                timing,
                (job["process"], allocation),
                seed=job["seed"] + 10_000 * job["process"] + 1_000_000 * allocation,
                uuid=job["uuid"],
                begin=partial(_tell_arm, workload),
            )
            for allocation in range(job["allocations"])
        ]
        tell(
            done=workload,
            replicates=[r.model_dump(mode="json") for r in replicates],
            seconds=time.perf_counter() - started,
        )


def _tell_arm(workload: str, arm: str) -> None:
    tell(begin=workload, arm=arm)


if __name__ == "__main__":
    main()
