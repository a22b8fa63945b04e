"""The article's assumptions, judged by numbers."""

from __future__ import annotations

import pytest

from occupancy_probe.records import ArmPlan, Feasibility, Plan
from occupancy_probe.validate.assumptions import assess


def feasibility(arm, target, verdict="fits", **figures):
    return Feasibility(study="s", arm=arm, config={}, target=target, verdict=verdict, **figures)


MATRIX = {
    "sm_120": {
        "baseline": feasibility(
            "baseline", "sm_120", shared_bytes=82176, registers=249, ctas_per_sm=1,
            warps_per_sm=4, code_sha256="a",
        ),
        "w8": feasibility("w8", "sm_120", ctas_per_sm=1, warps_per_sm=8, code_sha256="b"),
        "twin": feasibility("twin", "sm_120", code_sha256="a", same_code_as="baseline"),
        "s3": feasibility("s3", "sm_120", verdict="rejected", shared_bytes=115000),
    }
}  # fmt: skip
PLAN = Plan(
    study="s",
    plan_hash="h",
    title="t",
    document="D",
    sections={},
    arms=[ArmPlan(name="baseline", config={}, why=[], facts={"block_h": 16, "heads_per_gpu": 16})],
    workloads=[],
    targets=["sm_120"],
    autotune={"key": ["topk_rounded"], "configs": []},
)


def judged(line, plan=PLAN):
    (found,) = assess([line], plan, MATRIX)
    assert found.text == line
    return found


@pytest.mark.parametrize(
    ("line", "verdict", "values"),
    [
        ("block_h == 32", "refuted", {"block_h": 16}),
        ("block_h == min_heads", "not known", None),
        ("autotune_key == ['topk_rounded']", "confirmed", {"autotune_key": ["topk_rounded"]}),
        ("'batch' in autotune_key", "refuted", {"autotune_key": ["topk_rounded"]}),
        ("fits('sm_120', 'w8')", "confirmed", {"fits(sm_120, w8)": True}),
        ("fits('sm_120', 's3')", "refuted", {"fits(sm_120, s3)": False}),
        (
            "shared_bytes('sm_120', 'baseline') > 80 * 1000 and registers('sm_120', 'baseline') < 255",
            "confirmed",
            {"shared_bytes(sm_120, baseline)": 82176, "registers(sm_120, baseline)": 249},
        ),
        (
            "warps_per_sm('sm_120', 'w8') == 2 * warps_per_sm('sm_120', 'baseline')",
            "confirmed",
            {"warps_per_sm(sm_120, w8)": 8, "warps_per_sm(sm_120, baseline)": 4},
        ),
        ("ctas_per_sm('sm_90', 'w8') == 1", "not known", {"ctas_per_sm(sm_90, w8)": None}),
        ("registers('sm_120', 'w8') < 255", "not known", {"registers(sm_120, w8)": None}),
        (
            "same_code('sm_120', 'twin', 'baseline')",
            "confirmed",
            {"same_code(sm_120, twin, baseline)": True},
        ),
        (
            "same_code('sm_120', 's3', 'baseline')",
            "not known",
            {"same_code(sm_120, s3, baseline)": None},
        ),
        ("same_code('sm_120', 'w8', 'twin')", "refuted", {"same_code(sm_120, w8, twin)": False}),
    ],
)
def test_assume_lines(line, verdict, values):
    found = judged(line)
    assert found.verdict == verdict
    if values is not None:
        assert found.values == values


@pytest.mark.parametrize(
    "line", ["block_h ==", "nothing > 1", "fits(1)", "block_h / 0", "open('x')"]
)
def test_a_line_that_cannot_be_evaluated_is_not_known_and_says_why(line):
    found = judged(line)
    assert found.verdict == "not known"
    assert found.values["error"]


def test_without_an_autotuner_the_key_is_empty():
    plan = PLAN.model_copy(update={"autotune": None})
    assert judged("autotune_key == []", plan).verdict == "confirmed"
