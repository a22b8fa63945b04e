"""Regret of the first touch, cases A2 and A9, and the advice that follows from it."""

from __future__ import annotations

import json

import pytest
from conftest import FIXTURES

from occupancy_probe.records import (
    Audit,
    AutotuneRun,
    AutotuneRuns,
    Bucket,
    DeviceVerdict,
    Measurement,
    Replicate,
    Result,
    TunedConfig,
    WiderKey,
)
from occupancy_probe.study import load_study
from occupancy_probe.validate.collect import DeviceRecords
from occupancy_probe.validate.first_touch import (
    advise,
    first_touches,
    matrix_of,
    winners,
    with_autotuner,
)

EXAMPLE = json.loads((FIXTURES / "autotune/first_touch_h200.json").read_text())
BATCHES = [f"b{b}" for b in EXAMPLE["batch"]]
CONFIGS = [
    {"BLOCK_T": 16, "num_warps": 4, "num_stages": 2},
    {"BLOCK_T": 16, "num_warps": 8, "num_stages": 2},
    {"BLOCK_T": 32, "num_warps": 8, "num_stages": 2},
]


@pytest.fixture(scope="module")
def example():
    return matrix_of(BATCHES, CONFIGS, EXAMPLE["us"], EXAMPLE["device"])


def loss(matrix, first, at):
    return matrix.losses[matrix.workloads.index(first)][matrix.workloads.index(at)]


def test_A2_touched_first_at_1_it_loses_22_percent_at_96(example):
    assert CONFIGS[example.chosen[0]] == CONFIGS[2]
    assert loss(example, "b1", "b96") == pytest.approx(0.220, abs=5e-4)
    assert loss(example, "b1", "b16") == pytest.approx(0.200, abs=5e-4)
    assert (example.worst_first, example.worst_at) == ("b1", "b96")
    assert example.worst == pytest.approx(0.220, abs=5e-4)


@pytest.mark.parametrize("first", BATCHES[2:])
def test_A2_touched_first_at_16_or_more_it_loses_17_percent_at_1(example, first):
    assert example.chosen[BATCHES.index(first)] == 0
    assert loss(example, first, "b1") == pytest.approx(0.168, abs=5e-4)


def test_A2_the_diagonal_loses_nothing(example):
    assert all(example.losses[i][i] == 0 for i in range(len(BATCHES)))


def test_A9_the_winner_is_a_distribution():
    near = [{0: [10.0, 10.1], 1: [10.2, 10.3]}, {0: [10.3, 10.4], 1: [10.1, 10.2]}]
    assert winners([*near, near[0]]) == {"0": 2, "1": 1}


def test_A9_on_a_tie_the_first_in_the_list_wins():
    assert winners([{1: [5.0], 0: [5.0]}] * 4) == {"0": 4}
    tied = matrix_of(["a"], CONFIGS[:2], [[7.0], [7.0]], "given")
    assert tied.chosen == [0]


def test_a_config_that_cannot_run_never_wins():
    made = matrix_of(["a", "b"], CONFIGS[:2], [[float("inf"), float("inf")], [7.0, 8.0]], "given")
    assert made.chosen == [1, 1]
    assert made.worst == 0


def audit(**more):
    return Audit(
        study="s",
        configs=[TunedConfig(config=c, fate={}) for c in CONFIGS],
        key=["topk_rounded"],
        **more,
    )


def measurements(replicates):
    """By workload; replicates: per workload, samples in µs by arm of each process."""
    return {
        w: Measurement(
            study="s", depends={}, versions={}, plan_commit=None, device="d", device_name="D",
            device_uuid="u", workload=w, regime="cold", input_sets=1, started_at="", gpu_seconds=1.0,
            replicates=[
                Replicate(process=p, allocation=0, arms=arms) for p, arms in enumerate(of)
            ],
        )
        for w, of in replicates.items()
    }  # fmt: skip


def wider(**more):
    return WiderKey(
        **{
            "added": ["batch"], "is_argument": True, "buckets": 7, "tuning_launches": 21,
            "seconds": 2.625, **more,
        }
    )  # fmt: skip


def test_the_advice_is_the_batch_in_the_key_where_that_can_be_done(example):
    found = advise(audit(wider_key=wider()), [example], 0.01)
    assert found.advice == "add to key"
    assert "b1 first costs 22.0 %" in found.why
    assert "21 tuned configs (2.62 s of timing)" in found.why


def test_A7_the_advice_counts_the_seconds_of_real_first_calls_where_there_are_any(example):
    runs = [
        AutotuneRun(workload="b1", winner=CONFIGS[2], seconds=1.0),
        AutotuneRun(workload="b1", winner=CONFIGS[2], seconds=2.0),
        AutotuneRun(workload="b1", winner={}, seconds=60.0, error="died"),
    ]
    record = AutotuneRuns(study="s", device="d", device_name="D", runs=runs, started_at="")
    found = advise(audit(wider_key=wider()), [example], 0.01, record)
    assert (
        "21 tuned configs (7 first calls of 1.5 s as measured, binaries cached after the first: 10.5 s)"
        in found.why
    )


def test_A7_the_seconds_of_a_devices_own_runs_reach_its_advice():
    study = load_study(FIXTURES / "touch.yaml")
    bucket = Bucket(key={"topk_rounded": 640}, workloads=["b1", "b64"], grids=[[1], [64]])
    times = {"baseline": (20.0, 10.0), "t32-w8": (10.0, 20.0)}
    device = DeviceVerdict(
        device="d", device_name="D", target="sm_90", source="measured here", measured_at="",
        plan_commit=None, preregistered=True, versions={}, decision="", adopted=None, conclusions=[],
        results=[
            Result(arm=a, workload=w, device="d", time_us=t, verdict="undecided")
            for a, both in times.items() for w, t in zip(("b1", "b64"), both, strict=True)
        ],
    )  # fmt: skip
    runs = [AutotuneRun(workload="b1", winner=CONFIGS[2], seconds=3.0)]
    record = AutotuneRuns(study="touch", device="d", device_name="D", runs=runs, started_at="")
    records = DeviceRecords("d", "D", "measured here", {}, {}, {}, autotune_runs=record)
    judged = with_autotuner(device, study, audit(wider_key=wider(), buckets=[bucket]), records)
    assert "7 first calls of 3 s as measured" in judged.tuning_advice.why


def test_A9_a_devices_records_become_its_matrix_and_its_winners_in_the_order_of_the_list():
    """Batch 1 takes 20 and 10 µs, batch 64 takes 10 and 12: the first of the list never loses twice."""
    study = load_study(FIXTURES / "touch.yaml")
    bucket = Bucket(key={"topk_rounded": 640}, workloads=["b1", "b64"], grids=[[1], [64]])
    times = {
        ("baseline", "b1"): 20,
        ("baseline", "b64"): 10,
        ("t32-w8", "b1"): 10,
        ("t32-w8", "b64"): 12,
    }
    replicates = {
        "b1": [{"baseline": [20.0], "t32-w8": [10.0]}] * 3,
        "b64": [{"baseline": [10.0], "t32-w8": [12.0]}] * 2
        + [{"baseline": [12.0], "t32-w8": [9.0]}],
    }
    records = DeviceRecords("d", "D", "measured here", {}, {}, measurements(replicates))
    rows = [
        Result(arm=a, workload=w, device="d", time_us=t, verdict="undecided")
        for (a, w), t in times.items()
    ]
    (touch,) = first_touches(study, audit(buckets=[bucket]), records, rows, "sm_90")
    assert touch.configs == [CONFIGS[0], CONFIGS[2]]
    assert touch.times_us == [[20, 10], [10, 12]]
    assert touch.chosen == [1, 0]
    assert touch.losses == [[0, pytest.approx(0.2)], [pytest.approx(1.0), 0]]
    assert (touch.worst_first, touch.worst_at) == ("b64", "b1")
    assert touch.winners == [{"1": 3}, {"0": 2, "1": 1}]


def test_the_advice_is_to_pin_per_bucket_where_the_key_cannot_see_it(example):
    found = advise(audit(wider_key=wider(is_argument=False)), [example], 0.01)
    assert found.advice == "pin per bucket"
    assert "is no argument of the kernel" in found.why
    assert found.per_workload["b1"] == CONFIGS[2]
    assert found.per_workload["b96"] == CONFIGS[0]


def test_the_advice_is_to_pin_per_bucket_where_the_warm_up_misses_the_new_keys(example):
    found = advise(audit(wider_key=wider(not_warmed=["b48", "b64"])), [example], 0.01)
    assert found.advice == "pin per bucket"
    assert "2 captured workloads would then tune inside the capture" in found.why


def test_the_advice_is_to_pin_one_config_that_is_good_everywhere():
    made = matrix_of(["a", "b"], CONFIGS[:2], [[10.0, 10.0], [9.99, 20.0]], "given")
    found = advise(audit(), [made], 0.01)
    assert (found.advice, found.config) == ("pin one config", CONFIGS[0])


def test_the_advice_is_to_keep_what_costs_less_than_the_margin():
    made = matrix_of(["a", "b"], CONFIGS[:2], [[10.0, 10.0], [9.95, 10.05]], "given")
    assert advise(audit(), [made], 0.01).advice == "keep"


def test_without_times_there_is_no_advice():
    assert advise(audit(), [], 0.01) is None
