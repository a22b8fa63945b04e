"""The reader's questions, answered from an audit and measured first touches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import FIXTURES

from occupancy_probe.records import (
    Audit,
    AutotuneRun,
    AutotuneRuns,
    Bucket,
    CaptureSafety,
    DeviceVerdict,
    InPlace,
    KeyReached,
    TunedConfig,
    WiderKey,
)
from occupancy_probe.study import load_study
from occupancy_probe.validate.first_touch import advise, matrix_of, mean_first_call
from occupancy_probe.validate.tuning_answers import answers

EXAMPLE = json.loads(Path(FIXTURES, "autotune/first_touch_h200.json").read_text())
BATCHES = [f"b{b}" for b in EXAMPLE["batch"]]
CONFIGS = [{"BLOCK_T": t, "num_warps": w, "num_stages": 2} for t, w in ((16, 4), (16, 8), (32, 8))]
STUDY = load_study(FIXTURES / "touch.yaml")


def audit(**more):
    return Audit(
        study="touch",
        key=["topk_rounded"],
        configs=[TunedConfig(config=c, fate={"sm_90": "fits"}) for c in CONFIGS],
        buckets=[
            Bucket(
                key={"topk_rounded": 640}, dtypes=["float32"], workloads=BATCHES,
                grids=[[b, 16] for b in EXAMPLE["batch"]], configs=3,
            )
        ],
        grid_blind=["batch"],
        tuning_launches=3,
        seconds_per_config=0.125,
        wider_key=WiderKey(
            added=["batch"], is_argument=False, buckets=7, tuning_launches=21, seconds=2.625
        ),
        **more,
    )  # fmt: skip


def device(found, **more):
    touch = matrix_of(BATCHES, CONFIGS, EXAMPLE["us"], "given")
    return DeviceVerdict(
        device="nvidia-h200", device_name="NVIDIA H200", target="sm_90", source="measured here",
        measured_at="", plan_commit=None, preregistered=True, versions={}, decision="", adopted=None,
        conclusions=[], results=[], first_touch=[touch],
        tuning_advice=advise(found, [touch], 0.01), **more,
    )  # fmt: skip


def asked(found, devices):
    return {a.question: a.answer for a in answers(STUDY, found, devices)}


@pytest.fixture(scope="module")
def said():
    found = audit()
    return asked(found, [device(found)])


def test_the_key_and_what_triton_adds_to_it(said):
    assert said["What is the key?"].startswith("topk_rounded; Triton adds the element types")
    assert "7 workloads fall into 1 bucket" in said["What is the key?"]


def test_A2_the_batch_matters_by_22_percent(said):
    assert "yes, up to 22.0 % at b96 if touched first at b1" in said["Does batch matter?"]


def two_buckets(found, **more):
    """The example's bucket, and a second one of its first two batches."""
    one = device(found, **more)
    second = matrix_of(["b1-k2", "b8-k2"], CONFIGS[:2], [[1.0, 2.0], [1.1, 1.0]], "given")
    return one.model_copy(update={"first_touch": [*one.first_touch, second]})


def test_each_of_several_buckets_is_named():
    found = audit()
    said = asked(found, [two_buckets(found)])
    first, second = "NVIDIA H200, bucket of b1 … b96: ", "NVIDIA H200, bucket of b1-k2 … b8-k2: "
    for question in ("Does batch matter?", "Would num_warps=8 ever be chosen?"):
        assert first in said[question] and second in said[question]
        assert "H200: " not in said[question], "which bucket?"
    assert said["What would batch in the key cost?"].endswith(
        "22.0 % on NVIDIA H200, bucket of b1 … b96; 100.0 % on NVIDIA H200, bucket of b1-k2 … b8-k2."
    )


def runs_of(*seconds):
    runs = [AutotuneRun(workload="b1", winner=CONFIGS[2], seconds=s) for s in seconds]
    return AutotuneRuns(
        study="touch", device="nvidia-h200", device_name="NVIDIA H200", runs=runs, started_at=""
    )


def test_seconds_of_real_first_calls_are_told_to_three_digits():
    found = audit()
    said = asked(found, [device(found, autotune_runs=runs_of(0.948, 0.951, 1.036))])
    assert "(0.951 s a first call, 1.04 s at most)" in said["Would num_warps=8 ever be chosen?"]


def test_A7_where_real_first_calls_were_timed_the_cost_is_theirs():
    found = audit()
    said = asked(found, [device(found, autotune_runs=runs_of(1.0, 2.0))])
    assert (
        "first calls on NVIDIA H200 took 1.5 s on average, binaries cached after the first: 10.5 s instead of 1.5 s"
        in said["What would batch in the key cost?"]
    )


def test_the_mean_of_first_calls_is_the_same_whatever_pythons_sum_rounds():
    """From 3.12 on ``sum`` compensates its rounding: 0.8425 of twenty would be 0.842 or 0.843."""
    seconds = [1.0, 1e16, 1.0, -1e16]
    assert mean_first_call(runs_of(*seconds)) == 0.5


def test_8_warps_are_chosen_at_small_batches(said):
    answer = said["Would num_warps=8 ever be chosen?"]
    assert "yes, if touched first at" in answer
    assert "and is then used for all" in answer


def test_A7_the_cost_of_a_key_that_sees_the_batch(said):
    answer = said["What would batch in the key cost?"]
    assert (
        "7 buckets instead of 1: 21 tuned configs instead of 3, 2.62 s instead of 0.375 s" in answer
    )
    assert "must first become an argument" in answer
    assert "22.0 % on NVIDIA H200" in answer


def test_the_advice_comes_last(said):
    assert list(said)[-1] == "What to do about it?"
    assert "pin per bucket" in said["What to do about it?"]


def test_A6_capture(said):
    assert "names no warm-up and capture lists" in said["Is capture safe?"]
    safe = CaptureSafety(warmup=["b1"], capture=["b1", "b8"], first_in_capture=[], calls=["b1"])
    assert asked(audit(capture=safe), [])["Is capture safe?"].startswith(
        "Yes: the warm-up list (b1)"
    )
    late = KeyReached(workload="b8-k1024", key={"topk_rounded": 1024})
    unsafe = CaptureSafety(warmup=["b1"], capture=["b8"], first_in_capture=[late], calls=["b8"])
    answer = asked(audit(capture=unsafe), [])["Is capture safe?"]
    assert answer.startswith("No: first reached inside capture: b8-k1024 (topk_rounded=1024)")


def test_A3_corruption():
    assert asked(audit(), [])["Can tuning corrupt results?"].startswith("No:")
    update = InPlace(
        argument="s", by="tt.atomic_rmw fadd", status="unsafe", bytes=1024, after_first_call=13
    )
    answer = asked(audit(in_place=[update]), [])["Can tuning corrupt results?"]
    assert "s: unsafe" in answer
    assert "10 becomes 13 instead of 11" in answer


def test_A9_real_runs_are_told_as_counts():
    runs = [AutotuneRun(workload="b1", winner=CONFIGS[2], seconds=1.0)] * 18
    runs += [AutotuneRun(workload="b1", winner=CONFIGS[0], seconds=9.0)] * 2
    record = AutotuneRuns(
        study="touch", device="nvidia-h200", device_name="NVIDIA H200", runs=runs, started_at=""
    )
    found = audit()
    answer = asked(found, [device(found, autotune_runs=record)])[
        "Would num_warps=8 ever be chosen?"
    ]
    assert "BLOCK_T=32 num_warps=8 num_stages=2 18 of 20" in answer
    assert "BLOCK_T=16 num_warps=4 num_stages=2 2 of 20" in answer


def test_without_a_device_nothing_is_guessed():
    said = asked(audit(), [])
    lack = "not measured: that takes times of two of the autotuner's configs at least."
    assert said["Does batch matter?"].endswith(f"decides for all. What that costs is {lack}")
    assert said["Would num_warps=8 ever be chosen?"] == lack.capitalize()
    assert said["What would batch in the key cost?"].endswith("an argument of the kernel.")
    assert said["What to do about it?"] == "No advice: what a first touch costs is not measured."


def test_without_an_autotuner_there_are_no_questions():
    assert answers(STUDY, Audit(study="touch"), []) == []
