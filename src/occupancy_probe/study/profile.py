"""The kernel's share of a step out of a profile that somebody else took."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from occupancy_probe.exc import StudyError

_NAMES = ("Name", "Kernel Name", "kernel", "name")
_TIMES = (
    "Total Time (ns)",
    "Duration (ns)",
    "gpu__time_duration.sum",
    "total_us",
    "time_us",
    "time",
)
_FAULTS = (ValueError, LookupError, TypeError, AttributeError, RecursionError, csv.Error)
"""Whatever a file that is no profile can raise."""


def profile_share(path: Path, pattern: str) -> float:
    """Time of the kernels whose name matches ``pattern`` over that of all kernels in the profile.

    A Chrome trace as PyTorch's profiler exports it (events of category ``kernel``); Nsight Systems'
    ``cuda_gpu_kern_sum`` or any other CSV with a name and a time per row. Gaps between kernels are in
    no row, so the share of the step is somewhat smaller. StudyError says what is missing.
    """
    try:
        state = path.stat()
        return _share(path, pattern, state.st_mtime_ns, state.st_size)
    except OSError as e:
        raise StudyError(f"{path}: {e.strerror}; give a file") from e


@lru_cache(maxsize=16)
def _share(path: Path, pattern: str, *state: int) -> float:
    """Read once a process while the file's ``state`` is the same: a trace may have 100 MB."""
    try:
        text = path.read_text(encoding="utf-8")
        rows = list(_trace(text) if text.lstrip()[:1] in ("{", "[") else _table(text))
    except _FAULTS as e:
        words = " ".join(str(e).split()) or type(e).__name__
        raise StudyError(f"{path}: {words[:200]}; export kernels with names and times") from e
    try:
        matched = [t for name, t in rows if re.search(pattern, name)]
    except re.error as e:
        raise StudyError(f"{pattern!r} is no regular expression: {e}; correct it") from e
    if not matched:
        known = ", ".join(sorted({name for name, _ in rows})[:5]) or "no kernel at all"
        raise StudyError(f"{path}: no kernel matches {pattern!r}; it has {known}")
    if not all(math.isfinite(t) and t >= 0 for _, t in rows) or not any(matched):
        raise StudyError(f"{path}: the kernels' times are no times; export them anew")
    return math.fsum(matched) / math.fsum(t for _, t in rows)


def _trace(text: str) -> Iterable[tuple[str, float]]:
    content = json.loads(text)
    events = content["traceEvents"] if isinstance(content, dict) else content
    for event in events:
        if event.get("cat") == "kernel":
            yield str(event["name"]), float(event["dur"])


def _table(text: str) -> Iterable[tuple[str, float]]:
    lines = text.splitlines()
    start = next(
        (i for i, line in enumerate(lines) if set(next(csv.reader([line]))) & set(_NAMES)), None
    )
    if start is None:
        raise ValueError(f"no column named one of {', '.join(_NAMES)}")
    for row in csv.DictReader(lines[start:]):
        name = next(row[k] for k in _NAMES if k in row)
        time = next((row[k] for k in _TIMES if k in row), None)
        if time is None:
            raise ValueError(f"no column named one of {', '.join(_TIMES)}")
        if name:
            yield name, float(time.replace(",", ""))
