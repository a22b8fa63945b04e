"""Rehearse a kernel's autotuner without a GPU: Triton's own code, with an injected timer.

A launch of the study goes through the real ``Autotuner``; its benchmark calls a timer of ours, and
what it would launch is traced instead of run. So the keys, the configs that a prune function leaves,
the silent skips and the choice are Triton's, in whatever version is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from occupancy_probe.gpu import Target
from occupancy_probe.launch.device import planned_sm_count
from occupancy_probe.launch.intercept import Interceptor, Run, intercepting
from occupancy_probe.launch.posing import posing_as
from occupancy_probe.launch.problem import Problem
from occupancy_probe.launch.trace import Origin, recording
from occupancy_probe.launch.tuned import autotuned, autotuners
from occupancy_probe.launch.unwrap import unwrap
from occupancy_probe.records import Call, Specialization
from occupancy_probe.study import Workload

Timer = Callable[[Mapping[str, Any], str], float]
"""µs of a config on a workload; may raise what Triton raises (``OutOfResources`` …)."""

START = 10.0
"""What an argument holds before the call in :func:`updates_left`; every launch adds 1."""


@dataclass
class Benched:
    """One config that the autotuner tried, with what it would have launched."""

    config: dict[str, Any]
    specialization: Specialization | None = None
    call: Call | None = None
    error: str | None = None
    """Why the launch was refused before anything could be timed; this ends the program's call."""


@dataclass
class Touch:
    """What one call of the kernel made its autotuner do."""

    workload: str
    key: tuple[Any, ...] = ()
    """Triton's cache key: values of the key arguments, then the dtypes of all tensors."""
    values: dict[str, Any] = field(default_factory=dict)
    """The key arguments that exist, with their values."""
    tuned: bool = False
    benched: list[Benched] = field(default_factory=list)
    chosen: dict[str, Any] | None = None
    launched: Benched | None = None
    """The launch that the program asked for."""
    error: str | None = None
    asked: set[str] = field(default_factory=set)
    """What was asked of the GPU, see :mod:`.posing`."""
    arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    """As the autotuner got them."""

    def tensors(self, names: Sequence[str]) -> dict[str, Any]:
        """Tensor arguments by name."""
        args, kwargs = self.arguments
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return {k: v for k, v in given.items() if hasattr(v, "data_ptr") or hasattr(v, "nbytes")}


def rehearse(
    problem: Problem,
    config: Mapping[str, Any],
    workloads: Sequence[Workload],
    target: Target,
    origin: Origin,
    sm_count: int,
    timer: Timer = lambda config, workload: 1.0,
    kernel: Any = None,
) -> list[Touch]:
    """Launch ``workloads`` in order through the autotuner, which begins with an empty cache.

    config: parameters that nobody tunes. kernel: in place of the Problem's own, e.g. loaded again.
    Nothing runs and nothing is compiled. A launch that raises ends its own touch only.
    """
    stack = autotuners(kernel if kernel is not None else problem.kernel)
    touches: list[Touch] = []
    with ExitStack() as inside:
        inside.enter_context(autotuned(kernel))
        inside.enter_context(planned_sm_count(sm_count))
        noted = inside.enter_context(recording(target, origin))
        asked = inside.enter_context(posing_as(target))
        watch = _Watch(stack[0] if stack else None, noted, timer)
        for tuner in stack:
            inside.enter_context(_timed_by(tuner, watch))
        inside.enter_context(intercepting(watch))
        for workload in workloads:
            watch.begin(workload.name)
            inputs = problem.make_inputs(workload.axes, "meta", 0)
            asked.clear()
            try:
                problem.launch(inputs, config)
            except Exception as e:  # whatever it raises is a finding
                watch.touch.error = _words(e)
            watch.touch.asked = asked - {"driver.get_current_target"}  # Triton's binder asks it too
            touches.append(watch.touch)
    return touches


class _Watch(Interceptor):
    """Collects one touch at a time from what the outermost autotuner does."""

    def __init__(self, tuner: Any, noted: list[tuple[Specialization, Call]], timer: Timer) -> None:
        self._tuner, self._noted, self._timer = tuner, noted, timer
        self._current: Benched | None = None
        self.touch = Touch("")

    def begin(self, workload: str) -> None:
        self.touch = Touch(workload)

    def tune(self, tuner: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        if tuner is not self._tuner or self.touch.arguments != ((), {}):
            return proceed(*args, **kwargs)
        touch, before = self.touch, set(tuner.cache)
        given = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
        touch.arguments = (args, {k: v for k, v in kwargs.items() if k not in ("grid", "warmup")})
        touch.values = {n: _plain(given[n]) for n in tuner.keys if n in given}
        try:
            result = proceed(*args, **kwargs)
        finally:
            new = [k for k in tuner.cache if k not in before]
            touch.tuned = bool(touch.benched)
            touch.key = new[0] if new else _key(tuner, given)
        touch.chosen = tuner.best_config.all_kwargs()
        if self._noted:
            touch.launched = Benched(touch.chosen, *self._noted[-1])
        return result

    def bench(self, original: Run, *args: Any, **kwargs: Any) -> Any:
        self._current = Benched(kwargs["config"].all_kwargs())
        self.touch.benched.append(self._current)
        try:
            return original(*args, **kwargs)
        except Exception as e:
            self._current.error = _words(e)
            raise

    def time(self, call: Callable[[], Any], quantiles: Any = None, **_: Any) -> list[float]:
        call()
        assert self._current is not None
        if self._noted:
            self._current.specialization, self._current.call = self._noted[-1]
        value = self._timer(self._current.config, self.touch.workload)
        return [value, value, value]


@contextmanager
def _timed_by(tuner: Any, watch: _Watch) -> Iterator[None]:
    """Give ``tuner`` an empty cache and our timer, and what it had back afterwards."""
    before = dict(tuner.__dict__)
    original = tuner._bench
    tuner.__dict__.update(
        cache={},
        do_bench=watch.time,
        _bench=lambda *args, **kwargs: watch.bench(original, *args, **kwargs),
        cache_results=False,
    )
    try:
        yield
    finally:
        tuner.__dict__.clear()
        tuner.__dict__.update(before)


def updates_left(kernel: Any, touch: Touch, argument: str, target: Target) -> float | None:
    """What ``argument`` holds after the program's first call if every launch adds 1 to it.

    It begins with :data:`START`, so 11 is right: what more there is came from timing, once per
    config, and what is less was taken away by ``reset_to_zero``. None where a hook of the kernel's
    own cannot be run on stand-ins.
    """
    import torch

    tuner = autotuners(kernel)[0]
    names = unwrap(kernel).arg_names
    args, kwargs = touch.arguments
    held = torch.full((1,), START)
    args = tuple(held if names[i] == argument else v for i, v in enumerate(args))
    kwargs = {k: held if k == argument else v for k, v in kwargs.items()}

    class Adding(Interceptor):
        def guess(self, layer: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
            return layer.fn.run(*args, **kwargs)

        def launch(self, kernel: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
            held.add_(1.0)

    watch = _Watch(None, [], lambda config, workload: 1.0)
    with ExitStack() as inside:
        inside.enter_context(posing_as(target))
        for each in autotuners(kernel):
            inside.enter_context(_timed_by(each, watch))
        inside.enter_context(intercepting(Adding()))
        try:
            tuner.run(*args, grid=(1,), warmup=False, **kwargs)
        except Exception:  # a hook that reads what a stand-in does not have
            return None
    return float(held.item())


def _key(tuner: Any, given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a call that tuned nothing, as ``Autotuner.run`` makes it."""
    known = {k: v for k, v in given.items() if k in tuner.arg_names}
    dtypes = [str(v.dtype) for v in known.values() if hasattr(v, "dtype")]
    return (*(known[k] for k in tuner.keys if k in known), *dtypes)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
