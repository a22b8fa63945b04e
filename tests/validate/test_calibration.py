"""The harness' own error rate and power, and those of naive methods, on simulated trials."""

from __future__ import annotations

import numpy as np
import pytest

from occupancy_probe.records import Calibration, Replicate
from occupancy_probe.validate.calibration import (
    HALF,
    NULL_TWIN,
    ONE,
    TWIN,
    A,
    Trial,
    claims_interleaved,
    claims_sequential,
    figures,
    line,
)

ARMS = {A: 1.0, NULL_TWIN: 1.0, TWIN: 1.0, ONE: 1.01, HALF: 1.005}


def trial(rng, bias=0.0011, noise=0.002, drift=0.004):
    """As an H200 was seen to behave: a steady bias of each allocation, block noise, slow drift."""
    replicates = []
    for process in range(10):
        arms = {
            name: (
                150
                * ratio
                * np.exp(bias / 2 * rng.standard_normal() + noise * rng.standard_normal(16))
            ).tolist()
            for name, ratio in ARMS.items()
        }
        replicates.append(Replicate(process=process, allocation=0, arms=arms))
    place = {name: bias * rng.standard_normal() for name in (A, TWIN)}
    mixed = {
        n: (150 * np.exp(b + noise * rng.standard_normal(64))).tolist() for n, b in place.items()
    }
    walk = drift * np.cumsum(rng.standard_normal(128)) / np.sqrt(128)
    run = 150 * np.exp(walk + noise * rng.standard_normal(128))
    return Trial(replicates, mixed, {A: run[:64].tolist(), TWIN: run[64:].tolist()})


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(1)
    return figures([trial(rng) for _ in range(100)], 0.05)


def test_M1_at_most_five_of_a_hundred_twins_are_told_apart(found):
    assert found["trials"] == 100
    assert found["claimed"] <= 5
    assert found["claimed"] <= found["claimed_by_p_alone"] <= 12


def test_naive_methods_claim_what_is_not_there(found):
    assert found["claimed_sequential"] >= 30
    assert found["claimed_interleaved"] >= 30


def test_one_percent_and_half_a_percent_are_seen(found):
    assert found["power_at_1_percent"] >= 0.99
    assert found["power_at_half_percent"] >= 0.9
    assert found["measured_at_1_percent"] == pytest.approx(1.01, abs=5e-4)
    assert found["measured_at_half_percent"] == pytest.approx(1.005, abs=5e-4)


def test_a_difference_in_the_wrong_direction_is_not_seen():
    rng = np.random.default_rng(2)
    swapped = []
    for _ in range(5):
        t = trial(rng)
        turned = [
            r.model_copy(update={"arms": {**r.arms, ONE: [v / 1.0201 for v in r.arms[ONE]]}})
            for r in t.replicates
        ]
        swapped.append(Trial(turned, t.interleaved, t.sequential))
    assert figures(swapped, 0.05)["power_at_1_percent"] == 0


def test_naive_methods_hold_their_level_where_samples_really_are_independent():
    rng = np.random.default_rng(3)
    claims = {claims_sequential: 0, claims_interleaved: 0}
    for _ in range(400):
        samples = {n: rng.normal(100, 1, 64).tolist() for n in (A, TWIN)}
        for method in claims:
            claims[method] += method(samples, 0.05)
    assert claims[claims_interleaved] <= 36
    assert claims[claims_sequential] <= 52, "trimming takes spread away, so it claims 8 % here"


def test_equal_samples_are_no_difference():
    assert not claims_interleaved({A: [1.0] * 9, TWIN: [1.0] * 9}, 0.05)


def test_the_line_of_the_report(found):
    record = Calibration(
        study="calibration",
        device="nvidia-h200",
        device_name="NVIDIA H200",
        device_uuid="GPU-0",
        processes=10,
        blocks=16,
        alpha=0.05,
        gpu_seconds_per_trial=0.4,
        samples_file="x.json",
        started_at="2026-01-02T03:04:05+00:00",
        **{**found, "claimed": 3, "power_at_1_percent": 0.96},
    )
    assert line(record).startswith(
        "this harness on this GPU (NVIDIA H200, 2026-01-02): claims 3 of 100 A/A; sees 1 % with 96 %"
    )
