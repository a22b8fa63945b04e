"""Workload rules become named points of the study's axes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from occupancy_probe.exc import StudyError
from occupancy_probe.study.naming import make_name
from occupancy_probe.study.schema import WorkloadRule


@dataclass(frozen=True)
class Workload:
    """One point of the axes (concurrency, top-k …) under a name."""

    name: str
    axes: dict[str, Any]


def make_workloads(rules: list[WorkloadRule], place: str) -> tuple[Workload, ...]:
    """Workloads of all rules in order; two different points under one name raise StudyError."""
    named: dict[str, Workload] = {}
    for i, rule in enumerate(rules):
        points: list[dict[str, Any]] = (
            [
                dict(zip(rule.grid, values, strict=True))
                for values in itertools.product(*rule.grid.values())
            ]
            if rule.grid is not None
            else [dict(p) for p in rule.list_ or []]
        )
        for axes in points:
            name = make_name(rule.name, axes, f"{place}[{i}]")
            if named.setdefault(name, Workload(name, axes)).axes != axes:
                raise StudyError(
                    f"{place}[{i}].name: {name!r} stands for two workloads; put every axis that varies"
                    " into the name"
                )
    return tuple(named.values())
