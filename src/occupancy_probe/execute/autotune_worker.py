"""Child process: one real first call of an autotuned kernel (see :mod:`.autotune_runs`)."""

from __future__ import annotations

import json
import time

from occupancy_probe.execute.job import job_problem, receive


def main() -> None:
    """Launch once through the autotuner on a GPU; print winner, timings in µs and seconds as JSON."""
    job = receive()
    import torch

    from occupancy_probe.launch.tuned import autotuned, autotuners

    problem = job_problem(job)
    tuner = autotuners(problem.kernel)[0]
    inputs = problem.make_inputs(job["axes"], "cuda", job["seed"])
    torch.cuda.synchronize()
    started = time.perf_counter()
    with autotuned():
        problem.launch(inputs, job["config"])
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    timings = getattr(tuner, "configs_timings", None) or {}
    print(
        json.dumps(
            {
                "winner": tuner.best_config.all_kwargs(),
                "timings_us": [
                    (c.all_kwargs(), [1e3 * t for t in _three(ms)]) for c, ms in timings.items()
                ],
                "seconds": round(seconds, 3),
            }
        )
    )


def _three(milliseconds: float | list[float]) -> list[float]:
    return milliseconds if isinstance(milliseconds, list) else [milliseconds]


if __name__ == "__main__":
    main()
