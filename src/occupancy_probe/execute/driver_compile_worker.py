"""Child process: compile some specializations into Triton's cache (see :mod:`.driver_figures`)."""

from __future__ import annotations

from pathlib import Path

from occupancy_probe.execute.job import receive
from occupancy_probe.execute.supervise import tell
from occupancy_probe.gpu import target
from occupancy_probe.launch.driver import compile_only
from occupancy_probe.launch.loaded import ready_to_load
from occupancy_probe.records import Specialization


def main() -> None:
    """Each task is one specialization, by its key."""
    job = receive()
    folder, chosen = Path(job["folder"]), target(job["target"])
    for key in job["tasks"]:
        tell(begin=key)
        spec = Specialization.model_validate(job["specializations"][key])
        try:
            with compile_only(chosen):
                ready_to_load(folder, spec, chosen)
        except (Exception, SystemExit) as e:  # a result; the other kernels go on
            tell(failed=key, reason=f"{type(e).__name__}: {e}")
        else:
            tell(done=key)


if __name__ == "__main__":
    main()
