"""Estimator, Holm and verdicts against simulated truth; all seeds fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from occupancy_probe.exc import RecordError
from occupancy_probe.records import Replicate
from occupancy_probe.validate.statistics import (
    all_decided,
    beyond,
    classify,
    compare,
    confirm,
    equivalence_p,
    estimate,
    estimate_from,
    holm,
    log_ratio,
    median_time,
    spent_alpha,
)

TRIALS = 1500
DESIGNS = [(4, 3), (5, 2)]
SPREADS = [(0.0, 0.0015), (0.001, 0.001), (0.003, 0.001)]
"""Standard deviation of log ratios between processes and between allocations."""


def simulate(processes, allocations, between, within, effect, seed, trials=TRIALS):
    rng = np.random.default_rng(seed)
    draws = (
        effect
        + between * rng.standard_normal((trials, processes, 1))
        + within * rng.standard_normal((trials, processes, allocations))
    )
    return [estimate_from(draw.tolist(), 0.05) for draw in draws]


def at_most(count, trials, rate):
    """True unless ``count`` is too high for ``rate`` by more than binomial error (p < 0.001)."""
    return stats.binom.sf(count - 1, trials, rate) > 1e-3


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("spread", SPREADS)
def test_M1_same_arm_twice_is_called_different_at_most_at_the_nominal_rate(design, spread):
    found = simulate(*design, *spread, effect=0.0, seed=1)
    assert at_most(sum(e.p < 0.05 for e in found), TRIALS, 0.05)
    assert at_most(sum(e.p < 0.01 for e in found), TRIALS, 0.01)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("spread", SPREADS)
def test_interval_covers_the_true_ratio(design, spread):
    truth = math.log(0.9)
    found = simulate(*design, *spread, effect=truth, seed=2)
    missed = sum(not e.low <= 0.9 <= e.high for e in found)
    assert at_most(missed, TRIALS, 0.05)
    assert stats.binom.cdf(missed, TRIALS, 0.05) > 1e-3  # and is not wider than it need be


@pytest.mark.parametrize(("spread", "least"), [((0.0, 0.0015), 0.95), ((0.001, 0.001), 0.85)])
def test_one_percent_is_seen_among_twenty_comparisons(spread, least):
    found = simulate(4, 3, *spread, effect=math.log(0.99), seed=3)
    seen = sum(e.p * 20 < 0.05 and e.ratio < 1 for e in found)
    assert seen / TRIALS > least


def test_allocations_counted_as_independent_would_claim_too_much():
    found = simulate(4, 3, 0.003, 0.001, effect=0.0, seed=4, trials=400)
    naive = np.random.default_rng(4)
    claimed = 0
    for _ in range(400):
        draw = 0.003 * naive.standard_normal((4, 1)) + 0.001 * naive.standard_normal((4, 3))
        claimed += stats.ttest_1samp(draw.ravel(), 0.0).pvalue < 0.05
    assert claimed > 60 > 40 > sum(e.p < 0.05 for e in found)


def test_family_wise_error_of_shared_baseline():
    """Twelve equal arms against one noisy baseline: Holm holds though the ratios are correlated."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(400):
        baseline = 0.002 * rng.standard_normal((4, 2))
        arms = 0.002 * rng.standard_normal((12, 4, 2))
        p = holm({i: estimate_from((a - baseline).tolist(), 0.05).p for i, a in enumerate(arms)})
        wrong += min(p.values()) < 0.05
    assert at_most(wrong, 400, 0.05)


def test_false_equivalence_at_the_margin_is_at_most_nominal():
    found = simulate(4, 3, 0.001, 0.001, effect=math.log(1.01), seed=6)
    assert at_most(sum(equivalence_p(e, 0.01) < 0.05 for e in found), TRIALS, 0.05)


def test_equal_arms_are_found_equivalent():
    found = simulate(4, 3, 0.001, 0.001, effect=0.0, seed=7, trials=300)
    assert sum(classify(e, e.p, 0.01, 0.05) == "equivalent" for e in found) > 270


def test_estimate_agrees_with_scipy_on_process_means():
    values = [[0.01, 0.02], [0.03, 0.05], [0.0, 0.01]]
    means = [np.mean(v) for v in values]
    reference = stats.ttest_1samp(means, 0.0)
    found = estimate_from(values, 0.05)
    low, high = reference.confidence_interval(0.95)
    assert found.p == pytest.approx(reference.pvalue)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert (found.df, found.replicates) == (2, 6)


def test_a_single_process_decides_nothing():
    found = estimate_from([[-0.1, -0.1, -0.1]], 0.05)
    assert (found.df, found.p, found.low, found.high) == (0, 1.0, 0.0, math.inf)
    assert classify(found, 1.0, 0.01, 0.05) == "undecided"
    assert found.bound == math.inf


def test_no_spread_at_all_is_decided_by_the_sign():
    assert estimate_from([[0.0], [0.0]], 0.05).p == 1.0
    assert estimate_from([[-0.1], [-0.1]], 0.05).p == 0.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_holm_is_the_maximum_over_earlier_steps(p):
    """Reference: adj_(i) = max over j <= i of min(1, (m - j) p_(j)), written from the definition."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    reference = {
        i: max(min(1.0, (len(p) - k) * p[order[k]]) for k in range(place + 1))
        for place, i in enumerate(order)
    }
    found = holm(dict(enumerate(p)))
    assert list(found) == list(range(len(p)))
    assert found == pytest.approx(reference)
    assert all(found[i] >= p[i] for i in found)


def test_holm_worked_example():
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})


@given(
    st.lists(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=3), min_size=2, max_size=5).filter(
        lambda v: len({float(np.mean(x)) for x in v}) > 1
    )
)
@settings(deadline=None, derandomize=True, max_examples=100)
def test_swapping_the_arms_inverts_the_ratio(values):
    there = estimate_from(values, 0.05)
    back = estimate_from([[-x for x in inner] for inner in values], 0.05)
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.p == pytest.approx(there.p)
    assert there.low <= there.ratio <= there.high
    assert back.bound == pytest.approx(there.bound)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[-0.100], [-0.101], [-0.102], [-0.100]], "faster"),
        ([[0.100], [0.101], [0.102], [0.100]], "slower"),
        ([[-0.0040], [-0.0041], [-0.0042], [-0.0040]], "equivalent"),  # real, but too small
        ([[-0.001], [0.001], [-0.001], [0.001]], "equivalent"),
        ([[-0.05], [0.04], [-0.03], [0.05]], "undecided"),
    ],
)
def test_four_verdicts(values, expected):
    found = estimate_from(values, 0.05)
    assert classify(found, found.p, 0.01, 0.05) == expected


def test_adjusted_p_withholds_what_the_raw_p_would_claim():
    found = estimate_from([[-0.10], [-0.12], [-0.09], [-0.11]], 0.05)
    assert classify(found, found.p, 0.01, 0.05) == "faster"
    assert classify(found, 0.2, 0.01, 0.05, p_equivalent=1.0) == "undecided"


def replicate(process, allocation, **arms):
    return Replicate(process=process, allocation=allocation, arms=arms)


def test_M2_step_in_the_middle_of_the_run_cancels_by_pairing():
    """A clock change doubles all times half way through; the arms are equal but for 0.1 % noise."""
    rng = np.random.default_rng(8)
    step = np.repeat([10.0, 20.0], 8)
    replicates = [
        replicate(
            p,
            a,
            **{
                arm: list(step * np.exp(0.001 * rng.standard_normal(16))) for arm in ("base", "new")
            },
        )
        for p in range(4)
        for a in range(3)
    ]
    found = estimate(replicates, "new", "base", 0.05)
    assert found is not None
    assert classify(found, found.p, 0.01, 0.05) == "equivalent"
    # All of one, then all of the other: the first half is the baseline, the second the new arm.
    run = np.concatenate([r.arms["base"][:8] + r.arms["new"][8:] for r in replicates[:1]])
    sequential = stats.ttest_ind(np.log(run[:8]), np.log(run[8:]), equal_var=False)
    assert sequential.pvalue < 1e-6


def test_pairing_leaves_out_what_cannot_be_paired():
    assert log_ratio(replicate(0, 0, base=[1.0, 2.0], new=[1.0]), "new", "base") is None
    assert log_ratio(replicate(0, 0, base=[1.0]), "new", "base") is None
    odd = replicate(0, 0, base=[1.0, math.nan, 0.0, 2.0], new=[2.0, 5.0, 5.0, 4.0])
    assert log_ratio(odd, "new", "base") == pytest.approx(math.log(2))
    assert estimate([replicate(0, 0, base=[1.0])], "new", "base", 0.05) is None


def test_null_arm_stands_outside_the_family():
    rng = np.random.default_rng(9)
    replicates = [
        replicate(p, 0, **{a: list(rng.normal(10, 0.01, 4)) for a in ("base", "null", "a", "b")})
        for p in range(4)
    ]
    found = compare({"w": replicates}, ["null", "a", "b"], "base", "null", 0.01, 0.05)
    raw = {a: estimate(replicates, a, "base", 0.05).p for a in ("null", "a", "b")}
    assert found["null", "w"].p_adjusted == raw["null"]
    reference = holm({a: raw[a] for a in ("a", "b")})
    assert {a: found[a, "w"].p_adjusted for a in ("a", "b")} == reference


def test_median_time_is_over_replicates():
    replicates = [replicate(0, i, a=[t, t, 99.0]) for i, t in enumerate((1.0, 2.0, 5.0))]
    assert median_time(replicates, "a") == 2.0
    assert median_time(replicates, "b") is None


@pytest.mark.parametrize("looks", [[4, 6, 8, 12], [2, 3]])
def test_group_sequential_rule_keeps_the_error_rate(looks):
    """Looked at four times, stopped at the first claim: at most alpha in all, where without the
    correction it would be far more."""
    rng = np.random.default_rng(21)
    trials, wrong, naive = 1000, 0, 0
    for _ in range(trials):
        draws = 0.001 * rng.standard_normal((looks[-1], 2))
        p = [estimate_from(draws[:n].tolist(), 0.05).p for n in looks]
        wrong += min(p) < spent_alpha(0.05, looks)
        naive += min(p) < 0.05
    assert at_most(wrong, trials, 0.05)
    if len(looks) == 4:
        assert not at_most(naive, trials, 0.05)


def test_without_looks_all_of_alpha_is_spent_at_the_end():
    assert spent_alpha(0.05, []) == 0.05
    assert spent_alpha(0.05, [3, 6]) == 0.025


def noisy(rng, arms, processes=6, allocations=2, spread=0.001, first=0):
    """Replicates with true log ratios ``arms`` to "base", and 0.2 % noise per block."""
    return [
        replicate(
            first + p,
            a,
            **{
                n: (
                    50
                    * np.exp(mu + spread * rng.standard_normal() + 0.002 * rng.standard_normal(8))
                )
                .round(4)
                .tolist()
                for n, mu in {"base": 0.0, "null": 0.0, **arms}.items()
            },
        )
        for p in range(processes)
        for a in range(allocations)
    ]


def test_all_decided_needs_every_comparison_but_the_null_arms():
    rng = np.random.default_rng(22)
    clear = {w: noisy(rng, {"a": -0.1, "b": 0.1}) for w in ("u", "v")}
    assert all_decided(clear, ["a", "b"], "base", "null", 0.01, 0.05)
    unclear = {**clear, "w": noisy(rng, {"a": 0.01, "b": 0.1}, processes=3, spread=0.02)}
    assert not all_decided(unclear, ["a", "b"], "base", "null", 0.01, 0.05)
    assert not all_decided(clear, ["a", "b", "never timed"], "base", "null", 0.01, 0.05)


def test_M6_the_best_of_27_equal_arms_does_not_hold_on_fresh_replicates():
    """27 arms that are all the baseline: the noisy minimum looks faster; fresh samples do not."""
    rng = np.random.default_rng(23)
    flattered, held, covered = 0, 0, 0
    for _ in range(60):
        arms = {f"arm{i}": 0.0 for i in range(27)}
        first = noisy(rng, arms, processes=4, allocations=1, spread=0.005)
        ratios = {a: estimate(first, a, "base", 0.05).ratio for a in arms}
        best = min(ratios, key=ratios.get)
        flattered += ratios[best] < 0.997
        again = confirm({"w": noisy(rng, {best: 0.0}, 4, 1, 0.005, first=1000)}, best, "base", 0.05)
        held += again.held
        covered += again.low <= 1 <= again.high
    assert flattered > 45, "the minimum of many is biased"
    assert at_most(held, 60, 0.05)
    assert stats.binom.cdf(covered, 60, 0.95) > 1e-3


def test_M6_a_true_winner_holds_with_its_interval():
    rng = np.random.default_rng(24)
    fresh = {w: noisy(rng, {"a": math.log(0.93)}, first=1000) for w in ("u", "v", "w")}
    again = confirm(fresh, "a", "base", 0.05)
    assert again.held
    assert again.low < 0.93 < again.high
    assert again.ratio == pytest.approx(0.93, abs=0.002)
    assert set(again.workloads) == {"u", "v", "w"}


def test_a_confirmation_fails_where_one_workload_is_not_faster():
    rng = np.random.default_rng(25)
    fresh = {"u": noisy(rng, {"a": -0.1}), "v": noisy(rng, {"a": 0.05})}
    assert not confirm(fresh, "a", "base", 0.05).held
    assert confirm({"u": fresh["u"], "v": []}, "a", "base", 0.05) is None


def test_samples_of_two_gpus_never_make_one_ratio():
    rng = np.random.default_rng(26)
    of = [r.model_copy(update={"device_uuid": "GPU-0"}) for r in noisy(rng, {"a": -0.1})]
    assert estimate(of, "a", "base", 0.05) is not None
    mixed = [*of[:-1], of[-1].model_copy(update={"device_uuid": "GPU-1"})]
    with pytest.raises(RecordError, match=r"samples of 2 GPUs \(GPU-0, GPU-1\) in one ratio"):
        estimate(mixed, "a", "base", 0.05)


def test_a_difference_that_the_null_arm_admits_is_not_named():
    found = estimate_from([[-0.0150], [-0.0152], [-0.0151], [-0.0149]], 0.05)
    assert classify(found, found.p, 0.01, 0.05) == "faster"
    assert classify(found, found.p, 0.01, 0.05, floor=0.010) == "faster"
    assert classify(found, found.p, 0.01, 0.05, floor=0.020) == "undecided"


def test_the_floor_lowers_the_rate_of_false_claims_and_not_the_power():
    """Margin 0, two arms and the twin: claims by p alone, and beyond the twin's interval."""
    rng = np.random.default_rng(27)
    claims = {"p": 0, "floor": 0, "seen": 0}
    for _ in range(1000):
        twin, same, other = (
            estimate_from((mu + 0.0005 * rng.standard_normal((10, 1))).tolist(), 0.05)
            for mu in (0.0, 0.0, 0.005)
        )
        claims["p"] += same.p < 0.05
        claims["floor"] += same.p < 0.05 and beyond(same, twin.bound)
        claims["seen"] += other.p < 0.05 and beyond(other, twin.bound)
    assert claims["floor"] < 30 < claims["p"] < 75
    assert claims["seen"] > 990


def exactly(log_ratios, *arms):
    """One process with one block per log ratio, the same for every arm, without other noise."""
    return [
        replicate(p, 0, base=[10.0], **{a: [10 * math.exp(x)] for a in arms})
        for p, x in enumerate(log_ratios)
    ]


def test_a_block_that_went_wrong_does_not_move_the_ratio():
    """Four blocks 10 % slower and one ten times as long: the mean of the logs would say 74 %."""
    one = replicate(0, 0, base=[10.0] * 5, new=[11.0, 11.0, 110.0, 11.0, 11.0])
    assert log_ratio(one, "new", "base") == pytest.approx(math.log(1.1))


def test_a_confirmation_is_corrected_over_its_workloads():
    """Holm: two equal p of 3.9 % (t(2)) are 7.7 % each, one alone stays below 5 %."""
    found = exactly(logs := [-0.027, -0.020, -0.013], "a")
    assert 0.025 < stats.ttest_1samp(logs, 0).pvalue < 0.05
    assert confirm({"u": found}, "a", "base", 0.05).held
    assert not confirm({"u": found, "v": found}, "a", "base", 0.05).held


def test_equivalence_is_corrected_over_the_family_but_for_the_null_arm():
    """Two equal TOST p of 3.6 % (t(2)) are 7.2 % each: neither arm is called equivalent."""
    found = {"w": exactly(logs := [-0.0049, 0.0, 0.0049], "null", "a", "b")}
    p = stats.ttest_1samp(logs, math.log1p(0.01), alternative="less").pvalue
    assert 0.025 < p < 0.05

    def said(*arms):
        made = compare(found, arms, "base", "null", 0.01, 0.05)
        return {
            arm: (
                pytest.approx(c.p_equivalent),
                classify(c.estimate, c.p_adjusted, 0.01, 0.05, c.p_equivalent),
            )
            for (arm, _), c in made.items()
        }

    assert said("null", "a") == {"null": (p, "equivalent"), "a": (p, "equivalent")}
    assert said("null", "a", "b") == {
        "null": (p, "equivalent"),
        "a": (2 * p, "undecided"),
        "b": (2 * p, "undecided"),
    }
