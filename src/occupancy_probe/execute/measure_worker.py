"""Child process: one process-level replicate, all its workloads (see :mod:`.supervise`)."""

from __future__ import annotations

from occupancy_probe.execute.session import session, tell_fault
from occupancy_probe.execute.supervise import tell


def main() -> None:
    """Each task is one workload, told with its replicates."""
    with session() as held:
        warm_s = held.warm_s
        for workload in held.job["tasks"]:
            tell(begin=workload)
            point = held.job["workloads"][workload]
            try:
                found = held.replicates(workload, point, held.job["allocations"])
            except Exception as e:
                tell_fault(held, workload, e)
            found["busy_s"] += warm_s
            warm_s = 0.0
            tell(done=workload, **found)


if __name__ == "__main__":
    main()
