"""What a program launches: kernel, key, config, specialization, grid and how often."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from occupancy_probe.launch.intercept import Interceptor, Run
from occupancy_probe.launch.tuned import constexprs
from occupancy_probe.launch_options import CONFIG_OPTIONS


class Recorder(Interceptor):
    """Counts distinct launches. What an autotuner launches to decide is not counted.

    launched: called after every launch that was noted. Installed before (inside of) whatever changes
    launches, and its :class:`Keys` after (outside of) it, so that it sees what is really launched
    and the key that the program's autotuner would have looked at.
    """

    def __init__(self, launched: Callable[[], None] = lambda: None) -> None:
        self.keys = Keys()
        self._launched = launched
        self._found: dict[str, dict[str, Any]] = {}
        self._pid = os.getpid()

    def launches(self) -> list[dict[str, Any]]:
        """One entry per distinct launch of this process, in order of first appearance."""
        return list(self._found.values())

    def launch(self, kernel: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        result = proceed(*args, **kwargs)
        if not self.keys.timing and not kwargs.get("warmup"):
            if self._pid != os.getpid():  # forked: the parent reports its own
                self._pid = os.getpid()
                self._found.clear()
            self._note(kernel, args, kwargs)
            self._launched()
        return result

    def _note(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
        values = {**_defaults(kernel), **{k: v for k, v in given.items() if k in kernel.arg_names}}
        grid = kwargs.get("grid")
        grid = grid({**values, **kwargs}) if callable(grid) else grid
        constants = constexprs(kernel)
        options = {k: v for k, v in kwargs.items() if k in CONFIG_OPTIONS and v is not None}
        config = {k: _described(v) for k, v in values.items() if k in constants}
        guessed = {k: config.pop(k) for k in self.keys.guessed if k in config}
        arguments = {k: _described(v) for k, v in values.items() if k not in constants}
        identity = repr(
            (id(kernel), self.keys.current[-1:], config, guessed, options, arguments, grid)
        )
        if identity not in self._found:
            self._found[identity] = {
                "kernel": f"{kernel.fn.__module__}:{kernel.fn.__name__}",
                "file": inspect.getsourcefile(kernel.fn),
                "key": self.keys.current[-1] if self.keys.current else None,
                "config": {**config, **options},
                "heuristics": guessed,
                "arguments": arguments,
                "specialization": _specialization(kernel, args, kwargs),
                "grid": [int(n) for n in grid] if grid is not None else None,
                "count": 0,
            }
        self._found[identity]["count"] += 1


class Keys(Interceptor):
    """The key of the autotuners that a launch is inside of, whether one is timing, and what
    heuristics have set."""

    def __init__(self) -> None:
        self.current: list[dict[str, Any]] = []
        self.guessed: dict[str, None] = {}
        self.timing = 0

    def guess(self, layer: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        self.guessed.update(dict.fromkeys(layer.values))
        return proceed(*args, **kwargs)

    def tune(self, tuner: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
        self.current.append({name: _plain(given[name]) for name in tuner.keys if name in given})
        original = tuner._bench

        def bench(*args: Any, **kwargs: Any) -> Any:
            self.timing += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.timing -= 1

        tuner._bench = bench
        try:
            return proceed(*args, **kwargs)
        finally:
            tuner._bench = original
            self.current.pop()


def _specialization(
    kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, str] | None:
    """Argument → type with what the compiler may assume (``*bf16:16``), by Triton's own binder."""
    if not hasattr(kernel, "device_caches"):  # the interpreter specializes nothing
        return None
    from triton.runtime.driver import driver

    binder = kernel.device_caches[driver.active.get_current_device()][4]
    options = {k: v for k, v in kwargs.items() if k not in ("grid", "warmup")}
    _, found, _ = binder(*args, **options)
    return {
        name: str(kind) + (f"={_plain(assumed)}" if kind == "constexpr" else _suffix(assumed))
        for name, (kind, assumed) in zip(kernel.arg_names, found, strict=True)
    }


def _suffix(assumed: Any) -> str:
    """Triton's mark of divisibility by 16, ``D``, as its own signature syntax writes it."""
    return ":16" if isinstance(assumed, str) and "D" in assumed else ""


def _described(value: Any) -> Any:
    """A tensor by dtype, shape, strides and alignment, a dtype by its name; anything else as it is."""
    if type(value).__module__.startswith("triton.language") and type(value).__name__ == "dtype":
        return {"dtype": str(value)}
    if not hasattr(value, "dtype"):
        return _plain(value)
    described: dict[str, Any] = {"dtype": str(value.dtype).removeprefix("torch.")}
    if hasattr(value, "shape"):
        described |= {"shape": list(value.shape), "stride": list(value.stride())}
    if hasattr(value, "data_ptr"):
        described["aligned"] = value.data_ptr() % 16 == 0
    return described


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _defaults(kernel: Any) -> dict[str, Any]:
    parameters = inspect.signature(kernel.fn).parameters.items()
    return {n: p.default for n, p in parameters if p.default is not inspect.Parameter.empty}
