"""The same binary with another footprint: padded launches through a driver that only notes them."""

from __future__ import annotations

import pytest
import torch
import triton
from conftest import FIXTURES

from occupancy_probe.exc import DeviceError
from occupancy_probe.gpu import target
from occupancy_probe.launch import driver as driver_room
from occupancy_probe.launch.load import load_problem
from occupancy_probe.launch.padding import Padding, max_active_ctas, padded_copy

NEEDED = 0
"""Bytes of shared memory that the row scaling needs by itself."""


class Noting(driver_room.CompileOnlyDriver):
    """A driver whose launches are notes: (shared bytes of the launch, handle, arguments)."""

    def __init__(self, of):
        super().__init__(of)
        self.launched, self.loaded = [], []
        noting = self

        class Launcher:
            def __init__(self, src, metadata):
                pass

            def __call__(self, x, y, z, stream, function, packed, *rest):
                noting.launched.append((packed[2], function))

        class Utils:
            def load_binary(self, name, kernel, shared, device):
                noting.loaded.append((name, kernel, shared))
                return object(), len(noting.loaded), 32, 0, 1024

            def get_device_properties(self, device):
                return {"max_shared_mem": 232_448}

            def unload_module(self, module):
                pass

        self.launcher_cls, self.utils = Launcher, Utils()


@pytest.fixture
def noting(imports, monkeypatch):
    from triton.runtime.driver import driver

    active = Noting(target("sm_90"))
    monkeypatch.setattr(driver_room, "_device_numbers", {"sm_90": 77})
    active._device = 77
    before = driver._active
    driver.set_active(active)
    yield active
    driver._active = before


@pytest.fixture
def problem(noting):
    return load_problem(FIXTURES / "tiny", "ScaleRows", {})


CONFIG = {"BLOCK": 512, "num_warps": 4, "num_stages": 2}
INPUTS = {"x": torch.zeros(4, 500, device="meta"), "y": torch.zeros(4, 500, device="meta")}


def test_a_padded_launch_takes_the_bytes_it_is_given_and_the_cached_kernel_stays(problem, noting):
    problem.launch(INPUTS, CONFIG)
    with Padding(problem.kernel, 100_000) as padding:
        problem.launch(INPUTS, CONFIG)
        problem.launch(INPUTS, CONFIG)
    problem.launch(INPUTS, CONFIG)
    assert [shared for shared, _ in noting.launched] == [NEEDED, 100_000, 100_000, NEEDED]
    assert [shared for *_, shared in noting.loaded] == [NEEDED, 100_000], "each is loaded once"
    codes = {code for _, code, _ in noting.loaded}
    assert len(codes) == 1, "the machine code is the same"
    assert padding.ctas == 4


def test_two_doses_of_one_kernel_side_by_side(problem, noting):
    low, high = Padding(problem.kernel, 50_000), Padding(problem.kernel, 200_000)
    for padding in (low, high, low, high):
        with padding:
            problem.launch(INPUTS, CONFIG)
    assert [shared for shared, _ in noting.launched] == [50_000, 200_000] * 2
    assert len(noting.loaded) == 2


def test_other_kernels_are_left_alone(problem, noting):
    @triton.jit
    def other(x):
        triton.language.store(x, 1.0)

    with Padding(problem.kernel, 50_000):
        other[(1,)](INPUTS["x"])
    assert [shared for shared, _ in noting.launched] == [0]


def test_a_warm_up_inside_loads_nothing(problem, noting):
    from occupancy_probe.launch import unwrap

    kernel = unwrap(problem.kernel)
    with Padding(problem.kernel, 50_000):
        kernel.run(*INPUTS.values(), 2.5, 500, grid=(4,), warmup=True, **CONFIG)
    assert noting.loaded == []


def test_less_than_the_kernel_needs_is_refused(problem, noting):
    from occupancy_probe.launch import unwrap

    compiled = unwrap(problem.kernel).run(
        *INPUTS.values(), 2.5, 500, grid=(4,), warmup=True, **CONFIG
    )
    with pytest.raises(ValueError, match="needs"):
        padded_copy(compiled, compiled.metadata.shared - 1)


def test_residency_is_asked_of_the_driver_and_of_nothing_else(problem, noting):
    with pytest.raises(DeviceError, match="nothing was launched"):
        Padding(problem.kernel, 50_000).resident_ctas()
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match="driver"):
            max_active_ctas(1, 128, 50_000)
