"""Gates: equal to the gate passes, above it fails, NaN never passes, equal infinities do."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from occupancy_probe.execute.compare import fault, output_error
from occupancy_probe.launch import Tolerance


def verdict(result, reference, not_written=0, **gates):
    tolerance = Tolerance(**{"absolute": 0.0, "relative": 0.0} | gates)
    reference = torch.tensor(reference, dtype=torch.float64)
    result = (
        result if isinstance(result, torch.Tensor) else torch.tensor(result, dtype=torch.float64)
    )
    return fault(output_error(result, reference, tolerance, not_written), tolerance)


numbers = st.floats(-1e6, 1e6)
dyadic = st.integers(-(2**20), 2**20).map(lambda n: n / 2**10)
"""Sums and differences of these are exact."""
steps = st.integers(1, 2**20).map(lambda n: n / 2**10)


@given(st.lists(dyadic, min_size=1, max_size=6), steps, st.data())
def test_error_equal_to_the_gate_passes_and_above_fails(reference, gate, data):
    at = data.draw(st.integers(0, len(reference) - 1))
    sign = data.draw(st.sampled_from([1, -1]))
    result = list(reference)
    result[at] = reference[at] + sign * gate
    assert verdict(result, reference, absolute=gate) is None
    result[at] = reference[at] + sign * (gate + 2**-10)
    assert "elementwise gate" in verdict(result, reference, absolute=gate)


@given(dyadic.filter(bool), steps)
def test_the_relative_gate_grows_with_the_reference(reference, step):
    relative = step / 2**10
    assert verdict([reference + relative * reference], [reference], relative=relative) is None
    beyond = reference + 1.001 * relative * reference
    assert verdict([beyond], [reference], relative=relative) is not None


@given(st.lists(numbers | st.just(math.inf) | st.just(-math.inf), min_size=1), st.data())
def test_nan_never_passes(reference, data):
    result = list(reference)
    result[data.draw(st.integers(0, len(result) - 1))] = math.nan
    assert verdict(result, reference, absolute=math.inf, relative=math.inf) is not None


@given(st.lists(numbers | st.just(math.inf) | st.just(-math.inf)))
def test_equal_values_pass_the_tightest_gate(values):
    assert verdict(values, values, cosine=1e-12, norm=0.0) is None


@given(numbers, st.sampled_from([math.inf, -math.inf]))
def test_an_infinity_for_a_number_or_for_the_other_infinity_fails(value, infinity):
    assert verdict([infinity], [value], absolute=1e300) is not None
    assert verdict([value], [infinity], absolute=1e300) is not None
    assert verdict([-infinity], [infinity], absolute=1e300) is not None


@given(st.lists(numbers, min_size=2, max_size=6), st.floats(1.01, 3))
def test_the_norm_gate_sees_a_scaled_result_and_the_cosine_does_not(reference, scale):
    assume(math.hypot(*reference) > 1e-3)
    result = [scale * v for v in reference]
    wide = {"absolute": 1e9, "relative": 1e9}
    assert verdict(result, reference, cosine=1e-9, **wide) is None
    assert "relative norm" in verdict(result, reference, norm=(scale - 1) / 2, **wide)


def test_the_cosine_gate_sees_a_turned_result():
    wide = {"absolute": 10.0, "relative": 10.0}
    assert "1 - cosine" in verdict([0.0, 1.0], [1.0, 0.0], cosine=0.5, **wide)
    assert verdict([0.9, 0.1], [1.0, 0.0], cosine=0.5, **wide) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_an_output_of_any_dtype(dtype):
    assert verdict(torch.tensor([1.5, -2.0], dtype=dtype), [1.5, -2.0]) is None
    assert verdict(torch.tensor([1.5, -2.5], dtype=dtype), [1.5, -2.0], absolute=0.25) is not None


def test_what_was_not_written_fails_whatever_the_gates():
    assert verdict([1.0], [1.0], not_written=3, absolute=1.0) == "3 elements not written"


def test_a_zero_reference_and_an_empty_one():
    assert verdict([0.0, 0.0], [0.0, 0.0], cosine=0.0, norm=0.0) is None
    assert verdict([1e-3, 0.0], [0.0, 0.0], absolute=1e-2, norm=1e-6) is not None
    assert verdict([], [], cosine=0.0, norm=0.0) is None
