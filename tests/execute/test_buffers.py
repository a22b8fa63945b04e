"""Outputs lie between poisoned guards; both what is missing and what is too much is counted."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from occupancy_probe.execute.buffers import GUARD_ROWS, guard_outputs

DTYPES = [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float64, torch.int32]


def guarded(shape, dtype=torch.float32):
    made = guard_outputs({"x": 3, "y": torch.empty(shape, dtype=dtype)}, ("y",))
    made.poison()
    return made


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (3, 7), (2, 3, 16)])
def test_untouched_then_written(shape, dtype):
    made = guarded(shape, dtype)
    assert made.inputs["x"] == 3
    assert made.inputs["y"].shape == torch.Size(shape)
    assert made.inputs["y"].is_contiguous()
    assert made.inputs["y"].data_ptr() % 16 == 0
    assert made.not_written("y") == made.inputs["y"].numel()
    assert made.guard_rows_overwritten() == 0
    made.inputs["y"].copy_(torch.ones(shape))
    assert made.not_written("y") == 0
    assert made.guard_rows_overwritten() == 0


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_floating_point])
def test_the_poison_is_nan(dtype):
    assert guarded((3, 4), dtype).inputs["y"].float().isnan().all()


@given(st.sets(st.integers(0, GUARD_ROWS - 1)), st.sets(st.integers(0, GUARD_ROWS - 1)), st.data())
def test_rows_overwritten_before_and_after_are_counted(before, after, data):
    made = guarded((4, 8))
    raw = made.buffers["y"].view(torch.float32).view(-1, 8)
    for row in before:
        raw[row, data.draw(st.integers(0, 7))] = 0.0
    for row in after:
        raw[GUARD_ROWS + 4 + row, data.draw(st.integers(0, 7))] = 0.0
    assert made.guard_rows_overwritten() == len(before) + len(after)
    assert made.not_written("y") == 32
    made.poison()
    assert made.guard_rows_overwritten() == 0


def test_the_problems_own_inputs_are_left_alone():
    inputs = {"y": torch.zeros(4, 4), "x": torch.ones(2)}
    made = guard_outputs(inputs, ("y",))
    made.poison()
    assert inputs["y"].eq(0).all()
    assert made.inputs["x"] is inputs["x"]
