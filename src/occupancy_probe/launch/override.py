"""Force a config on every later launch of a kernel in this process, whoever makes it."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from occupancy_probe.exc import ForceError, ProblemError
from occupancy_probe.launch import naming
from occupancy_probe.launch.force import pre_hook
from occupancy_probe.launch.intercept import Interceptor, Run, install, remove
from occupancy_probe.launch.override_check import complete, require_config
from occupancy_probe.launch.unwrap import unwrap
from occupancy_probe.launch_options import CONFIG_OPTIONS

log = logging.getLogger("occupancy_probe")


class Rule:
    """One forced kernel: its name, its whole config once the kernel is known, and its use.

    launches: launches made under the config. bypassed: those whose config an autotuner would have
    chosen.
    """

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        self.name = name
        self.config = dict(config)
        self.given = dict(config)
        self.found: Any = None
        self.kernel: Any = None
        self.hook: Any = None
        self.launches = 0
        self.bypassed = 0
        self.warned: set[str] = set()

    def bind(self, kernel: Any) -> None:
        """Check the config against ``kernel`` and complete it; ForceError before anything is launched."""
        try:
            self.name = self.name if ":" in self.name else unwrap(kernel).__name__
        except ProblemError as e:
            raise ForceError(f"{self.name}: {e}") from e
        self.config = complete(self.name, kernel, self.given)
        self.hook = pre_hook(kernel, self.config)
        self.found, self.kernel = kernel, unwrap(kernel)

    def forget_launches(self) -> None:
        """Count from nothing: what was launched so far is another process's."""
        self.launches = self.bypassed = 0

    def __str__(self) -> str:
        used = f"{self.launches} launches" if self.launches != 1 else "1 launch"
        tuned = f", {self.bypassed} past the autotuner" if self.bypassed else ""
        return f"forced {self.name} to {json.dumps(self.config)}: {used}{tuned}"


@contextmanager
def force(kernel: Any, config: Mapping[str, Any]) -> Iterator[Rule]:
    """Inside, every launch of ``kernel`` in this process uses ``config``; nothing tunes it.

    kernel: a JITFunction under any stack of autotuners and heuristics, or ``"module:kernel"``.
    config: meta-parameters and launch options by name. What an autotuner sets beside it is completed
    where all its configs that agree with it say the same; otherwise ForceError asks for it.
    Yields the rule, whose ``launches`` counts them. ForceError, before anything is launched: unknown
    kernel, unknown or run-time name, a config that cannot be launched. A config whose shared memory
    exceeds the GPU is a ForceError at the first launch, before the kernel runs.
    """
    kernel = _import(kernel) if isinstance(kernel, str) else kernel
    name = getattr(kernel, "__name__", None) or f"a {type(kernel).__name__}"
    require_config(name, config)
    rule = Rule(name, config)
    rule.bind(kernel)
    overrides = Overrides([rule])
    install(overrides)
    try:
        yield rule
    finally:
        remove(overrides)
        log.info("%s", rule)


_past: ContextVar[Rule | None] = ContextVar("past an autotuner", default=None)
"""The rule under which an autotuner was passed by on the way to the launch."""
_UNKNOWN = object()


class Overrides(Interceptor):
    """Applies rules to launches.

    A rule that only has a name follows it: from when there is such a kernel, be it in the middle of
    an import, until the name is settled. What a layer was found to be is kept until a rule is bound.
    """

    def __init__(self, rules: list[Rule], used: Callable[[Rule], None] = lambda rule: None) -> None:
        self._rules = rules
        self._used = used
        self._named = [r for r in rules if r.kernel is None]
        self._open = list(self._named)
        self._by_layer: dict[int, Rule | None] = {}
        self._seen: list[Any] = []  # keeps what was looked up alive, so that no id is used again

    def guess(self, layer: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        if (rule := self._rule(layer)) is not None:
            args, kwargs = _merged(layer, rule, args, kwargs)
        return proceed(*args, **kwargs)

    def tune(self, tuner: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        if (rule := self._rule(tuner)) is None:
            return proceed(*args, **kwargs)
        args, kwargs = _merged(tuner, rule, args, kwargs)
        tuner.best_config = _as_config(rule.config)  # wrappers read it to build their grids
        token = _past.set(rule)
        try:
            return tuner.fn.run(*args, **kwargs)
        finally:
            _past.reset(token)

    def launch(self, kernel: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        if (rule := self._rule(kernel)) is None:
            return proceed(*args, **kwargs)
        _warn_of_a_fixed_grid(rule, kernel, args, kwargs)
        args, kwargs = _merged(kernel, rule, args, kwargs)
        if rule.hook is not None:
            rule.hook({**dict(zip(kernel.arg_names, args, strict=False)), **kwargs})
        try:
            result = proceed(*args, **kwargs)
        except _unfit() as e:
            if rule.launches:
                raise
            raise ForceError(
                f"{rule.name}: the forced config {json.dumps(rule.config)} does not fit:"
                f" {type(e).__name__}: {str(e).strip().splitlines()[-1]}; force a smaller one"
            ) from e
        if not kwargs.get("warmup"):
            rule.launches += 1
            rule.bypassed += _past.get() is rule
            self._used(rule)
        return result

    def _rule(self, layer: Any) -> Rule | None:
        if self._open:
            self._follow_names()
        rule: Any = self._by_layer.get(id(layer), _UNKNOWN)
        if rule is _UNKNOWN:
            rule = self._match(layer)
            self._seen.append(layer)
            self._by_layer[id(layer)] = rule
        return rule  # type: ignore[no-any-return]

    def _follow_names(self) -> None:
        for rule in self._open:
            found, may_change = naming.find(rule.name, rule.found)
            if found is not None and found is not rule.found:
                self._bind(rule, found)
            if not may_change:
                self._open = [r for r in self._open if r is not rule]

    def _match(self, layer: Any) -> Rule | None:
        try:
            kernel = unwrap(layer)
        except ProblemError:
            return None
        for rule in self._rules:
            if rule.kernel is kernel:
                return rule
        for rule in self._named:
            if (found := naming.found_beside(rule.name, kernel)) is not None:
                if rule.kernel is None:
                    self._bind(rule, found)
                return rule
        for rule in self._named:
            if rule.kernel is not None and naming.is_copy(rule.kernel, kernel):
                return rule
        return None

    def _bind(self, rule: Rule, found: Any) -> None:
        rule.bind(found)
        for other in self._rules:
            if other is not rule and other.kernel is rule.kernel:
                rule.found = rule.kernel = None
                raise ForceError(
                    f"{rule.name}: is the kernel that {other.name} forces to"
                    f" {json.dumps(other.config)}; give one of the two names"
                )
        self._by_layer.clear()
        self._seen.clear()


@functools.cache
def _unfit() -> tuple[type[BaseException], ...]:
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources, PTXASError

    return (OutOfResources, PTXASError, CompilationError)


def _as_config(config: Mapping[str, Any]) -> Any:
    import triton

    options = {k: v for k, v in config.items() if k in CONFIG_OPTIONS}
    return triton.Config({k: v for k, v in config.items() if k not in options}, **options)


def _merged(
    layer: Any, rule: Rule, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with the rule's config in them, also where the caller passed one by position."""
    place = {name: i for i, name in enumerate(layer.arg_names[: len(args)])}
    values = list(args)
    for key, value in rule.config.items():
        if key in place:
            values[place[key]] = value
    named = {k: v for k, v in rule.config.items() if k not in place}
    return tuple(values), {**kwargs, **named}


def _warn_of_a_fixed_grid(
    rule: Rule, kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """A grid computed from another tile than the forced one covers too much or too little."""
    given = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
    for key, value in rule.config.items():
        meant = key not in CONFIG_OPTIONS and key in given and given[key] != value
        if meant and not callable(kwargs.get("grid")) and key not in rule.warned:
            rule.warned.add(key)
            log.warning(
                "%s: the program launches with %s=%s and a fixed grid; forced to %s, check that the"
                " grid still covers the output", rule.name, key, given[key], value,
            )  # fmt: skip


def _import(name: str) -> Any:
    import importlib

    module, _, attribute = name.partition(":")
    if not attribute:
        raise ForceError(f"{name!r} names no kernel; write module:kernel")
    try:
        importlib.import_module(module)
    except ImportError as e:
        raise ForceError(f"{name}: {e}; name a module that can be imported") from e
    return naming.find(name)[0]
