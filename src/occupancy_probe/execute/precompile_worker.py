"""Child process: compile the launches of some arms into Triton's cache (see :mod:`.precompile`)."""

from __future__ import annotations

from occupancy_probe.execute.job import job_problem, receive
from occupancy_probe.execute.supervise import tell
from occupancy_probe.gpu import target
from occupancy_probe.launch.watch import compile_launches


def main() -> None:
    """Each task is one arm."""
    job = receive()
    problem = job_problem(job)
    for arm in job["tasks"]:
        tell(begin=arm)
        faults = []
        for axes in job["workloads"].values():
            try:
                compile_launches(
                    problem, axes, job["configs"][arm], target(job["target"]), job["sm_count"]
                )
            except Exception as e:  # any fault is this arm's; what fits elsewhere goes on
                faults.append(f"{type(e).__name__}: {e}".splitlines()[0])
        if faults:
            tell(failed=arm, reason=faults[0])
        else:
            tell(done=arm)


if __name__ == "__main__":
    main()
