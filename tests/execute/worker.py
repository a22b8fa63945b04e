"""A child for the tests of supervision: each task's name says how it goes."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from occupancy_probe.execute.supervise import tell


def main() -> None:
    job = json.load(sys.stdin)
    Path(job["pids"], str(os.getpid())).write_text(" ".join(job["tasks"]))
    if job.get("never_starts"):
        print("no module named luck", file=sys.stderr)
        sys.exit(job["never_starts"] - 1)
    for task in job["tasks"]:
        tell(begin=task, arm=f"arm of {task}")
        if task.startswith("abort"):
            print("LLVM ERROR: out of ideas", file=sys.stderr, flush=True)
            os.abort()
        if task.startswith("hang"):
            time.sleep(3600)
        if task.startswith("exit"):
            sys.exit(7)
        if task.startswith("mute"):
            os.close(1)
            os._exit(5)
        if task.startswith("fail"):
            tell(failed=task, reason="not today")
            continue
        if task.startswith("noise"):
            print('{"begin": a kernel prints what it likes')
            print('{"size": 3}')
            print("[1, 2]")
            print("no newline", end="")
        tell(done=task, value=len(task))
    if job.get("lingers"):
        time.sleep(3600)


if __name__ == "__main__":
    main()
