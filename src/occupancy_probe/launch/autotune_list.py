"""Where an autotuner's list comes from and what it clashes with: the import, the stack, its settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from occupancy_probe.gpu import Target
from occupancy_probe.launch.posing import posing_as
from occupancy_probe.launch.tuned import autotuners, heuristics
from occupancy_probe.launch.unwrap import layers


def lists_at_import(
    load: Callable[[], Any], files: Sequence[Path], targets: Sequence[Target]
) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The configs that the kernel's module makes when it is imported on each target, and what it asked.

    load: imports the kernel anew. files: modules of these files are forgotten before and restored
    after. A target on which the import fails is left out.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    asked: set[str] = set()
    for target in targets:
        with _forgotten(files), posing_as(target) as questions:
            try:
                kernel = load()
            except Exception:  # asks more than can be answered: no list, but the question is known
                kernel = None
            asked |= questions
            if kernel is not None and autotuners(kernel):
                found[target.name] = [c.all_kwargs() for c in autotuners(kernel)[0].configs]
    return found, sorted(asked)


def conflicts(kernel: Any) -> list[str]:
    """Where autotuners and heuristics of one stack set the same thing, with what comes of it."""
    tuners, guessers = autotuners(kernel), heuristics(kernel)
    stack = list(layers(kernel))
    found = []
    for tuner in tuners:
        tuned = {k for c in tuner.configs for k in c.all_kwargs()}
        for guesser in guessers:
            outside = stack.index(guesser) < stack.index(tuner)
            for name in sorted(tuned & guesser.values.keys()):
                found.append(
                    f"{name} is set by a heuristic around the autotuner that tunes it: every launch raises"
                    " (conflicting meta-parameters)"
                    if outside
                    else f"{name} is tuned, and then overwritten by a heuristic inside the autotuner: its"
                    " configs differ in name only"
                )
    if len(tuners) > 1:
        found.append("an autotuner stands inside another: options are passed twice")
    return found


def seconds_per_config(kernel: Any) -> float:
    """Seconds that timing one config takes: what the autotuner asks its benchmark for, 25 + 100 ms."""
    tuner = autotuners(kernel)[0]
    warm_up = getattr(tuner, "num_warmups", None)
    repetitions = getattr(tuner, "num_reps", None)
    return (
        float((25 if warm_up is None else warm_up) + (100 if repetitions is None else repetitions))
        / 1e3
    )


@contextmanager
def _forgotten(files: Sequence[Path]) -> Iterator[None]:
    paths = {str(p.resolve()) for p in files}
    kept = {n: m for n, m in sys.modules.items() if getattr(m, "__file__", None) in paths}
    for name in kept:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [n for n, m in sys.modules.items() if getattr(m, "__file__", None) in paths]:
            del sys.modules[name]
        sys.modules.update(kept)
