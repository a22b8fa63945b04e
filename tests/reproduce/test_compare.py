"""Figure against figure, and the one word for all of them."""

from __future__ import annotations

import pytest

from occupancy_probe.records import (
    Check,
    Correctness,
    DeviceVerdict,
    Feasibility,
    Figure,
    Reason,
    Result,
)
from occupancy_probe.reproduce.compare import compare_correctness, compare_verdicts, sum_up
from occupancy_probe.reproduce.drift import compare_matrices, verdict_changes, versions_text


def record(arm="w8", triton="3.6.0", **changes):
    fields = {
        "study": "s",
        "versions": {"triton": triton},
        "arm": arm,
        "config": {"num_warps": 8},
        "target": "sm_120",
        "verdict": "fits",
        "registers": 128,
        "shared_bytes": 82176,
        "ctas_per_sm": 1,
        "code_sha256": "a" * 64,
    }
    return Feasibility(**fields | changes)


def matrix(*records):
    return {"sm_120": {r.arm: r for r in records}}


def test_H3_the_same_under_another_triton_is_the_same_with_both_versions():
    (f,) = compare_matrices(matrix(record()), matrix(record(triton="3.7.1")))
    assert (f.outcome, f.changes, f.where) == ("same", [], "sm_120")
    assert versions_text([f]) == "triton 3.6.0 → triton 3.7.1"


def test_H3_moved_from_to():
    new = record(triton="3.7.1", registers=124, code_sha256="b" * 64)
    (f,) = compare_matrices(matrix(record()), matrix(new))
    assert f.outcome == "moved"
    assert next((c.what, c.before, c.after) for c in f.changes) == ("registers", 128, 124)
    assert verdict_changes([f]) == []


def test_H3_an_arm_that_no_longer_fits_is_reversed_and_named():
    over = Reason(
        limit="shared memory", required=131072, allowed=101376, text="131,072 B > 101,376 B"
    )
    new = record(triton="3.9.0", verdict="rejected", reasons=[over])
    (f,) = compare_matrices(matrix(record()), matrix(new))
    assert f.outcome == "reversed" and "131,072 B" in f.why
    assert verdict_changes([f]) == ["w8 on sm_120: fits → rejected (triton 3.6.0 → triton 3.9.0)"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ({}, matrix(record()), "no record before"),
        (matrix(record()), {}, "no record now"),
        (matrix(record()), matrix(record(config={"num_warps": 4})), "is now {'num_warps': 4}"),
    ],
)
def test_H3_not_comparable_says_why(old, new, why):
    (f,) = compare_matrices(old, new)
    assert f.outcome == "not comparable" and why in f.why


def rows(
    verdict="faster", ratio=0.9, low=0.88, high=0.92, decision="adopt w8", adopted="w8", **more
):
    result = Result(
        arm="w8",
        workload="c64",
        device="d",
        verdict=verdict,
        ratio=ratio,
        low=low,
        high=high,
        time_us=9.0,
    )
    return DeviceVerdict(
        device="d",
        device_name="NVIDIA H200",
        target="sm_90",
        source="published evidence",
        measured_at="2026-01-01",
        plan_commit="c",
        preregistered=True,
        versions={"triton": "3.6.0"},
        decision=decision,
        adopted=adopted,
        conclusions=[],
        results=[result],
        **more,
    )


def outcomes(old, new, **options):
    return [f.outcome for f in compare_verdicts(old, new, "again", **options)]


def test_the_same_samples_give_the_same_rows_up_to_the_last_digits():
    assert outcomes(rows(), rows(ratio=0.9 * (1 + 1e-12))) == ["same", "same"]
    assert outcomes(rows(), rows(ratio=0.9 * (1 + 1e-6))) == ["moved", "same"]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (rows("slower", 1.1, 1.08, 1.12, "reject", None), ["reversed", "reversed"]),
        (rows("undecided", 0.99, 0.9, 1.1, "reject", None), ["moved", "reversed"]),
        (rows("wrong", None, None, None), ["reversed", "same"]),
        (
            rows("exploratory", decision="no decision: exploratory (x)", adopted=None),
            ["not comparable"] * 2,
        ),
        (rows().model_copy(update={"results": []}), ["not comparable", "same"]),
    ],
)
def test_a_conclusion_that_turned_round_is_reversed(new, said):
    assert outcomes(rows(), new) == said


def test_measured_again_the_intervals_decide():
    assert (
        outcomes(rows(), rows(ratio=0.91, low=0.89, high=0.93), measured_again=True) == ["same"] * 2
    )
    assert outcomes(rows(), rows(ratio=0.8, low=0.78, high=0.82), measured_again=True) == [
        "moved",
        "same",
    ]


def checked(verdict="right", mode="gpu", stands_for=(), reason=None):
    return Correctness(
        study="s",
        arm="w8",
        config={},
        device="d",
        device_name="NVIDIA H200" if mode == "gpu" else "Triton's interpreter",
        mode=mode,
        verdict=verdict,
        checks=[Check(workload="c1", verdict=verdict, reason=reason)],
        stands_for=list(stands_for),
    )


def test_logic_stands_for_every_arm_of_its_tile():
    then = {"w8": checked(), "w4": checked()}
    found = compare_correctness(then, {"w8": checked(mode="logic", stands_for=["w4"])}, "H200")
    assert [f.outcome for f in found] == ["same", "same"]


@pytest.mark.parametrize(
    ("new", "outcome", "words"),
    [
        ({}, "not comparable", "did not run"),
        ({"w8": checked("wrong", reason="off")}, "reversed", "off"),
        ({"w8": checked("wrong", "logic", reason="off")}, "not comparable", "right on a GPU"),
    ],
)
def test_an_interpreter_never_overrules_a_gpu(new, outcome, words):
    (f,) = compare_correctness({"w8": checked()}, new, "H200")
    assert f.outcome == outcome and words in f.why


def figure(kind="feasibility", outcome="same"):
    return Figure(kind=kind, subject="a", where="b", outcome=outcome)


@pytest.mark.parametrize(
    ("figures", "word"),
    [
        ([figure()], "reproduced"),
        ([figure(), figure("timing", "not comparable")], "reproduced"),
        ([figure(), figure("logic", "not comparable")], "reproduced in part"),
        ([figure(), figure(outcome="moved")], "reproduced in part"),
        ([figure(), figure(outcome="moved"), figure(outcome="reversed")], "reversed"),
        ([figure(outcome="not comparable")], "gone"),
        ([], "gone"),
    ],
)
def test_the_word_for_all_of_them(figures, word):
    assert sum_up(figures) == word
