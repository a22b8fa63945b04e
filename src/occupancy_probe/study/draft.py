"""A study of recorded launches: signature, workloads and baseline as a program really used them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from occupancy_probe.exc import StudyError
from occupancy_probe.launch_options import CONFIG_OPTIONS

SCHEMA = "occupancy-probe-launches/1"
_TYPES = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8", "float8_e5m2fnuz": "fp8e5b16",
}  # fmt: skip
"""torch's names of element types, and Triton's."""

Launch = Mapping[str, Any]


def draft(record: Mapping[str, Any], kernel: str | None, targets: Sequence[str]) -> str:
    """YAML of a study of ``kernel`` (``module:name``; may be left out if only one was recorded).

    Sizes and scalars that differ between launches become workload axes, equal ones one axis; the
    config that was used most is the baseline, and num_warps is varied around it. StudyError names
    what was recorded where ``kernel`` is not clear.
    """
    if record.get("schema") != SCHEMA:
        raise StudyError(
            f"no record of launches: schema {record.get('schema')!r}, expected {SCHEMA!r}"
        )
    launches = _of(kernel, record["launches"])
    first = launches[0]
    config = _most_used(launches)
    axes = _Axes(launches)
    arguments = {name: axes.argument(name, value) for name, value in first["arguments"].items()}
    constants = {
        k: v for k, v in first["config"].items() if k not in config and k not in CONFIG_OPTIONS
    }
    arguments |= {name: _constant(value) for name, value in constants.items()}
    grid = [axes.grid(i, config) for i in range(len(first["grid"]))]
    workloads = axes.workloads()
    name = first["kernel"].partition(":")[2]
    warps = config.get("num_warps", 4)
    others = [w for w in (warps // 2, warps * 2) if 1 <= w <= 32]
    improve = " and ".join(f"{a} >= {min(w[a] for w in workloads)}" for a in list(workloads[0])[:1])
    study = {
        "name": f"recorded_{name.strip('_')}",
        "title": f"{name} as it was launched",
        "document": f"RECORDED_{name.strip('_').upper()}_AB",
        "hypothesis": {
            "what": f"Launch `{name}` with another num_warps than {warps}.",
            "why": "To be said before the study is measured.",
            "how": f"On the {sum(x['count'] for x in launches)} launches recorded from `{_command(record)}`.",
        },
        "kernel": {"file": first["file"], "function": name},
        "signature": {"arguments": arguments, "grid": grid},
        "baseline": config,
        "baseline_why": "what the program used most",
        "arms": [{"vary": {"num_warps": others}, "why": "the neighbours of what was used"}],
        "targets": list(targets),
        "workloads": [{"list": workloads}],
        "decision": {"improve": improve or "True"},
    }
    return yaml.safe_dump(study, sort_keys=False, allow_unicode=True, width=100)


class _Axes:
    """Sizes that differ between launches, each distinct series of values under one name."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._launches = launches
        self._names: dict[tuple[Any, ...], str] = {}

    def of(self, name: str, series: Sequence[Any]) -> Any:
        """The value if it is always the same, else the axis that has this series."""
        if all(v == series[0] for v in series):
            return series[0]
        return self._names.setdefault(tuple(series), name)

    def argument(self, name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            found = self.of(name, [x["arguments"][name] for x in self._launches])
            return {"text": found} if isinstance(value, str) and found == value else found
        if "shape" not in value:
            return {"dtype": _TYPES.get(value["dtype"], value["dtype"])}
        tensors = [x["arguments"][name] for x in self._launches]
        shape = [
            self.of(f"{name}_{i}", [t["shape"][i] for t in tensors])
            for i in range(len(value["shape"]))
        ]
        made: dict[str, Any] = {"dtype": _TYPES.get(value["dtype"], value["dtype"]), "shape": shape}
        if any(t["stride"] != _contiguous(t["shape"]) for t in tensors):
            made["strides"] = [
                self.of(f"{name}_stride_{i}", [t["stride"][i] for t in tensors])
                for i in range(len(shape))
            ]
        if not all(t.get("aligned", True) for t in tensors):
            made["align"] = 1
        return made

    def grid(self, i: int, config: Mapping[str, Any]) -> Any:
        """A number, or the expression over axes and config that gives every recorded grid."""
        series = [x["grid"][i] for x in self._launches]
        for known, axis in self._names.items():
            if list(known) == series:
                return axis
            for key, tile in config.items():
                tiles = [x["config"].get(key, tile) for x in self._launches]
                if not isinstance(tile, int) or isinstance(tile, bool) or key.startswith("num_"):
                    continue
                if [math.ceil(n / t) for n, t in zip(known, tiles, strict=True)] == series:
                    return f"cdiv({axis}, {key})"
        return self.of(f"grid_{i}", series)

    def workloads(self) -> list[dict[str, Any]]:
        """Axis values per distinct launch; a single launch gets an axis that says how often it was."""
        points = [
            {axis: series[i] for series, axis in self._names.items()}
            for i in range(len(self._launches))
        ]
        distinct = [p for i, p in enumerate(points) if p not in points[:i]]
        return distinct if distinct[0] else [{"count": sum(x["count"] for x in self._launches)}]


def _of(kernel: str | None, launches: Sequence[Launch]) -> list[Launch]:
    known = Counter(x["kernel"] for x in launches)
    if kernel is None and len(known) == 1:
        kernel = next(iter(known))
    found = [
        x
        for x in launches
        if kernel is not None and kernel in (x["kernel"], x["kernel"].partition(":")[2])
    ]
    if not found:
        counted = ", ".join(f"{k} ({n} distinct)" for k, n in known.items()) or "nothing"
        raise StudyError(f"which kernel? recorded: {counted}; name one with --kernel")
    return found


def _most_used(launches: Sequence[Launch]) -> dict[str, Any]:
    """Integer compile-time parameters and options of the config with the most launches."""
    counts: Counter[str] = Counter()
    configs: dict[str, Mapping[str, Any]] = {}
    for launch in launches:
        counts[repr(launch["config"])] += launch["count"]
        configs[repr(launch["config"])] = launch["config"]
    used = configs[counts.most_common(1)[0][0]]
    config = {
        k: v for k, v in used.items() if isinstance(v, (bool, int)) and (k, v) != ("num_ctas", 1)
    }
    return {"num_warps": 4, **config}


def _constant(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


def _contiguous(shape: Sequence[int]) -> list[int]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return strides[: len(shape)]


def _command(record: Mapping[str, Any]) -> str:
    return " ".join(map(str, record.get("command") or ["a program"]))
