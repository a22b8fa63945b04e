"""Config rules become arms: one arm per distinct config, with every reason it was asked for."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from occupancy_probe.exc import StudyError
from occupancy_probe.launch_options import LAUNCH_OPTIONS
from occupancy_probe.study.expressions import evaluate
from occupancy_probe.study.naming import make_name
from occupancy_probe.study.schema import ConfigRule

BASELINE = "baseline"
NULL = "null"
Config = Mapping[str, Any]


@dataclass(frozen=True)
class Arm:
    """A named config and the reasons it is compared; ``named`` tells a chosen name from a made one."""

    name: str
    config: dict[str, Any]
    why: tuple[str, ...]
    named: bool = False

    @property
    def twin(self) -> bool:
        """True for the null arm, whose config is the baseline's own."""
        return self.name == NULL


def make_arms(
    rules: list[ConfigRule], baseline: Config, baseline_why: str, root: Path
) -> tuple[Arm, ...]:
    """Baseline, null arm, then the rules' arms in order.

    Rules that overlap give one arm with both reasons. Two different chosen names for one config, or
    one name for two configs, raise StudyError. ``root`` is where ``use`` modules are looked up.
    """
    base = Arm(BASELINE, dict(baseline), (baseline_why,), named=True)
    arms = {_key(baseline): base}
    for i, rule in enumerate(rules):
        place, kept, seen = f"arms[{i}]", 0, 0
        for difference in _differences(rule, baseline, root, place):
            config = {**baseline, **difference}
            if unknown := set(difference) - set(baseline) - LAUNCH_OPTIONS:
                raise StudyError(
                    f"{place}: {', '.join(sorted(unknown))} is neither in baseline nor a launch option"
                    f" ({', '.join(sorted(LAUNCH_OPTIONS))}); add it to baseline or correct it"
                )
            seen += 1
            if not _kept(rule.where, config, place):
                continue
            kept += 1
            name = make_name(rule.name, difference if rule.name is None else config, place)
            arm = Arm(
                name, config, (rule.why,), named=rule.name is not None and "{" not in rule.name
            )
            known = arms.get(_key(config))
            arms[_key(config)] = arm if known is None else _merge(known, arm, place)
        if seen and not kept:
            raise StudyError(
                f"{place}.where: {rule.where!r} keeps none of {seen} configs; widen it"
            )
    by_name: dict[str, Arm] = {}
    for arm in arms.values():
        if arm.name == NULL or arm.name in by_name:
            raise StudyError(
                f"arms: the name {arm.name!r} stands for two configs; give the rules distinct names"
            )
        by_name[arm.name] = arm
    if len(by_name) < 2:
        raise StudyError(
            "arms: no rule leaves an arm beside the baseline; widen a rule or its where"
        )
    null = Arm(NULL, dict(baseline), ("twin of the baseline: the study's own noise floor",))
    return (by_name[BASELINE], null, *(a for a in by_name.values() if a.name != BASELINE))


def _kept(where: str, config: Config, place: str) -> bool:
    try:
        return bool(evaluate(where, config))
    except StudyError as e:
        raise StudyError(f"{place}.where: {e}") from e


def _key(config: Config) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((k, repr(v)) for k, v in config.items()))


def _merge(known: Arm, new: Arm, place: str) -> Arm:
    if known.name != BASELINE and known.named and new.named and known.name != new.name:
        raise StudyError(
            f"{place}.name: {new.name!r} and {known.name!r} are the same config; keep one name"
        )
    name = new.name if new.named and not known.named else known.name
    why = tuple(dict.fromkeys((*known.why, *new.why)))
    return replace(known, name=name, why=why, named=known.named or new.named)


def _differences(
    rule: ConfigRule, baseline: Config, root: Path, place: str
) -> Iterator[dict[str, Any]]:
    if rule.vary is not None:
        for key, values in rule.vary.items():
            yield from ({key: v} for v in values)
    elif rule.grid is not None:
        for combination in itertools.product(*rule.grid.values()):
            yield dict(zip(rule.grid, combination, strict=True))
    elif rule.list_ is not None:
        yield from rule.list_
    else:
        assert rule.use is not None
        yield from _configs_of(rule.use, baseline, root, place)


def use_file(reference: str, root: Path) -> Path:
    """The file of a ``use: module:function`` rule, beside the study in ``root``."""
    return (root / reference.partition(":")[0].replace(".", "/")).with_suffix(".py")


def _configs_of(reference: str, baseline: Config, root: Path, place: str) -> list[dict[str, Any]]:
    """What ``module:function`` returns for the baseline, the module being a file beside the study."""
    path, name = use_file(reference, root), reference.partition(":")[2]
    if not path.is_file():
        raise StudyError(f"{place}.use: no file {path}; create it or correct the name")
    if not name:
        raise StudyError(f"{place}.use: {reference!r} names no function; expected module:function")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(loaded)
        return [{**difference} for difference in getattr(loaded, name)(dict(baseline))]
    except Exception as e:
        raise StudyError(f"{place}.use: {path}: {type(e).__name__}: {e}") from e
