"""In-place updates and arguments never read, off the TTIR of kernels compiled here."""

from __future__ import annotations

import sys

import pytest
from conftest import FIXTURES

from occupancy_probe.gpu import target
from occupancy_probe.launch.load import load_file
from occupancy_probe.launch.ttir import Flow


@pytest.fixture(scope="module")
def flow():
    import triton
    from triton.compiler import ASTSource

    from occupancy_probe.launch.driver import gpu_target

    module = load_file(FIXTURES / "updates.py")
    made = {}

    def compiled(name):
        if name not in made:
            function = getattr(module, name)
            kinds = {"n": "i32", "BLOCK": "constexpr"}
            signature = {a: kinds.get(a, "*i32") for a in function.arg_names}
            place = (function.arg_names.index("BLOCK"),)
            source = ASTSource(function, signature, {place: 64}, {})
            made[name] = Flow(
                triton.compile(source, target=gpu_target(target("sm_90"))).asm["ttir"]
            )
        return made[name]

    yield compiled
    sys.modules.pop("updates")


def updated(flow, name, *aliases):
    return {u.argument: u.by for u in flow(name).updates(aliases)}


def test_A3_load_add_store(flow):
    assert updated(flow, "accumulate") == {"s": "tt.store that depends on what was loaded from it"}


def test_a_store_through_a_loop_and_a_condition(flow):
    assert list(updated(flow, "through_a_loop")) == ["s"]
    assert list(updated(flow, "only_if_not_set")) == ["flag"]


def test_a_scratch_that_is_written_and_read_back_is_none(flow):
    assert updated(flow, "scratch") == {}


def test_names_that_stand_again_in_a_region_beside_are_not_confused(flow):
    assert updated(flow, "writes_in_a_loop") == {}


def test_atomics_that_add_are_and_those_that_can_be_repeated_are_none(flow):
    assert updated(flow, "atomics") == {"count": "tt.atomic_rmw add"}


def test_two_arguments_of_one_memory(flow):
    assert updated(flow, "normalise") == {}
    assert list(updated(flow, "normalise", ("x", "out"))) == ["out"]


def test_a_function_that_is_not_inlined_is_not_trusted(flow):
    assert updated(flow, "calls") == {"x": "a function that is not inlined"}


def test_A8_an_argument_that_nothing_uses(flow):
    assert flow("calls").unread() == {"n"}
    assert flow("accumulate").unread() == set()
