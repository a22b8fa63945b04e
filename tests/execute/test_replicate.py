"""The parts of a replicate that need no GPU: fresh memory, and which blocks count."""

from __future__ import annotations

import random

import torch

from occupancy_probe.execute.replicate import fresh, steady
from occupancy_probe.gpu import DeviceState


def test_fresh_memory_holds_the_same_values_and_shares_what_was_shared():
    shared = torch.arange(12.0)
    base = torch.arange(100.0)
    a = {"x": shared, "y": base[10:20], "z": base.view(10, 10).t(), "n": 7}
    b = {"x": shared, "y": torch.ones(3)}
    found = fresh([a, b], random.Random(1), "cpu")
    for before, after in zip([a, b], found, strict=True):
        assert before.keys() == after.keys()
        for name, value in before.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(after[name], value)
                assert after[name].stride() == value.stride()
                assert after[name].data_ptr() != value.data_ptr()
    assert found[0]["n"] == 7
    assert found[0]["x"].data_ptr() == found[1]["x"].data_ptr()
    found[0]["z"].fill_(5)
    assert found[0]["y"].eq(5).all(), "views of one buffer are views of one buffer"
    assert base[0] == 0


def state(mhz=1980, reasons=()):
    return DeviceState(mhz, 50, 300.0, tuple(reasons))


def test_blocks_with_a_throttle_reason_or_another_clock_do_not_count():
    states = [state(), state(1925), state(1900), state(reasons=["sw_power_cap"]), state()]
    assert steady(states, 0.03) == [True, True, False, False, True]


def test_a_set_application_clock_is_no_throttling():
    assert steady([state(reasons=["applications_clocks_setting"])] * 2, 0.03) == [True, True]
