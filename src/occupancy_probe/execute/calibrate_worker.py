"""Child process: one replicate of every trial of a calibration (see :mod:`.calibrate`)."""

from __future__ import annotations

import random
import time
from typing import Any

from occupancy_probe.execute.rotation import Rotation
from occupancy_probe.execute.session import Session, session, tell_fault
from occupancy_probe.execute.supervise import tell


def main() -> None:
    """Each task is one trial, by number."""
    with session() as held:
        for task in held.job["tasks"]:
            tell(begin=task)
            try:
                found = held.replicates(task, held.job["point"], 1, first_allocation=int(task))
                classical = _classical(held, task) if task in held.job["classical"] else None
            except Exception as e:
                tell_fault(held, task, e)
            tell(done=task, classical=classical, **found)


def _classical(held: Session, task: str) -> dict[str, Any]:
    from occupancy_probe.execute import replicate as r
    from occupancy_probe.execute.classical import take_classical

    started, point = time.perf_counter(), held.job["point"]
    rotation = Rotation(**point["rotation"])
    rng = random.Random(f"classical {held.job['seed']} {task}")
    arms = {
        name: r.TimedArm(held.problem, point["arms"][name]["config"])
        for name in held.job["compared"]
    }
    instances = r.make_instances(held.problem, point["axes"], rotation.sets, int(task))
    found = take_classical(arms, instances, rotation, held.job["samples"], rng)
    return {**found, "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    main()
