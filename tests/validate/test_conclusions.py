"""Sentences from numbers: the projection, the floors, residency, edges of the grid."""

from __future__ import annotations

import pytest

from occupancy_probe.records import Drops, Feasibility, Result
from occupancy_probe.study import load_study
from occupancy_probe.validate.collect import DeviceRecords
from occupancy_probe.validate.conclusions import Findings, conclude, grid_edges, span

STUDY = """
name: s
title: t
document: D
hypothesis: {{what: w, why: w, how: h}}
projection: {{metric: decode throughput, low: 0.15, high: 0.25, where: c >= 48, arms: [{arms}]}}
kernel: {{path: ., problem: P, function: f}}
baseline: {{num_warps: 4, num_stages: 2, BLOCK_T: 32}}
arms:
  - list: [{{num_warps: 8}}]
    name: w8
    why: x
  - vary: {{num_stages: [1, 3, 4], BLOCK_T: [16, 64]}}
    why: x
targets: [sm_90, sm_120]
workloads:
  - grid: {{c: [1, 48, 64, 96]}}
    name: c{{c}}
checks:
  logic: [{{grid: {{c: [1]}}}}]
decision: {{improve: c >= 48}}
"""
WORKLOADS = ("c1", "c48", "c64", "c96")
HIGH = WORKLOADS[1:]


@pytest.fixture
def study(tmp_path):
    return write_study(tmp_path, "w8")


def write_study(folder, arms, more=""):
    (folder / "problem.py").write_text("")
    (folder / "s.yaml").write_text(STUDY.format(arms=arms) + more)
    return load_study(folder / "s.yaml")


def result(arm, workload, ratio=None, verdict="not measured", half=0.01, **more):
    ends = {} if ratio is None else {"low": ratio - half, "high": ratio + half}
    return Result(
        arm=arm, workload=workload, device="d", ratio=ratio, verdict=verdict, **ends, **more
    )


def findings(study, figures, matrix=None, floors=None, adopted=None, **rows):
    """figures: {(arm, workload): (ratio, verdict)}; the baseline takes 50 µs."""
    results = []
    for w in WORKLOADS:
        for a in study.arms:
            if (a.name, w) in rows.get("given", {}):
                results.append(rows["given"][a.name, w])
            elif a.name == "baseline":
                results.append(
                    Result(
                        arm="baseline",
                        workload=w,
                        device="d",
                        ratio=1.0,
                        time_us=50.0,
                        verdict="baseline",
                    )
                )
            elif (a.name, w) in figures:
                ratio, verdict = figures[a.name, w]
                results.append(result(a.name, w, ratio, verdict, time_us=50 * ratio))
            else:
                results.append(result(a.name, w))
    records = DeviceRecords("d", "NVIDIA H200", "measured here", matrix or {}, {}, {})
    drops = rows.get("drops", ())
    return Findings(study, records, "sm_90", results, floors or {}, adopted, drops=drops)


def feasible(arm, target, ctas=None, warps=None, **more):
    fields = {"verdict": "fits", "ctas_per_sm": ctas, "warps_per_sm": warps}
    return Feasibility(study="s", arm=arm, config={}, target=target, **fields | more)


def test_the_articles_hypothesis_is_refuted_in_numbers(study):
    slower = {("w8", w): (r, "slower") for w, r in zip(HIGH, (1.24, 1.30, 1.37), strict=True)}
    assert conclude(findings(study, slower))[0] == (
        "projected +15–25 % decode throughput at c48…c96; measured kernel time ratio of arm w8 at"
        " c48…c96: 1.24–1.37 [1.23–1.38] (kernel speed-up 0.73–0.81): slower — the hypothesis does"
        " not hold on this device"
    )


def test_a_kernel_gain_below_the_projection_cannot_become_more_end_to_end(study):
    faster = {("w8", w): (0.95, "faster") for w in HIGH}
    sentence = conclude(findings(study, faster))[0]
    assert "0.95 [0.94–0.96] (kernel speed-up 1.05): faster" in sentence
    assert "does not hold on this device: the end-to-end gain is at most the kernel's" in sentence


def test_a_kernel_gain_is_not_called_a_throughput_gain(study):
    faster = {("w8", w): (0.7, "faster") for w in HIGH}
    sentence = conclude(findings(study, faster))[0]
    assert sentence.endswith("the end-to-end gain is at most that and is not measured here")


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (0.95, "0.95 [0.94–0.96] (step speed-up 1.05): faster — the hypothesis does not hold on this"
         " device"),
        (0.7, "0.70 [0.69–0.71] (step speed-up 1.43): faster — the step gains as much as was projected"),
    ],
)  # fmt: skip
def test_of_whole_steps_the_measured_gain_is_the_end_to_end_gain(tmp_path, ratio, said):
    steps = write_study(tmp_path, "w8", "throughput: {series: measured, axis: c}\n")
    sentence = conclude(findings(steps, {("w8", w): (ratio, "faster") for w in HIGH}))[0]
    assert sentence.endswith(f"measured step time ratio of arm w8 at c48…c96: {said}")


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({("w8", "c48"): (0.7, "faster"), ("w8", "c64"): (1.2, "slower")},
         "faster at c48, slower at c64 — the hypothesis does not hold at c64 on this device;"
         " not measured at c96"),
        ({("w8", w): (0.87, "faster") for w in HIGH}, "not decided"),  # 1.136 to 1.163
        ({("w8", w): (1.3, "exploratory") for w in HIGH}, "exploratory — exploratory, no verdict"),
        ({}, "arm w8 is not measured on this device"),
    ],
)  # fmt: skip
def test_projection_says_only_what_was_measured(study, figures, said):
    assert said in conclude(findings(study, figures))[0]


def test_projected_arm_that_does_not_fit(study):
    given = {
        ("w8", w): result("w8", w, verdict="rejected", reason="2,048 threads > 1,024")
        for w in WORKLOADS
    }
    sentences = conclude(findings(study, {}, given=given))
    assert "arm w8 is rejected on this device (2,048 threads > 1,024): not measured" in sentences[0]
    assert "w8 is rejected: 2,048 threads > 1,024" in sentences


def test_projection_without_arms_speaks_of_the_best(tmp_path):
    study = write_study(tmp_path, "")
    figures = {("w8", w): (1.3, "slower") for w in HIGH} | {
        ("num_stages-1", w): (0.9, "faster") for w in HIGH
    }
    assert "arm num_stages-1 at c48…c96" in conclude(findings(study, figures))[0]
    assert "no arm was measured there" in conclude(findings(study, {}))[0]


def test_C64_against_the_floor(study):
    figures = {("num_stages-1", "c64"): (0.8, "faster"), ("w8", "c64"): (1.3, "slower")}
    floors = {"c64": {"bandwidth_us": 5.6, "issue_us": 10.0, "floor_us": 10.0}}
    sentences = conclude(findings(study, figures, floors=floors))
    assert (
        "c64: baseline 50.0 µs (8.9 × bandwidth floor, 5.0 × issue yardstick); best other arm num_stages-1 40.0 µs"
        " (7.1 × bandwidth floor, 4.0 × issue yardstick), ratio 0.800 [0.790–0.810]: faster;"
        " bandwidth floor 5.60 µs, issue yardstick 10.0 µs"
    ) in sentences
    assert "c1: baseline 50.0 µs" in sentences  # no arm and no floor: none is invented


def test_times_of_milliseconds_have_no_exponent_and_an_unknown_yardstick_is_not_named(study):
    given = {
        ("baseline", "c64"): result(
            "baseline", "c64", 1.0, "baseline", time_us=5709.4
        ),
        ("w8", "c64"): result("w8", "c64", 0.999, "equivalent", half=0.0, time_us=5703.2),
    }  # fmt: skip
    sentences = conclude(
        findings(study, {}, floors={"c64": {"bandwidth_us": 1937.47}}, given=given)
    )
    assert (
        "c64: baseline 5,709 µs (2.9 × bandwidth floor); best other arm w8 5,703 µs (2.9 × bandwidth"
        " floor), ratio 0.999 [0.999–0.999]: equivalent; bandwidth floor 1,937 µs"
    ) in sentences


def test_a_workload_that_lost_half_of_its_blocks_is_named(study):
    drops = [
        Drops(workload="c96", blocks=30, dropped=21, reasons=["sw_power_cap"]),
        Drops(workload="c96", again=True, blocks=30, dropped=15),
        Drops(workload="c64", blocks=30, dropped=14, reasons=["sw_power_cap"]),
    ]
    assert (
        "half of the blocks or more were dropped: c96 21 of 30 (sw_power_cap), c96 re-measured 15 of"
        " 30 (SM clock moved); results there rest on the others"
    ) in conclude(findings(study, {}, drops=drops))
    assert not any("dropped" in s for s in conclude(findings(study, {}, drops=drops[2:])))


def test_residency_does_not_carry_over(study):
    matrix = {
        "sm_90": {
            "baseline": feasible("baseline", "sm_90", 2, 8),
            "w8": feasible("w8", "sm_90", 1, 8),
        },
        "sm_120": {
            "baseline": feasible("baseline", "sm_120", 1, 4),
            "w8": feasible("w8", "sm_120", 1, 8),
        },
    }
    sentences = [s for s in conclude(findings(study, {}, matrix)) if "resident" in s]
    assert sentences == [
        "baseline, resident on one SM — sm_90: 2 CTAs × 4 warps = 8 warps; sm_120: 1 CTA × 4 warps"
        " = 4 warps: the result on sm_90 does not carry over to sm_120"
    ]  # w8 is alike on both; nothing is said of it
    assert not any(
        "resident" in s for s in conclude(findings(study, {}, {"sm_90": matrix["sm_90"]}))
    )


def test_noise_floor_and_an_odd_null_arm(study):
    given = {
        ("null", "c1"): result("null", "c1", 1.001, "equivalent", noise_floor=0.0021),
        ("null", "c48"): result("null", "c48", 1.02, "slower", noise_floor=0.03),
    }
    sentences = conclude(findings(study, {}, given=given))
    assert "noise floor (null arm against the baseline): 0.21 % at c1, 3.00 % at c48" in sentences
    assert any(s.startswith("the null arm differs from its twin at c48") for s in sentences)


def test_F4_merged_arms_are_counted_and_named(study):
    twin = feasible("num_stages-3", "sm_90", same_code_as="baseline")
    sentences = conclude(findings(study, {}, {"sm_90": {"num_stages-3": twin}}))
    assert "arms merged as same code on sm_90: 1 (num_stages-3 = baseline)" in sentences


def test_M6_a_picked_winner_is_said_not_to_be_measured_again(study):
    figures = {(a, "c48"): (0.9, "faster") for a in ("w8", "num_stages-1", "BLOCK_T-16")}
    (sentence,) = (s for s in conclude(findings(study, figures)) if "picked" in s)
    assert sentence.startswith("the best arm of each workload was picked from 3 arms")
    assert "not re-measured on fresh replicates" in sentence
    one = {("w8", "c48"): (0.9, "faster")}
    assert not any("picked" in s for s in conclude(findings(study, one)))


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        (
            "num_stages-4",
            [
                "num_stages 4 is the highest value declared, at the edge of the grid: extend the grid"
            ],
        ),
        ("num_stages-1", ["num_stages 1 is the lowest value that there can be"]),
        (
            "BLOCK_T-16",
            ["BLOCK_T 16 is the lowest value declared, at the edge of the grid: extend the grid"],
        ),
        ("num_stages-3", []),
        ("w8", []),  # two values of num_warps span no grid
    ],
)
def test_M4_winner_at_the_edge_of_the_grid(study, arm, said):
    figures = {(arm, w): (0.9, "faster") for w in WORKLOADS}
    assert grid_edges(findings(study, figures, adopted=arm), arm) == said
    sentences = conclude(findings(study, figures, adopted=arm))
    assert [s for s in sentences if s.startswith(f"{arm}: ")] == [f"{arm}: {s}" for s in said]


def test_M4_edge_of_what_fits_is_not_an_edge_to_extend(study):
    given = {("num_stages-4", w): result("num_stages-4", w, verdict="rejected") for w in WORKLOADS}
    f = findings(study, {}, given=given)
    assert grid_edges(f, "num_stages-3") == [
        "num_stages 3 is the highest value that fits of those declared"
    ]


@pytest.mark.parametrize(
    ("names", "said"),
    [(["b"], "b"), (["a", "b"], "a, b"), (["b", "c", "d"], "b…d"), (["a", "c", "d"], "a, c, d")],
)
def test_span(names, said):
    assert span(names, ["a", "b", "c", "d"]) == said
