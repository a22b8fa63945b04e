"""The parts of a replicate that need no GPU: fresh memory, and what is kept of the blocks."""

from __future__ import annotations

import random
import time

import torch

from occupancy_probe.execute import replicate
from occupancy_probe.execute.blocks import Spent
from occupancy_probe.execute.replicate import Timing, fresh, take_replicate
from occupancy_probe.execute.rotation import Rotation
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


class Event:
    """Of a device that does everything at once."""

    def __init__(self, enable_timing=True):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def query(self):
        return True

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3


class Arm:
    padding = None

    def launch(self, inputs):
        inputs["launches"].append(self)


class Stream:
    def synchronize(self):
        pass


def test_a_throttled_block_is_dropped_for_all_arms_and_taken_again(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    states = iter([(), ("sw_power_cap",), *[()] * 20])
    monkeypatch.setattr(
        replicate, "read_state", lambda uuid: DeviceState(1980, 50, 300.0, next(states))
    )
    arms, inputs = {name: Arm() for name in ("baseline", "null", "w8")}, {"launches": []}
    spent = Spent()
    found = take_replicate(
        arms, [inputs], Rotation(sets=1, launches=2, swept_bytes=0), None,
        Timing(blocks=5, regime="eager", clock_tolerance=0.03), (3, 1), 7, "GPU-1", spent,
    )  # fmt: skip
    assert (found.process, found.allocation, found.device_uuid) == (3, 1, "GPU-1")
    assert {arm: len(samples) for arm, samples in found.arms.items()} == dict.fromkeys(arms, 5)
    assert found.dropped == 1 and found.clocks.throttle == ["sw_power_cap"]
    assert len(inputs["launches"]) == 3 * (1 + 2 + 6 * 2)
    assert spent.arms.keys() == arms.keys() and spent.busy_s > 0
