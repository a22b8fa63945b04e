"""Configs near a rejected one: compiled until one fits in each direction, never guessed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from occupancy_probe.launch_options import LAUNCH_OPTIONS
from occupancy_probe.records import Feasibility, Neighbour, Trace
from occupancy_probe.research.code import config_change
from occupancy_probe.research.feasibility import DOT_RULE, SPILLS, TRAP

STEPS = 4
"""Configs tried in one direction, at most."""

MOST_REGISTERS = 255
"""Per thread, on every NVIDIA target; ``maxnreg`` is NVIDIA's."""

_SMALLER = {
    "shared memory",
    "tensor memory",
    "registers per thread",
    "registers per CTA",
    TRAP,
    SPILLS,
}

Config = Mapping[str, Any]
Judge = Callable[[Mapping[str, Config]], Mapping[str, Feasibility]]
"""Records of configs by a name of the caller's."""


def directions(record: Feasibility) -> list[list[dict[str, Any]]]:
    """Configs to try for a rejected arm, per direction from near to far; one factor changes in each.

    Too large: one stage less and again, each power-of-two meta-parameter halved and again. Too many
    threads: the warps halved. Beyond a spill budget: twice the warps, a higher ``maxnreg``. Not a power of two: the ones on both sides. Below the minimum of
    ``tl.dot``: each meta-parameter doubled. A compiler that failed otherwise gets none.
    """
    config, limits = record.config, {r.limit for r in record.reasons}
    tiles = [k for k, v in config.items() if k not in LAUNCH_OPTIONS and _power_of_two(v) and v > 1]
    warps = config.get("num_warps", 4)
    steps: list[list[tuple[str, int]]] = []
    if limits & _SMALLER:
        stages = config.get("num_stages", 1)
        steps.append([("num_stages", n) for n in range(stages - 1, 0, -1)])
        steps += [[(k, config[k] >> n) for n in range(1, STEPS + 1)] for k in tiles]
    if limits & {"registers per CTA", "threads"}:
        steps.append([("num_warps", warps >> n) for n in range(1, STEPS + 1)])
    if SPILLS in limits:
        steps.append([("num_warps", warps << 1)])
        cap = config.get("maxnreg", MOST_REGISTERS)
        steps.append([("maxnreg", n) for n in (2 * cap, 4 * cap) if n <= MOST_REGISTERS])
    if "num_warps" in limits and isinstance(warps, int) and warps > 0:
        below = 1 << (warps.bit_length() - 1)
        steps += [[("num_warps", below)], [("num_warps", 2 * below)]]
    if DOT_RULE in limits:
        steps += [[(k, config[k] << n) for n in range(1, STEPS + 1)] for k in tiles]
    found = [
        [{**config, key: value} for key, value in direction[:STEPS] if value >= 1]
        for direction in steps
    ]
    return [direction for direction in found if direction]


def find_neighbours(
    rejected: Mapping[str, Feasibility], arms: Mapping[str, Feasibility], judge: Judge
) -> dict[str, list[Neighbour]]:
    """Per rejected arm what was tried, nearest first, until one fits in each direction.

    Configs that are arms themselves are taken from ``arms``; the others go to ``judge``, those of one
    round together, so that they compile side by side and each only once.
    """
    records = {_key(r.config): r for r in arms.values()}
    found: dict[str, list[Neighbour]] = {name: [] for name in rejected}
    open_ = [(name, iter(d)) for name, record in rejected.items() for d in directions(record)]
    while open_:
        tried: list[tuple[str, Iterator[dict[str, Any]], dict[str, Any]]] = []
        for name, direction in open_:
            config = next(direction, None)
            if config is not None:
                tried.append((name, direction, config))
        unknown = {_key(c): c for _, _, c in tried if _key(c) not in records}
        records.update(judge(unknown) if unknown else {})
        open_ = []
        for name, direction, config in tried:
            record = records.get(_key(config))
            if record is None:
                continue
            found[name].append(_neighbour(rejected[name], record))
            found_limits = {r.limit for r in record.reasons}
            if found_limits & {r.limit for r in rejected[name].reasons}:  # else it went too far
                open_.append((name, direction))
    return found


def every_config(rejected: Mapping[str, Feasibility]) -> dict[str, dict[str, Any]]:
    """All that may be tried, under the names that ``judge`` is asked by."""
    return {_key(c): c for r in rejected.values() for d in directions(r) for c in d}


def trace_configs(study_path: Path, target: str, configs: Mapping[str, Config]) -> Trace:
    """The launches of configs that are no arms, by Triton's own binder; imports torch and the Problem.

    Replacing constants in an arm's trace would be cheaper and wrong wherever a launch computes an
    argument, a grid or a heuristic from the config.
    """
    from occupancy_probe.launch.launches import trace_study
    from occupancy_probe.study import BASELINE, load_study
    from occupancy_probe.study.arms import Arm

    study = load_study(study_path)
    arms = (study.arm(BASELINE), *(Arm(n, dict(c), ("a neighbour",)) for n, c in configs.items()))
    file = study.file.model_copy(update={"targets": [target]})
    return trace_study(dataclasses.replace(study, arms=arms, file=file))


def _neighbour(rejected: Feasibility, record: Feasibility) -> Neighbour:
    return Neighbour(
        change=config_change(rejected.config, record.config),
        config=record.config,
        verdict=record.verdict,
        shared_bytes=record.shared_bytes,
        registers=record.registers,
        ctas_per_sm=record.ctas_per_sm,
        warps_per_sm=record.warps_per_sm,
        reason="; ".join(r.text for r in record.reasons) or None,
    )


def _key(config: Config) -> str:
    return " ".join(f"{k}={v}" for k, v in sorted(config.items()))


def _power_of_two(value: Any) -> bool:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value > 0
        and not value & (value - 1)
    )
