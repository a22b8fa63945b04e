"""The decision rule as data: every outcome, and the numbers that it quotes."""

from __future__ import annotations

import pytest

from occupancy_probe.records import Bound, Interval, Result
from occupancy_probe.study import load_study
from occupancy_probe.validate.decision import Case, decide

STUDY = """
name: s
title: t
document: D
hypothesis: {{what: w, why: w, how: h}}
kernel: {{path: ., problem: P, function: f}}
baseline: {{num_warps: 4}}
arms:
  - {{list: [{{num_warps: 8}}, {{num_warps: 2}}], name: "w{{num_warps}}", why: x}}
targets: [sm_90]
workloads:
  - {{grid: {{c: [1, 16, 64, 96]}}, name: "c{{c}}"}}
checks:
  logic: [{{grid: {{c: [1]}}}}]
throughput: {{{throughput}, axis: c}}
decision: {{improve: c >= 64, guard: c < 64, guard_loss: 0.02{more}}}
"""
KERNEL = "series: b200_tp2_nomtp_20260502, share: {value: 0.1}"
STEPS = "series: measured"
ALL = ", outcomes: [adopt, adopt_above, inconclusive, rewrite, reject], above: c"


@pytest.fixture
def case(tmp_path):
    """Ratios of w8 and w2 per workload as (ratio, verdict); intervals are ± 1 %."""

    def make(
        more="", w8=(), w2=(), gains=None, bounds=(), doubts=None, of=KERNEL, text=STUDY, **known
    ):
        (tmp_path / "problem.py").write_text("")
        (tmp_path / "s.yaml").write_text(text.format(more=more, throughput=of))
        study = load_study(tmp_path / "s.yaml")
        names = [w.name for w in study.workloads]
        neutral = [(1.05, "slower")] * 4
        rows = [row("baseline", w, (1.0, "baseline")) for w in names]
        rows += [row("w8", w, f) for w, f in zip(names, w8 or neutral, strict=True)]
        rows += [row("w2", w, f) for w, f in zip(names, w2 or neutral, strict=True)]
        return Case(study, rows, doubts or {}, gains or {}, bounds, **known)

    return make


def row(arm, workload, figure):
    ratio, verdict = figure
    return Result(
        arm=arm, workload=workload, device="d", time_us=10 * ratio, ratio=ratio,
        low=ratio - 0.01, high=ratio + 0.01, verdict=verdict,
    )  # fmt: skip


def gain(value, half=0.002):
    return Interval(value=value, low=value - half, high=value + half)


WIN = [(1.0, "equivalent"), (1.0, "equivalent"), (0.9, "faster"), (0.85, "faster")]
HIGH_ONLY = [(1.2, "slower"), (0.96, "faster"), (0.9, "faster"), (0.85, "faster")]


def test_an_arm_that_passes_everywhere_is_adopted_with_rule_and_numbers(case):
    ruling = decide(case(w8=WIN))
    assert ruling.outcome == "adopt" and ruling.arm == "w8"
    assert ruling.rule == (
        "kernel time better at all of c64, c96 and loses at most 2 % at c1, c16; margin 1 %,"
        " error rate 5 %"
    )
    assert "c96: w8 0.850 [0.840–0.860] faster" in ruling.numbers and len(ruling.numbers) == 4


def test_a_gain_below_the_minimum_effect_is_not_adopted(case):
    assert decide(case(", minimum_effect: 0.09", w8=WIN)).outcome == "adopt"
    ruling = decide(case(", minimum_effect: 0.1", w8=WIN))  # c64: 1 / 0.91 - 1 = 9.9 %
    assert ruling.outcome == "reject" and ruling.arm is None
    assert ruling.text.startswith("reject: no arm is faster by 10 % at all of c64, c96")


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [(1.009, "adopt"), (1.015, "inconclusive"), (1.025, "inconclusive"), (1.035, "reject")],
)
def test_a_guard_holds_with_the_far_end_of_the_interval_and_is_lost_with_the_near_one(
    case, ratio, outcome
):
    """At most 2 % may be lost and intervals are ± 1 %: up to 1.01 it is kept, from 1.03 on lost."""
    arm = [(ratio, "undecided"), *WIN[1:]]
    assert decide(case(", outcomes: [adopt, inconclusive, reject]", w8=arm)).outcome == outcome


def test_an_arm_that_loses_below_is_adopted_above(case):
    ruling = decide(case(ALL, w8=HIGH_ONLY))
    assert ruling.outcome == "adopt_above" and ruling.arm == "w8" and ruling.above == 16
    assert ruling.text.startswith("adopt w8 for c >= 16 only: faster at c16…c96 (mean ratio 0.90")


TOP_TWO = [(1.2, "slower"), (1.1, "slower"), (0.9, "faster"), (0.85, "faster")]


def test_a_threshold_that_is_the_largest_value_measured_is_said_to_be(case):
    twice = STUDY.replace("{{c: [1, 16, 64, 96]}}", "{{c: [16, 96], k: [1, 2]}}")
    twice = twice.replace('name: "c{{c}}"', 'name: "c{{c}}-k{{k}}"')
    ruling = decide(case(ALL, w8=TOP_TWO, text=twice))
    assert (ruling.outcome, ruling.above) == ("adopt_above", 96)
    assert ruling.text == (
        "adopt w8 at c 96, the largest measured, only: faster at c96-k1, c96-k2 (mean ratio 0.875),"
        " not at every workload below"
    )


def test_an_adoption_says_what_it_gains_end_to_end_and_whether_that_is_a_win(case):
    wide, far = {"value": 0.005, "low": -0.002, "high": 0.011}, gain(-0.01)
    gains = {("w8", "c64"): far, ("w8", "c96"): Interval(**wide), ("w8", "c1"): gain(0.5)}
    both = (
        "; end to end −1.0 % [−1.2 to −0.8] at c64: no system win, +0.5 % [−0.2 to +1.1] at c96:"
        " undecided"
    )
    assert decide(case(w8=WIN, gains=gains)).text.endswith(both)
    above = decide(case(ALL, w8=TOP_TWO, gains=gains))
    assert above.text.startswith("adopt w8 for c >= 64 only: ") and above.text.endswith(both)
    assert "c64: w8 0.900 [0.890–0.910] faster, end to end −1.0 % [−1.2 to −0.8]" in above.numbers
    narrow = {("w8", "c64"): gain(0.02), ("w8", "c96"): gain(0.0012, 0.0004)}
    text = decide(case(w8=WIN, gains=narrow, projected={("w8", "c64")})).text
    assert "+2.0 % [+1.8 to +2.2] at c64 (projected): system win" in text
    assert text.endswith("+0.12 % [+0.08 to +0.16] at c96: no system win")
    del narrow["w8", "c96"]
    assert decide(case(w8=WIN, gains=narrow)).text.endswith(", not known at c96")
    flat = {("w8", "c96"): Interval(value=-0.0013, low=-0.0026, high=-0.00004)}
    text = decide(case(w8=WIN, gains=flat)).text
    assert "−0.13 % [−0.26 to +0.00] at c96: no system win" in text, "an end of −0.0 is neither"


def test_the_threshold_needs_two_workloads(case):
    top = [(1.2, "slower"), (1.1, "slower"), (1.1, "slower"), (0.85, "faster")]
    assert decide(case(ALL, w8=top)).outcome == "reject"


def test_outcomes_that_the_rule_does_not_list_are_not_given(case):
    assert decide(case(w8=HIGH_ONLY)).outcome == "reject"


def test_while_an_arm_may_still_pass_nothing_is_concluded(case):
    open_ = [(1.0, "equivalent"), (1.0, "equivalent"), (0.995, "undecided"), (0.97, "faster")]
    ruling = decide(case(ALL, w8=open_))
    assert ruling.outcome == "inconclusive" and ruling.arm is None
    assert "w8 may pass, the intervals at c64 admit both" in ruling.text
    assert decide(case(w8=open_)).outcome == "reject"


def bound(workload, headroom, step=None, limit="latency"):
    return Bound(
        workload=workload, arm="baseline", time_us=10, limit=limit, floor_us=10 / headroom,
        headroom=headroom, step_gain=step, why="x",
    )  # fmt: skip


def test_if_nothing_passes_and_the_floor_is_far_a_rewrite_is_called_for_with_its_bound(case):
    far = [bound("c64", 2.2, gain(0.05)), bound("c96", 1.9, gain(0.04))]
    ruling = decide(case(ALL, bounds=far))
    assert ruling.outcome == "rewrite"
    assert "1.9–2.2 × their floor (limit: latency)" in ruling.text
    assert ruling.text.endswith("+3.8 to +5.2 % end to end")
    near = [bound("c64", 1.3), bound("c96", 1.9)]
    assert decide(case(ALL, bounds=near)).outcome == "reject"


def test_a_rule_over_whole_steps_speaks_of_the_step(case):
    ruling = decide(case(", minimum_effect: 0.01", w8=WIN, of=STEPS))
    assert ruling.rule.startswith("step time better by at least 1 % at all of c64, c96")
    far = [bound("c64", 2.2, limit=None), bound("c96", 1.9, limit=None)]
    assert decide(case(ALL, bounds=far, of=STEPS)).text == (
        "rewrite: no config passes; at c64, c96 the best times are 1.9–2.2 × their floor, that of"
        " the whole step: a rewrite of the kernel alone saves its share at most"
    )


def test_kernel_win_no_system_win_is_an_outcome_of_its_own(case):
    end = ", metric: end_to_end, minimum_effect: 0.01"
    small = {("w8", "c64"): gain(0.005), ("w8", "c96"): gain(0.006)}
    ruling = decide(case(end, w8=WIN, gains=small))
    assert ruling.outcome == "reject" and ruling.arm is None
    assert ruling.text.startswith("reject: kernel win, no system win: w8 is faster at c64, c96")
    assert "gains +0.3 to +0.8 % end to end, where 1 % are asked for" in ruling.text
    assert "c64: w8 0.900 [0.890–0.910] faster, end to end +0.5 % [+0.3 to +0.7]" in ruling.numbers
    large = {key: gain(0.03) for key in small}
    assert decide(case(end, w8=WIN, gains=large)).outcome == "adopt"


END = ", metric: end_to_end, minimum_effect: 0.01"


def test_a_kernel_win_whose_gain_is_not_known_where_it_counts_is_not_judged(case):
    for known in ({("w8", "c1"): gain(0.05)}, {("w8", "c64"): gain(0.05)}):
        ruling = decide(case(END, w8=WIN, gains=known))
        lacking = "c96" if ("w8", "c64") in known else "c64, c96"
        assert (ruling.outcome, ruling.arm) == ("none", None)
        assert ruling.text == (
            "no decision: w8 is faster at c64, c96 (mean ratio 0.875), but its end-to-end gain is"
            f" not known at {lacking}"
        )
    ruling = decide(case(END + ALL, w8=WIN, gains={("w8", "c64"): gain(0.05)}))
    assert ruling.text == ("inconclusive: w8 may pass, its end-to-end gain is not known at c96")


def test_a_gain_too_small_at_one_workload_rejects_whatever_it_is_at_the_others(case):
    ruling = decide(case(END, w8=WIN, gains={("w8", "c64"): gain(0.002)}))
    assert ruling.outcome == "reject"
    assert ruling.text.endswith("where 1 % are asked for; gain not known at c96")


def test_a_kernel_win_that_a_guard_forbids_is_rejected_without_its_gain(case):
    lost = [(1.2, "slower"), *WIN[1:]]
    ruling = decide(case(END, w8=lost, gains={("w8", "c1"): gain(-0.05)}))
    assert ruling.outcome == "reject"
    assert ruling.text.endswith("at all of c64, c96 and loses at most 2 % at c1, c16")


def test_an_end_to_end_rule_without_gains_decides_nothing(case):
    ruling = decide(case(", metric: end_to_end", w8=WIN))
    assert ruling.outcome == "none" and "none is known" in ruling.text


def test_a_doubt_stops_every_decision(case):
    ruling = decide(case(ALL, w8=WIN, doubts={"c64": "measured without a plan commit"}))
    assert ruling.outcome == "none"
    assert ruling.text == "no decision: exploratory (measured without a plan commit)"
