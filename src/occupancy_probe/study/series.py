"""Step time of a server against its concurrency: a study's own series, or one that others published."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from occupancy_probe.exc import StudyError

FOLDER = Path(__file__).parent / "series"
"""The bundled ones, with their sources."""


@dataclass(frozen=True)
class Series:
    """Points (concurrency, time of one decode step in ms), and tokens per second where known."""

    name: str
    source: str
    concurrency: tuple[float, ...]
    step_ms: tuple[float, ...]
    tokens_per_s: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        values = [*self.concurrency, *self.step_ms, *(self.tokens_per_s or ())]
        if not all(math.isfinite(v) and v > 0 for v in values):
            raise StudyError(f"series {self.name}: every value must be a positive number")
        lengths = {len(self.concurrency), len(self.step_ms), len(self.tokens_per_s or self.step_ms)}
        if len(lengths) > 1:
            raise StudyError(f"series {self.name}: its lists differ in length; correct them")
        if len(set(self.concurrency)) != len(self.concurrency):
            raise StudyError(f"series {self.name}: a concurrency stands twice; average them first")
        if len(self.concurrency) < 3:
            raise StudyError(f"series {self.name}: two parameters need at least 3 points")


def bundled() -> dict[str, Series]:
    """Every published series that comes with the tool, by name."""
    return {
        name: series
        for path in sorted(FOLDER.glob("*.yaml"))
        for name, series in _many(yaml.safe_load(path.read_text(encoding="utf-8"))).items()
    }


def read_series(place: str, folder: Path) -> Series:
    """A bundled series by name, or a file relative to ``folder``.

    A CSV has the columns ``concurrency``, ``step_ms`` and perhaps ``tokens_per_s``; JSON and YAML
    hold the same as lists, and perhaps ``source``. StudyError names what is missing.
    """
    known = bundled()
    if place in known:
        return known[place]
    path = folder / place
    if not path.is_file():
        raise StudyError(f"no series {place!r} and no such file; bundled: {', '.join(known)}")
    try:
        content = _load(path)
        at, times = (tuple(map(float, content[key])) for key in ("concurrency", "step_ms"))
        tokens = content.get("tokens_per_s")
        rates = tuple(map(float, tokens)) if tokens else None
        return Series(path.name, str(content.get("source", path.name)), at, times, rates)
    except KeyError as e:
        raise StudyError(f"{path}: no {e}; it needs concurrency and step_ms") from e
    except (TypeError, ValueError, yaml.YAMLError) as e:
        raise StudyError(f"{path}: {' '.join(str(e).split())}; give numbers") from e


def _load(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        rows = list(csv.DictReader(text.splitlines()))
        return {key: [row[key] for row in rows] for key in (rows[0] if rows else ())}
    content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    if not isinstance(content, dict):
        raise ValueError("not a mapping of lists")
    return content


def _many(content: dict[str, Any]) -> dict[str, Series]:
    return {
        name: Series(
            name,
            str(content["source"]),
            *(tuple(map(float, s[k])) for k in ("concurrency", "step_ms", "tokens_per_s")),
        )
        for name, s in content["series"].items()
    }
