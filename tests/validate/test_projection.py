"""Amdahl with intervals: what a kernel's gain means for the step."""

from __future__ import annotations

import pytest

from occupancy_probe.records import Interval
from occupancy_probe.validate.projection import (
    Paired,
    gain,
    needed_share,
    needed_speedup,
    needed_words,
    outcome,
    project,
    share_from_passes,
)


def interval(value, low=None, high=None):
    return Interval(value=value, low=low or value, high=high or value)


def test_M5_a_kernel_12_percent_faster_at_a_share_of_5_percent_gains_half_a_percent():
    ratio = interval(1 / 1.12, 1 / 1.13, 1 / 1.11)
    step = project(interval(0.05), ratio)
    assert step.value == pytest.approx(0.0054, abs=5e-5)
    assert 0.0049 < step.low < step.value < step.high < 0.0059
    assert outcome(ratio, step, minimum=0.01) == "kernel win, no system win"


def test_15_percent_needs_a_share_of_13_percent_at_any_speed_and_26_at_twice():
    assert needed_share(0.15) == pytest.approx(0.130, abs=1e-3)
    assert needed_share(0.15, 2.0) == pytest.approx(0.261, abs=1e-3)


def test_what_the_kernel_must_reach_for_the_projected_gain():
    assert needed_speedup(0.275, 0.15) == pytest.approx(1.90, abs=0.005)
    assert gain(0.275, 1 / needed_speedup(0.275, 0.15)) == pytest.approx(0.15)
    assert needed_speedup(0.13, 0.15) is None
    words = needed_words(interval(0.275, 0.25, 0.3), 0.15)
    assert words.startswith("to gain 15 % at a share of 27.5 % (25–30 %) the kernel must be 1.9 ×")


def test_a_share_that_is_too_small_is_said_to_be_impossible_at_any_speed():
    words = needed_words(interval(0.05), 0.15)
    assert "no kernel is fast enough" in words and "gains 5.3 %" in words and "13 %" in words


def test_a_loss_grows_with_the_share():
    step = project(interval(0.1, 0.05, 0.2), interval(1.2, 1.19, 1.21))
    assert step.low == pytest.approx(gain(0.2, 1.21)) and step.high == pytest.approx(
        gain(0.05, 1.19)
    )
    assert step.high < 0


@pytest.mark.parametrize(
    ("ratio", "step", "said"),
    [
        (interval(0.9, 0.89, 0.91), interval(0.03, 0.02, 0.04), "kernel win, system win"),
        (
            interval(0.9, 0.89, 0.91),
            interval(0.01, 0.005, 0.015),
            "kernel win, system win undecided",
        ),
        (interval(0.9, 0.89, 0.91), None, "not known"),
        (interval(1.0, 0.99, 1.01), interval(0.0, -0.01, 0.01), "no kernel win"),
        (interval(1.1, 1.09, 1.11), interval(-0.01, -0.02, -0.005), "kernel loss"),
    ],
)
def test_every_outcome_has_its_name(ratio, step, said):
    assert outcome(ratio, step, minimum=0.01) == said


def test_the_kernels_own_verdict_outweighs_its_interval():
    """Margin and the correction for many comparisons are known to the verdict alone."""
    above, below = interval(1.002, 1.0005, 1.0035), interval(0.997, 0.995, 0.999)
    for ratio in (above, below):
        assert outcome(ratio, interval(0.0), 0.01, "equivalent") == "no difference"
        assert outcome(ratio, interval(0.0), 0.01, "undecided") == "undecided"
    assert outcome(above, interval(0.0), 0.01, "slower") == "kernel loss"
    assert outcome(below, interval(0.0), 0.01, "faster") == "kernel win, no system win"


def test_the_share_is_what_a_second_pass_adds():
    pairs = [Paired(10.0, 10.0 * (1.08 + d)) for d in (-0.001, 0.0, 0.001, 0.0005, -0.0005)]
    share = share_from_passes(pairs, 0.05)
    assert share.value == pytest.approx(0.08, abs=1e-4)
    assert 0.078 < share.low < 0.08 < share.high < 0.082
    assert share_from_passes(pairs[:1], 0.05).low == pytest.approx(0.079)
