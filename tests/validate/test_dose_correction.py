"""Several statements about residency are one family: each alone would hold, together they need not."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from occupancy_probe.records import Dose, DosePoint, Replicate
from occupancy_probe.validate.dose import more_warps, wide_against_narrow

MARGIN, ALPHA = 0.01, 0.05
FASTER = (-0.027, -0.020, -0.013)
"""Log ratio of each process: p 3.9 % of no difference (t(2)), 7.7 % after Holm over two."""
SAME = (-0.0049, 0.0, 0.0049)
"""p 3.6 % of lying outside the margin, 7.2 % after Holm over two."""


def dose(arm, warps, times, workloads):
    """times: per dose, µs of every process, one block each, the same on all workloads."""
    processes = range(len(next(iter(times.values()))))
    replicates = [
        Replicate(process=p, allocation=0, arms={n: [t[p]] for n, t in times.items()})
        for p in processes
    ]
    return Dose(
        study="s", plan_commit=None, device="nvidia-h200", device_name="NVIDIA H200",
        device_uuid="GPU-0", arm=arm, config={"BLOCK_T": 32, "num_warps": warps}, num_warps=warps,
        points={n: DosePoint(ctas=int(n[-1]), shared_bytes=1) for n in times if "@" in n},
        grids=dict.fromkeys(workloads, 1000), replicates=dict.fromkeys(workloads, replicates),
        started_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip


def doses(logs, workloads, arms=("narrow",)):
    """Two CTAs of an arm take exp(logs) × 10 µs, one of it 10 µs, and so does one CTA of 8 warps."""
    flat = [10.0] * len(logs)
    two = [10 * math.exp(x) for x in logs]
    found = {
        a: dose(a, 4, {"baseline": flat, f"{a}@1": flat, f"{a}@2": two}, workloads) for a in arms
    }
    return found | {"wide": dose("wide", 8, {"baseline": flat, "wide@1": flat}, workloads)}


def verdicts(question, found):
    return [f.verdict for f in question(found, 132, MARGIN, ALPHA)]


def test_the_p_values_are_what_this_file_says():
    assert stats.ttest_1samp(FASTER, 0).pvalue == pytest.approx(0.0385, abs=1e-4)
    outside = stats.ttest_1samp(SAME, math.log1p(MARGIN), alternative="less").pvalue
    assert outside == pytest.approx(0.0361, abs=1e-4)


@pytest.mark.parametrize(
    ("question", "logs", "alone"),
    [
        (more_warps, FASTER, "confirmed"),
        (more_warps, SAME, "refuted"),
        (wide_against_narrow, FASTER, "refuted"),
        (wide_against_narrow, SAME, "confirmed"),
    ],
)
def test_what_is_claimed_of_one_workload_is_corrected_over_two(question, logs, alone):
    assert verdicts(question, doses(logs, ["c1"])) == [alone]
    assert verdicts(question, doses(logs, ["c1", "c96"])) == ["undecided"] * 2


@pytest.mark.parametrize("logs", [FASTER, SAME])
def test_what_is_claimed_of_one_arm_is_corrected_over_two(logs):
    assert verdicts(more_warps, doses(logs, ["c1"], ["narrow", "other"])) == ["undecided"] * 2
