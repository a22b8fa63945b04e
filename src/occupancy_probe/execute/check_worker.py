"""Child process: check the arms it is given, one after another (see :mod:`.supervise`)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from occupancy_probe.execute.supervise import tell
from occupancy_probe.records import Check


def main() -> None:
    """Read the job from stdin, check each arm on each workload, tell each arm's checks."""
    job = json.load(sys.stdin)
    if os.environ.get("TRITON_INTERPRET") == "1":
        from occupancy_probe.launch.interpreter import mend_bf16

        mend_bf16()
    from occupancy_probe.execute.check import Prepared, check, prepare
    from occupancy_probe.launch.load import load_problem

    problem = load_problem(Path(job["folder"]), job["problem"], job["parameters"])
    ready: list[Prepared] = [
        prepare(problem, name, axes, job["device"], job["seed"])
        for name, axes in job["workloads"].items()
    ]
    for arm in job["tasks"]:
        tell(begin=arm)
        checks: list[Check] = []
        for prepared in ready:
            try:
                checks.append(check(problem, prepared, job["arms"][arm]))
            except Exception as e:  # any fault of a launch is this arm's result
                words = f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e) else ''}"
                checks.append(Check(workload=prepared.name, verdict="error", reason=words))
                if "CUDA" in words or "Accelerator" in words:
                    _give_up(arm, checks)
        tell(done=arm, checks=[c.model_dump(mode="json") for c in checks])


def _give_up(arm: str, checks: list[Check]) -> None:
    """A CUDA error leaves the context unusable: report and let a fresh process do the rest."""
    tell(done=arm, checks=[c.model_dump(mode="json") for c in checks])
    os._exit(3)


if __name__ == "__main__":
    main()
