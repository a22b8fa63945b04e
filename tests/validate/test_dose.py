"""The two statements about residency against simulated truth; all seeds fixed."""

from __future__ import annotations

import numpy as np
import pytest

from occupancy_probe.records import Dose, DosePoint, DoseVerdict, Replicate
from occupancy_probe.validate.dose import judge_doses, more_warps, wide_against_narrow
from occupancy_probe.validate.dose_plot import dose_plot

PROCESSES, ALLOCATIONS, BLOCKS = 6, 2, 8


def doses(truth, seed, spread=0.001, grids=1000):
    """Two arms of 4 and 8 warps that differ in nothing else; truth: dose name → µs."""
    rng = np.random.default_rng(seed)
    arms = {"narrow": 4, "wide": 8}
    names = [n for n in truth if "@" in n]
    keys = [(p, a) for p in range(PROCESSES) for a in range(ALLOCATIONS)]
    samples = {
        key: {
            n: (
                truth[n]
                * np.exp(spread * rng.standard_normal() + 0.002 * rng.standard_normal(BLOCKS))
            ).tolist()
            for n in ["baseline", *names]
        }
        for key in keys
    }
    found = {}
    for arm, warps in arms.items():
        own = [n for n in names if n.startswith(f"{arm}@")]
        points = {
            n: DosePoint(ctas=int(n[-1]), shared_bytes=1, driver_ctas=int(n[-1])) for n in own
        }
        replicates = [
            Replicate(
                process=p,
                allocation=a,
                arms={n: samples[p, a][n] for n in ["baseline", *own]},
            )
            for p, a in keys
        ]
        found[arm] = Dose(
            study="s",
            plan_commit=None,
            device="nvidia-h200",
            device_name="NVIDIA H200",
            device_uuid="GPU-0",
            arm=arm,
            config={"BLOCK_T": 32, "num_warps": warps},
            num_warps=warps,
            points=points,
            grids={"c96": grids},
            replicates={"c96": replicates},
            started_at="2026-01-01T00:00:00+00:00",
        )
    return found


MEASURED = {"baseline": 56.4, "narrow@2": 56.4, "narrow@1": 65.1, "wide@1": 66.9}
"""The trial kernel on one H200 (C96, 4 splits, 2 stages), µs."""


def test_the_trial_kernels_times_refute_one_wide_cta_and_confirm_more_warps():
    found = doses(MEASURED, seed=1)
    [hides] = more_warps(found, 132, 0.01, 0.05)
    assert (hides.verdict, hides.text) == ("confirmed", "narrow: 2 × 4 warps against 1 × 4")
    assert hides.low < 56.4 / 65.1 < hides.high
    [same] = wide_against_narrow(found, 132, 0.01, 0.05)
    assert (same.verdict, same.text) == ("refuted", "wide: 1 × 8 warps against narrow: 2 × 4")
    assert same.low < 66.9 / 56.4 < same.high


def test_equal_times_confirm_one_wide_cta_and_refute_more_warps():
    found = doses(dict.fromkeys(MEASURED, 50.0), seed=2)
    assert [f.verdict for f in more_warps(found, 132, 0.01, 0.05)] == ["refuted"]
    assert [f.verdict for f in wide_against_narrow(found, 132, 0.01, 0.05)] == ["confirmed"]


def test_noise_leaves_both_undecided():
    found = doses(dict.fromkeys(MEASURED, 50.0), seed=3, spread=0.05)
    verdict = judge_doses(found, "NVIDIA H200", 0.01, 0.05)
    assert {f.verdict for f in verdict.findings} == {"undecided"}


@pytest.mark.parametrize("question", [more_warps, wide_against_narrow])
def test_error_rate_of_both_statements(question):
    """True ratio exactly at the margin: neither the one nor the other may be claimed too often."""
    at_margin = {"baseline": 50.0, "narrow@2": 50.0, "narrow@1": 50.5, "wide@1": 50.5}
    claimed = sum(
        question(doses(at_margin, seed=10 + i, spread=0.003), 132, 0.01, 0.05)[0].verdict
        == ("refuted" if question is more_warps else "confirmed")
        for i in range(200)
    )
    assert claimed <= 20, "5 % of 200, and binomial error"


def test_a_grid_too_small_for_the_dose_is_no_test():
    """On 132 SMs 96 CTAs are one per SM whatever fits: nothing is learned and nothing is claimed."""
    found = doses(MEASURED, seed=4, grids=96)
    assert more_warps(found, 132, 0.01, 0.05) == []
    assert wide_against_narrow(found, 132, 0.01, 0.05) == []
    verdict = judge_doses(found, "NVIDIA H200", 0.01, 0.05)
    assert {f.resident_ctas for f in verdict.figures} == {1}


def test_arms_of_two_runs_are_not_paired():
    found = doses(MEASURED, seed=5)
    later = {"started_at": "2026-01-02T00:00:00+00:00"}
    found["wide"] = found["wide"].model_copy(update=later)
    assert wide_against_narrow(found, 132, 0.01, 0.05) == []


def test_arms_that_differ_in_more_than_warps_are_not_compared():
    found = doses(MEASURED, seed=6)
    other = {"config": {"BLOCK_T": 16, "num_warps": 8}}
    found["wide"] = found["wide"].model_copy(update=other)
    assert wide_against_narrow(found, 132, 0.01, 0.05) == []


def test_a_cap_that_the_driver_denies_is_said():
    found = doses(MEASURED, seed=7)
    points = dict(found["narrow"].points)
    points["narrow@2"] = points["narrow@2"].model_copy(update={"driver_ctas": 1})
    found["narrow"] = found["narrow"].model_copy(update={"points": points})
    verdict = judge_doses(found, "NVIDIA H200", 0.01, 0.05)
    assert "narrow@2: padded for 2 CTAs per SM, the driver says 1" in verdict.notes


def test_nothing_measured_is_nothing_said():
    found = doses(MEASURED, seed=8)
    empty = {a: d.model_copy(update={"replicates": {}}) for a, d in found.items()}
    assert judge_doses(empty, "NVIDIA H200", 0.01, 0.05) is None
    assert judge_doses({}, "NVIDIA H200", 0.01, 0.05) is None


def test_the_plot_is_the_same_for_the_same_records_and_names_arms_and_workloads():
    verdict = judge_doses(doses(MEASURED, seed=9), "NVIDIA H200", 0.01, 0.05)
    assert isinstance(verdict, DoseVerdict)
    svg = dose_plot(verdict)
    assert svg == dose_plot(verdict)
    assert all(word in svg for word in ("narrow", "wide", "c96", "resident warps"))
    assert svg.startswith("<svg")


def test_the_sentences_say_verdict_workload_and_interval():
    verdict = judge_doses(doses(MEASURED, seed=1), "NVIDIA H200", 0.01, 0.05)
    one, other = verdict.sentences
    assert one.startswith(
        "more warps hide the latency — narrow: 2 × 4 warps against 1 × 4: confirmed at c96"
    )
    assert other.startswith("one wide CTA equals two narrow ones — wide: 1 × 8 warps")
    assert "refuted at c96 (ratio 1.18" in other
