"""Which limit binds, and how much a kernel at its floor would gain."""

from __future__ import annotations

from pathlib import Path

import pytest

from occupancy_probe.records import (
    Dose,
    DosePoint,
    Feasibility,
    Interval,
    Plan,
    Replicate,
    Result,
    WorkloadPlan,
)
from occupancy_probe.study import load_study
from occupancy_probe.validate.roofline import bounds, next_step


def found(
    time=30.0,
    bandwidth=5.0,
    issue=10.0,
    grid=(64, 1, 4),
    ctas_per_sm=2,
    doses=None,
    share=None,
    sections=None,
):
    plan = Plan(
        study="s", plan_hash="P", title="t", document="D", sections=sections or {}, arms=[], targets=["sm_90"],
        workloads=[
            WorkloadPlan(
                name="c64", axes={}, bytes=1, flop=1, sm_clocks=1, grids={"sm_90": list(grid)}
            )
        ],
        autotune=None,
    )  # fmt: skip
    results = [
        Result(arm="baseline", workload="c64", device="d", time_us=time * 1.1, verdict="baseline"),
        Result(arm="w8", workload="c64", device="d", time_us=time, ratio=0.9, verdict="faster"),
        Result(arm="null", workload="c64", device="d", time_us=time * 0.5, verdict="equivalent"),
        Result(arm="bad", workload="c64", device="d", time_us=time * 0.1, verdict="wrong"),
    ]
    floors = {
        "c64": {"bandwidth_us": bandwidth, "issue_us": issue, "floor_us": max(bandwidth, issue)}
    }
    fits = Feasibility(
        study="s", arm="w8", config={}, target="sm_90", verdict="fits", ctas_per_sm=ctas_per_sm
    )
    shares = {"c64": share} if share else {}
    (of,) = bounds(plan, "NVIDIA H200", "sm_90", results, floors, {"w8": fits}, doses or {}, shares)
    return of


def test_a_time_far_above_both_floors_on_a_full_grid_is_latency():
    of = found()
    assert of.arm == "w8" and of.limit == "latency"  # neither the twin nor a wrong arm is the best
    assert of.headroom == pytest.approx(3.0)
    assert of.why == "3.0 × the issue yardstick of 10.0 µs, 6.0 × the bandwidth's"


@pytest.mark.parametrize(("bandwidth", "issue", "limit"), [(28, 10, "bandwidth"), (5, 28, "issue")])
def test_a_time_at_its_floor_is_bound_by_what_the_floor_is_made_of(bandwidth, issue, limit):
    assert found(bandwidth=bandwidth, issue=issue).limit == limit


def test_a_grid_that_leaves_sms_idle_binds_by_waves():
    of = found(grid=(20, 1, 1))
    assert of.limit == "waves" and "20 CTAs fill 15 % of what 132 SMs hold" in of.why


def test_of_a_whole_step_neither_grid_nor_share_of_the_kernel_is_said():
    share = Interval(value=0.1, low=0.09, high=0.11)
    of = found(
        time=3766.0,
        bandwidth=961.0,
        grid=(20, 1, 1),
        share=share,
        sections={"throughput": {"series": "measured"}},
    )
    assert of.limit is None and of.step_gain is None
    assert of.why == "3.9 × the bandwidth floor of 961 µs"
    assert of.floor_us == 961.0 and of.headroom == pytest.approx(3.919, abs=1e-3)


def test_a_half_empty_last_wave_binds_by_waves():
    assert found(grid=(133, 1, 1), ctas_per_sm=1).limit == "waves"
    assert found(grid=(264, 1, 1), ctas_per_sm=1).limit == "latency"


def test_a_kernel_at_its_floor_gains_what_its_share_allows():
    share = Interval(value=0.1, low=0.09, high=0.11)
    gain = found(share=share).step_gain
    assert gain.value == pytest.approx(1 / (1 - 0.1 * (1 - 1 / 3)) - 1)
    assert gain.low < gain.value < gain.high
    assert found().step_gain is None


@pytest.mark.parametrize(
    ("fewer", "said"),
    [
        (
            1.2,
            "2 instead of 1 CTA per SM takes 0.83 × the time [0.83–0.83]: fewer resident warps cost",
        ),
        (1.0, "residency is not what limits it"),
    ],
)
def test_the_dose_says_whether_residency_limits(fewer, said):
    replicates = [
        Replicate(process=p, allocation=0, arms={"w8@1": [20 * fewer] * 4, "w8@2": [20.0] * 4})
        for p in range(4)
    ]
    dose = Dose(
        study="s", plan_commit=None, device="d", device_name="NVIDIA H200", device_uuid="u", arm="w8",
        config={}, num_warps=8, started_at="", replicates={"c64": replicates},
        points={f"w8@{n}": DosePoint(ctas=n, shared_bytes=1) for n in (1, 2)},
    )  # fmt: skip
    assert said in found(doses={"w8": dose}).why


FLAGSHIP = load_study(Path(__file__).parents[2] / "studies" / "dsv4_attn_occupancy.yaml")


@pytest.mark.parametrize(("share", "beyond"), [(0.04, True), (0.3, False)])
def test_the_next_step_has_its_bound_and_says_if_no_kernel_can_reach_the_projection(share, beyond):
    of = Interval(value=share, low=share, high=share)
    [said] = next_step(
        FLAGSHIP, [found(share=of).model_copy(update={"workload": "c48"})], {"c48": of}
    )
    gain = 1 / (1 - share * (1 - 10 / 30)) - 1
    assert f"would gain {gain * 100:+.1f} %" in said and "at c48 end to end" in said
    assert (
        "even a step without this kernel would gain less than the projected 15 %" in said
    ) == beyond


def test_no_next_step_without_a_share_or_where_the_rule_wants_nothing():
    assert next_step(FLAGSHIP, [found().model_copy(update={"workload": "c48"})], {}) == []
    of = Interval(value=0.1, low=0.1, high=0.1)
    guard = found(share=of).model_copy(update={"workload": "c1"})
    assert next_step(FLAGSHIP, [guard], {"c1": of}) == []
