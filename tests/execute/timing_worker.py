"""A timing worker without a GPU: follows the protocol of the real one, its samples are simulated.

A config's ``num_warps`` is the arm's true time in µs; the environment variable ``FAULTS`` says what goes wrong
where, as JSON: arm → "crash", "hang", "compile".
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

from occupancy_probe.execute.supervise import tell


def main() -> None:
    job = json.loads(sys.stdin.readline())
    tell(ready=True)
    uuid = json.loads(sys.stdin.readline())["uuid"]
    faults = json.loads(os.environ.get("FAULTS", "{}"))
    if log := os.environ.get("TURNS"):
        with Path(log).open("a") as stream:
            stream.write(f"{uuid} enter {job['process']} {time.perf_counter()}\n")
    for workload in job["tasks"]:
        tell(begin=workload)
        point = job["workloads"][workload]
        for arm in point["arms"]:
            tell(begin=workload, arm=arm)
            fault = faults.get(arm)
            if fault == "crash":
                print("CUDA error: an illegal memory access was encountered", file=sys.stderr)
                sys.exit(1)
            if fault == "hang":
                time.sleep(3600)
            if fault == "compile":
                tell(failed=workload, reason=f"{workload}, arm {arm}: compiled", fatal=True)
                return
        time.sleep(float(os.environ.get("WORK_S", "0")))
        tell(done=workload, **taken(job, workload, point, uuid))
    if log:
        with Path(log).open("a") as stream:
            stream.write(f"{uuid} leave {job['process']} {time.perf_counter()}\n")


def taken(job: dict, workload: str, point: dict, uuid: str) -> dict:
    rng = random.Random(f"{job['seed']} {job['process']} {workload}")
    blocks = job["timing"]["blocks"]
    replicates = []
    for allocation in range(job["allocations"]):
        drift = [rng.uniform(1, 1.5) for _ in range(blocks)]
        arms = {
            name: [round(d * true_time(name, arm) * rng.gauss(1, 1e-3), 4) for d in drift]
            for name, arm in point["arms"].items()
        }
        replicates.append(
            {
                "process": job["process"],
                "allocation": allocation,
                "device_uuid": uuid,
                "arms": arms,
                "dropped": 1,
            }
        )
    capped = {n: a for n, a in point["arms"].items() if a.get("shared_bytes")}
    return {
        "replicates": replicates,
        "seconds": 0.5,
        "busy_s": 0.4,
        "arm_seconds": dict.fromkeys(point["arms"], 0.01),
        "driver_ctas": {n: int(n.rsplit("@")[1]) for n in capped},
        "grids": dict.fromkeys(capped, 1000),
    }


def true_time(name: str, arm: dict) -> float:
    """µs; a dose ``arm@n`` takes 1/n of the part that latency is."""
    base = float(arm["config"]["num_warps"])
    return base * (0.5 + 0.5 / int(name.rsplit("@")[1])) if "@" in name else base


if __name__ == "__main__":
    main()
