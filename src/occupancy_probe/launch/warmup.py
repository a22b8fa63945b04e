"""Launch a kernel once per key of its autotuner, before anything is captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from occupancy_probe.launch.launches import study_problem
from occupancy_probe.launch.tuned import autotuned, autotuners
from occupancy_probe.study import load_study


def warm_up(
    study: Path, calls: Sequence[Mapping[str, Any]], kernel: Any = None, device: str = "cuda"
) -> list[dict[str, Any]]:
    """Launch ``calls`` (workload axes) of the study's Problem through the autotuner on ``device``.

    kernel: the object that the program launches, so that its own autotuner is warm afterwards; by
    default the Problem's. Returns the config in use after each call.
    """
    loaded = load_study(study)
    problem = study_problem(loaded)
    tuner = autotuners(problem.kernel if kernel is None else kernel)[0]
    found = []
    for axes in calls:
        with autotuned(kernel):
            problem.launch(problem.make_inputs(axes, device, 0), loaded.file.baseline)
        found.append(tuner.best_config.all_kwargs())
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()
    return found
