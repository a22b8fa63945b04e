"""Whether a config can be forced on a kernel, and what it leaves to the autotuner's list."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from typing import Any

from occupancy_probe.exc import ForceError
from occupancy_probe.launch.tuned import autotuners, constexprs
from occupancy_probe.launch.unwrap import unwrap
from occupancy_probe.launch_options import CONFIG_OPTIONS

MAX_THREADS = 1024


def complete(name: str, kernel: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """``config`` checked against ``kernel``, with what its autotuner leaves no choice about added."""
    _require_known(name, unwrap(kernel), config)
    _require_launchable(name, config)
    full = dict(config)
    for tuner in autotuners(kernel):
        known = [{**c.kwargs, **_options(c)} for c in tuner.configs]
        agreeing = [c for c in known if all(c.get(k, v) == v for k, v in full.items())] or known
        for key in {k: None for c in known for k in c if k not in full}:
            values = list(dict.fromkeys(c[key] for c in agreeing if key in c))
            if len(values) > 1:
                raise ForceError(
                    f"{name}: the autotuner chooses {key} among {', '.join(map(str, values))} and"
                    f" {json.dumps(dict(config))} does not say which; add it, e.g."
                    f" {json.dumps({**config, key: values[0]})}"
                )
            if values:
                full[key] = values[0]
    return full


def require_config(name: str, config: object) -> None:
    """ForceError where ``config`` is no mapping of names to values, or empty."""
    if not isinstance(config, Mapping) or not config or not all(isinstance(k, str) for k in config):
        raise ForceError(
            f"{name}: {config!r} is no config; give parameters by name, e.g. {{'num_warps': 8}}"
        )


def _options(config: Any) -> dict[str, Any]:
    return {k: v for k, v in config.all_kwargs().items() if k in CONFIG_OPTIONS}


def _require_known(name: str, function: Any, config: Mapping[str, Any]) -> None:
    parameters = constexprs(function)
    for key in config:
        if key in parameters or key in _backend_options():
            continue
        if key in function.arg_names:
            raise ForceError(
                f"{name}: {key} is a run-time argument, not a meta-parameter; force one of"
                f" {', '.join(parameters) or 'num_warps, num_stages'}"
            )
        near = difflib.get_close_matches(key, [*parameters, *CONFIG_OPTIONS], 1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(parameters) or 'none'}"
        raise ForceError(f"{name}: no meta-parameter or launch option {key!r}; {hint}")


def _require_launchable(name: str, config: Mapping[str, Any]) -> None:
    for key, least in (("num_warps", 1), ("num_stages", 0), ("num_ctas", 1), ("maxnreg", 1)):
        value = config.get(key, least)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole and value >= least) and not (key == "maxnreg" and value is None):
            raise ForceError(f"{name}: {key} {value!r} is no whole number of at least {least}")
    warps = config.get("num_warps", 4)
    if warps & (warps - 1):
        raise ForceError(f"{name}: num_warps {warps!r} is not a power of two; give 1, 2, 4, 8 …")
    if 32 * warps > MAX_THREADS:
        raise ForceError(
            f"{name}: num_warps {warps} is {32 * warps:,} threads > {MAX_THREADS:,}; give fewer"
        )


@functools.cache
def _backend_options() -> frozenset[str]:
    from triton.backends.nvidia.compiler import CUDAOptions

    return frozenset(CUDAOptions.__dataclass_fields__) | CONFIG_OPTIONS
