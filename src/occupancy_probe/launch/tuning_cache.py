"""Timings that were not taken by Triton, put into its disk cache of autotuning, and told from its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from occupancy_probe.launch.tuned import autotuners

MARK = "installed_by"
"""Key of a file that was installed; Triton (3.6 to 3.9) reads ``configs_timings`` and nothing else."""


class _Marked:
    """Triton's manager of one place: an installed file there does not count, a new one is marked."""

    def __init__(self, manager: Any, done: list[str]):
        self.manager, self.done = manager, done
        self.replaces = False

    def get_file(self, name: str) -> str | None:
        path: str | None = self.manager.get_file(name)
        self.replaces = path is not None and MARK in json.loads(Path(path).read_text())
        return None if self.replaces else path

    def put(self, data: str, name: str, binary: bool = True) -> str:
        marked = json.dumps({**json.loads(data), MARK: "occupancy-probe"})
        path: str = self.manager.put(marked, name, binary=binary)
        self.done.append("replaced" if self.replaces else "installed")
        return path


def install_file(
    kernel: Any, key: Sequence[Any], configs_timings: Sequence[tuple[dict[str, Any], list[float]]]
) -> Literal["installed", "replaced", "kept", "impossible"]:
    """Write one key's timings (ms, by ``triton.Config`` as its ``__dict__``) where Triton looks for them.

    An earlier install is replaced; a file that Triton wrote from its own timing is kept. Impossible:
    Triton neither writes nor reads a file where a config has a pre_hook or the key is empty.
    """
    import triton

    tuner = autotuners(kernel)[0]

    def instead_of_timing() -> None:
        tuner.configs_timings = {triton.Config(**c): ms for c, ms in configs_timings}

    with _marking() as done:
        if tuner.check_disk_cache(tuple(key), tuner.configs, instead_of_timing):
            return "kept"
    return "impossible" if not done else "replaced" if done == ["replaced"] else "installed"


@contextmanager
def _marking() -> Iterator[list[str]]:
    """What was written within the block, through Triton's own code for the place and the content."""
    from triton.runtime import autotuner

    theirs, done = autotuner.get_cache_manager, list[str]()
    autotuner.get_cache_manager = lambda key: _Marked(theirs(key), done)
    try:
        yield done
    finally:
        autotuner.get_cache_manager = theirs
