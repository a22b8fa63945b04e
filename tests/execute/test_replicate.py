"""The part of a replicate that needs no GPU: fresh memory."""

from __future__ import annotations

import random

import torch

from occupancy_probe.execute.replicate import fresh


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
