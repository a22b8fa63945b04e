"""See to it that nothing is compiled where it must not be, and that all is compiled before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from occupancy_probe.exc import DeviceError
from occupancy_probe.gpu import Target
from occupancy_probe.launch.device import planned_sm_count
from occupancy_probe.launch.driver import compile_only
from occupancy_probe.launch.intercept import Interceptor, Run, intercepting
from occupancy_probe.launch.problem import Problem


class CompiledWhileHeld(DeviceError):
    """A kernel was compiled while the GPU was held."""


@contextmanager
def nothing_compiles(during: Callable[[], str]) -> Iterator[None]:
    """Inside, a compile that is no hit of Triton's cache raises :class:`CompiledWhileHeld`.

    during: what is being done, asked when it happens. Loading a binary is allowed.
    """
    from triton import knobs

    def listener(*, src: Any, cache_hit: bool, **event: Any) -> None:
        if not cache_hit:
            name = getattr(getattr(src, "fn", None), "__name__", "a kernel")
            raise CompiledWhileHeld(
                f"{during()}: {name} was compiled while the GPU was held; its launch differs from"
                " the one on meta tensors: make the Problem's launch depend on shapes only"
            )

    before, knobs.compilation.listener = knobs.compilation.listener, listener
    try:
        yield
    finally:
        knobs.compilation.listener = before


class _WarmUp(Interceptor):
    """Compiles every launch and runs none."""

    def launch(self, kernel: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        compiled = proceed(*args, **{**kwargs, "warmup": True})
        make_launcher(compiled)
        return compiled


def compile_launches(
    problem: Problem,
    axes: Mapping[str, Any],
    config: Mapping[str, Any],
    target: Target,
    sm_count: int,
) -> None:
    """Compile what ``problem.launch`` launches on one workload into Triton's cache, without a GPU.

    Through Triton's own binder on meta tensors, so that the launch on ``target`` finds it there.
    sm_count: of the GPU that it will run on.
    """
    with planned_sm_count(sm_count), compile_only(target), intercepting(_WarmUp()):
        problem.launch(problem.make_inputs(axes, "meta", 0), config)


class _Load(Interceptor):
    """Loads the binary of every launch and runs none."""

    def launch(self, kernel: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        compiled = proceed(*args, **{**kwargs, "warmup": True})
        compiled._init_handles()
        return compiled


def load_launches(
    problem: Problem, axes: Mapping[str, Any], config: Mapping[str, Any], sm_count: int
) -> None:
    """Load what ``problem.launch`` launches on one workload into the driver of the GPU that is here.

    From Triton's cache, see :func:`compile_launches`; nothing runs.
    """
    with planned_sm_count(sm_count), intercepting(_Load()):
        problem.launch(problem.make_inputs(axes, "meta", 0), config)


def make_launcher(compiled: Any) -> None:
    """Up to Triton 3.6 every signature has a C launcher of its own, cached like the kernel."""
    from triton.backends.nvidia import driver

    if hasattr(driver, "make_launcher"):
        try:
            driver.CudaLauncher(compiled.src, compiled.metadata)
        except Exception:  # no CUDA libraries here: it is made when the kernel is first loaded
            return
