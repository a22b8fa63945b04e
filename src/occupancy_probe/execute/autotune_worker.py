"""Child process: one real first call of an autotuned kernel (see :mod:`.autotune_runs`)."""

from __future__ import annotations

import time

from occupancy_probe.execute.job import job_problem, receive, take_turn
from occupancy_probe.execute.supervise import tell


def main() -> None:
    """Launch once through the autotuner on a GPU; tell winner, timings in µs and seconds."""
    job = receive()
    import torch

    from occupancy_probe.launch.tuned import autotuned, autotuners

    problem = job_problem(job)
    tuner = autotuners(problem.kernel)[0]
    take_turn()
    [task] = job["tasks"]
    tell(begin=task)
    inputs = problem.make_inputs(job["axes"], "cuda", job["seed"])
    torch.cuda.synchronize()
    started = time.perf_counter()
    with autotuned():
        problem.launch(inputs, job["config"])
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    timings = getattr(tuner, "configs_timings", None) or {}
    run = {
        "winner": tuner.best_config.all_kwargs(),
        "timings_us": [
            (c.all_kwargs(), [1e3 * t for t in _three(ms)]) for c, ms in timings.items()
        ],
        "seconds": round(seconds, 3),
    }
    tell(done=task, run=run)


def _three(milliseconds: float | list[float]) -> list[float]:
    return milliseconds if isinstance(milliseconds, list) else [milliseconds]


if __name__ == "__main__":
    main()
