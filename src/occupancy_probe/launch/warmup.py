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


def install_timings(
    kernel: Any, key: Sequence[Any], timings_ms: Sequence[tuple[Mapping[str, Any], float]]
) -> None:
    """Write ``timings_ms`` into Triton's disk cache of autotuning, for this kernel, key and GPU.

    Triton's own code makes the file and its place. With ``TRITON_CACHE_AUTOTUNING=1``, or
    ``cache_results=True``, the next process takes the least of them instead of timing. The cache is
    keyed by architecture: an H100 and an H200 share it. A config that is not in the kernel's list is
    an error; one of the list that is not timed counts as infinitely slow.
    """
    tuner = autotuners(kernel)[0]
    known = {_identity(c.all_kwargs()): c for c in tuner.configs}
    given = {_identity(config): milliseconds for config, milliseconds in timings_ms}
    if unknown := given.keys() - known.keys():
        raise KeyError(f"not in the autotuner's list: {', '.join(map(str, sorted(unknown)))}")

    def write_instead_of_timing() -> None:
        tuner.configs_timings = {c: [given.get(i, float("inf"))] * 3 for i, c in known.items()}

    tuner.check_disk_cache(tuple(key), tuner.configs, write_instead_of_timing)


def _identity(config: Mapping[str, Any]) -> str:
    return repr(sorted((k, v) for k, v in config.items() if (k, v) != ("num_ctas", 1)))
