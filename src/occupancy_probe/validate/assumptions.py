"""A study's ``assume`` lines, judged by what the trace and the compiler say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from occupancy_probe.exc import StudyError
from occupancy_probe.records import Assumption, Feasibility, Plan
from occupancy_probe.study import BASELINE
from occupancy_probe.study.expressions import evaluate, names_in

FIGURES = ("shared_bytes", "registers", "ctas_per_sm", "warps_per_sm")
"""Figures of a feasibility record that an ``assume`` line may ask for, as ``figure(target, arm)``."""


class _NotKnown(Exception):
    """A figure that no record holds; not an error of the study."""


def assess(
    lines: Sequence[str], plan: Plan, feasibility: Mapping[str, Mapping[str, Feasibility]]
) -> list[Assumption]:
    """Every line as confirmed, refuted or not known, with the values it was judged by.

    Names are the baseline's facts and ``autotune_key``; functions are the ``FIGURES`` (bytes per
    CTA, registers per thread, per SM), ``fits(target, arm)`` and ``same_code(target, arm, other)``.
    """
    baseline = next((a for a in plan.arms if a.name == BASELINE), plan.arms[0])
    names = {**baseline.facts, "autotune_key": (plan.autotune or {}).get("key") or []}
    return [_judge(line, names, feasibility) for line in lines]


def _judge(
    line: str, names: Mapping[str, Any], matrix: Mapping[str, Mapping[str, Feasibility]]
) -> Assumption:
    values: dict[str, Any] = {}
    try:
        values.update({name: names[name] for name in names_in(line) if name in names})
        functions = {
            name: _recorded(name, function, values) for name, function in _functions(matrix).items()
        }
        outcome = "confirmed" if evaluate(line, names, functions) else "refuted"
    except _NotKnown:
        outcome = "not known"
    except (StudyError, SyntaxError) as e:
        outcome, values = "not known", {**values, "error": str(e)}
    return Assumption.model_validate({"text": line, "verdict": outcome, "values": values})


def _recorded(
    name: str, function: Callable[..., Any], values: dict[str, Any]
) -> Callable[..., Any]:
    """``function`` that also notes its call and result; None where no record holds the figure."""

    def call(*arguments: Any) -> Any:
        text = f"{name}({', '.join(map(str, arguments))})"
        values[text] = None
        values[text] = function(*arguments)
        return values[text]

    return call


def _functions(
    matrix: Mapping[str, Mapping[str, Feasibility]],
) -> dict[str, Callable[..., Any]]:
    def record(target: str, arm: str) -> Feasibility:
        found = matrix.get(target, {}).get(arm)
        if found is None:
            raise _NotKnown
        return found

    def figure(name: str) -> Callable[[str, str], int]:
        def value(target: str, arm: str) -> int:
            found: int | None = getattr(record(target, arm), name)
            if found is None:
                raise _NotKnown
            return found

        return value

    def fits(target: str, arm: str) -> bool:
        return record(target, arm).verdict == "fits"

    def same_code(target: str, arm: str, other: str) -> bool:
        codes = [record(target, a).code_sha256 for a in (arm, other)]
        if None in codes:
            raise _NotKnown
        return codes[0] == codes[1]

    return {**{name: figure(name) for name in FIGURES}, "fits": fits, "same_code": same_code}
