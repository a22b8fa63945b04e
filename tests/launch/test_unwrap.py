"""The kernel under autotuners, heuristics and whatever libraries wrap around them."""

from __future__ import annotations

import functools
import sys

import pytest
import torch
from conftest import FIXTURES

from occupancy_probe.exc import ProblemError
from occupancy_probe.gpu import target
from occupancy_probe.launch import forced, unwrap
from occupancy_probe.launch.load import load_file
from occupancy_probe.launch.stubs import Inert
from occupancy_probe.launch.trace import recording
from occupancy_probe.launch.unwrap import launchable


@pytest.fixture(scope="module")
def kernels():
    yield load_file(FIXTURES / "stacks.py")
    sys.modules.pop("stacks")


class Keeps:
    """A wrapper that keeps its kernel under a given name."""

    def __init__(self, place, kernel):
        self.cache, self.lock, self.name = {}, object(), "entry"
        setattr(self, place, kernel)


class Slotted:
    __slots__ = ("kernel",)

    def __init__(self, kernel):
        self.kernel = kernel


def wrapped(kernel):
    """A plain function around what launches; `__wrapped__` leads to it."""

    def launch(x):
        return kernel[(1,)](x)

    @functools.wraps(launch)
    def call(*args):
        return launch(*args)

    return call


def closure(kernel):
    return lambda x: kernel[(1,)](x)


class CustomOp:
    def __init__(self, kernel):
        self._init_fn, self._schema = closure(kernel), "op(Tensor x) -> ()"

    def method(self):
        return None


def operator_of_torch(kernel):
    @torch.library.custom_op("occupancy_probe_tests::launches", mutates_args=())
    def launches(x: torch.Tensor) -> torch.Tensor:
        kernel[(1,)](x)
        return x.clone()

    return launches


WRAPPERS = {
    "fn": functools.partial(Keeps, "fn"),
    "kernel": functools.partial(Keeps, "kernel"),
    "jit_function": functools.partial(Keeps, "jit_function"),
    "an unknown attribute": functools.partial(Keeps, "compiled_thing"),
    "slots": Slotted,
    "functools.wraps": wrapped,
    "a closure": closure,
    "functools.partial": lambda kernel: functools.partial(closure(kernel)),
    "a custom operator": CustomOp,
    "a bound method": lambda kernel: CustomOp(kernel).method,
    "torch.library.custom_op": operator_of_torch,
    "a wrapper of a wrapper": lambda kernel: Keeps("kernel", Keeps("impl", wrapped(kernel))),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize(
    "stack", ["bare", "tuned_over_guessed", "guessed_over_tuned", "tuned_twice"]
)
def test_the_kernel_under_any_stack(kernels, wrapper, stack):
    assert unwrap(WRAPPERS[wrapper](getattr(kernels, stack))) is kernels.bare


def test_what_triton_launches_keeps_its_layers(kernels):
    assert launchable(Keeps("kernel", kernels.tuned_twice)) is kernels.tuned_twice


def test_a_library_wrapper_is_left_out_of_a_forced_launch(kernels):
    outer = Keeps("kernel", kernels.tuned_over_guessed)
    x = torch.empty(128, device="meta")
    with recording(target("sm_90"), FIXTURES) as noted:
        forced(outer, {"BLOCK": 32, "num_warps": 8})[(4,)](x, x, 128)
    [(spec, call)] = noted
    assert (spec.kernel, spec.options, call.scalars["EVEN"]) == ("bare", {"num_warps": 8}, True)


@pytest.mark.parametrize("thing", [3, "bare", None, len, torch, object(), Inert("a.b"), {}, int])
def test_no_kernel_inside(thing):
    with pytest.raises(ProblemError, match="holds no Triton kernel; name the function"):
        unwrap(thing)


def test_two_kernels_inside_are_named(kernels):
    two = Keeps("parts", [kernels.bare, kernels.add])
    with pytest.raises(ProblemError, match="holds several kernels: add, bare; name one of them"):
        unwrap(two)


def test_a_wrapper_that_holds_itself_ends(kernels):
    loop = Keeps("myself", None)
    loop.myself = loop
    with pytest.raises(ProblemError, match="holds no Triton kernel"):
        unwrap(loop)
