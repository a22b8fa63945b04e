"""Which blocks count, and how unsteady ones are taken again; no GPU is needed to decide that."""

from __future__ import annotations

import functools
import math
import random
from collections import Counter

import pytest
import torch
from scipy import stats

from occupancy_probe.execute import blocks as module
from occupancy_probe.execute.blocks import MOST, steady, take_blocks
from occupancy_probe.gpu import DeviceState


def state(mhz=1980, reasons=()):
    return DeviceState(mhz, 50, 300.0, tuple(reasons))


CAPPED = state(reasons=["sw_power_cap"])


def test_blocks_with_a_throttle_reason_or_another_clock_do_not_count():
    seen = [[state()], [state(1925)], [state(1900)], [CAPPED], [state()], [state()]]
    assert steady(seen, 0.03) == [True, True, False, False, True, True]


def test_a_set_application_clock_is_no_throttling():
    assert steady([[state(reasons=["applications_clocks_setting"])]] * 2, 0.03) == [True, True]


def test_a_block_that_is_throttled_later_than_its_start_does_not_count():
    assert steady([[state(), state()], [state(), CAPPED]], 0.03) == [True, False]


def test_clean_blocks_count_however_many_throttled_ones_have_lower_clocks():
    capped = [state(1700, ["sw_power_cap"])]
    assert steady([capped, capped, [state()], capped, [state()]], 0.03) == [
        False,
        False,
        True,
        False,
        True,
    ]


class Gpu:
    """Runs one block at a time, each for two looks; some are throttled, by number."""

    def __init__(self, throttled):
        self.throttled, self.queued, self.waiting, self.ahead = throttled, 0, [], []

    def queue(self):
        block = Block(self.queued)
        self.queued += 1
        self.waiting = [b for b in self.waiting if not b.over] + [block]
        self.ahead.append(len(self.waiting))
        return block

    def read(self):
        running = next(b for b in self.waiting if not b.over)
        return CAPPED if running.number in self.throttled else state()

    def take(self, wanted):
        return take_blocks(self.queue, wanted, self.read, 0.03, rest_s=0.0)


class Block:
    def __init__(self, number):
        self.number, self.looks = number, 0

    @property
    def over(self):
        return self.looks >= 2

    def ended(self):
        self.looks += 1
        return self.over


def test_steady_blocks_are_queued_one_ahead_and_no_more_are_taken_than_wanted():
    gpu = Gpu(throttled=())
    assert [b.number for b, _ in gpu.take(6)] == list(range(6))
    assert max(gpu.ahead) == 2


def test_unsteady_blocks_are_taken_again_one_at_a_time():
    gpu = Gpu(throttled={1, 2, 5})
    taken = gpu.take(6)
    kept = steady([states for _, states in taken], 0.03)
    assert [b.number for (b, _), k in zip(taken, kept, strict=True) if not k] == [1, 2, 5]
    assert kept.count(True) == 6 and len(taken) == 9
    assert gpu.ahead[3:] == [1] * 6, "after the first unsteady one nothing is queued ahead"


@pytest.mark.parametrize("wanted", [4, 6])
def test_a_gpu_that_never_recovers_ends_the_replicate(wanted):
    gpu = Gpu(throttled=range(1000))
    assert len(gpu.take(wanted)) == MOST * wanted


# -- order ------------------------------------------------------------------------------------------

ARMS = ("baseline", "null", "w8", "s1")


def orders(monkeypatch, seed, blocks):
    """Order in which each of ``blocks`` blocks launches the arms, as a GPU would see it."""
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(module, "event", object)
    rng, found = random.Random(seed), []
    for _ in range(blocks):
        order = []
        ready = {arm: functools.partial(order.append, arm) for arm in ARMS}
        module.Block(ready, sweep=False, rng=rng)
        assert sorted(order) == sorted(ARMS), "every arm once"
        found.append(tuple(order))
    return found


def test_every_order_of_the_arms_is_as_likely_as_any_other(monkeypatch):
    """4 arms have 24 orders; 2,400 blocks: chi-square over them with 23 degrees of freedom."""
    counts = Counter(orders(monkeypatch, seed=1, blocks=2400))
    assert len(counts) == math.factorial(len(ARMS))
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3
    for place in range(len(ARMS)):
        assert {order[place] for order in counts} == set(ARMS)


def test_the_order_of_every_block_follows_from_the_seed(monkeypatch):
    first = orders(monkeypatch, seed=1, blocks=20)
    assert orders(monkeypatch, seed=1, blocks=20) == first
    assert orders(monkeypatch, seed=2, blocks=20) != first
