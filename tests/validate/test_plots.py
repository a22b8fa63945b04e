"""Charts: the same records give the same bytes; every arm is drawn; nothing is loaded."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import matplotlib as mpl

from occupancy_probe.records import DeviceVerdict, Feasibility, Reason, Result, WorkloadPlan
from occupancy_probe.validate.plots import numeric_axis, ratio_plot, residency_plot, time_plot

ROLES = {"baseline": "baseline", "w8": "projected", "s1": "best"}


def _workloads(*axes: dict[str, Any]) -> list[WorkloadPlan]:
    return [
        WorkloadPlan(name=f"w{i}", axes=a, bytes=1, flop=1, sm_clocks=0, grids={})
        for i, a in enumerate(axes)
    ]


WORKLOADS = _workloads(*({"mode": "a", "topk": 512, "batch $x_$": c} for c in (1, 8, 96)))


def _device(workloads: list[WorkloadPlan]) -> DeviceVerdict:
    results = [
        Result(
            arm=arm, workload=w.name, device="d", time_us=10 * k * (i + 1), ratio=k, low=k - 0.01,
            high=k + 0.01, verdict="baseline" if arm == "baseline" else "slower",
        )
        for arm, k in (("baseline", 1.0), ("w8", 1.2), ("s1", 0.9), ("other", 1.4))
        for i, w in enumerate(workloads)
    ]  # fmt: skip
    results.append(Result(arm="gone", workload="w0", device="d", verdict="rejected"))
    return DeviceVerdict(
        device="d", device_name="GPU <&>", target="sm_90", source="measured here", measured_at="",
        plan_commit=None, preregistered=False, versions={}, decision="reject", adopted=None,
        conclusions=[], results=results, floors={"w0": {"floor_us": 1.0}, "w1": {"floor_us": 3.0}},
    )  # fmt: skip


def _texts(svg: str) -> str:
    return "|".join(
        "".join(e.itertext()).strip() for e in ET.fromstring(svg).iter() if e.tag.endswith("text")
    )


def test_the_axis_is_the_first_number_that_varies() -> None:
    assert numeric_axis(WORKLOADS) == "batch $x_$"
    assert numeric_axis(_workloads({"flag": True, "n": "a"}, {"flag": False, "n": "b"})) is None
    assert numeric_axis(_workloads({"n": 1}, {"m": 2})) is None
    assert numeric_axis([]) is None


def test_curves_are_deterministic_and_well_formed() -> None:
    for draw in (lambda: time_plot(WORKLOADS, _device(WORKLOADS), ROLES),
                 lambda: ratio_plot(WORKLOADS, _device(WORKLOADS), ROLES, 0.01)):  # fmt: skip
        svg = draw()
        assert svg == draw()
        assert svg.startswith("<svg ") and svg.endswith("</svg>")
        texts = _texts(svg)
        assert "batch $x_$" in texts and "baseline" in texts and "w8 (projected)" in texts
        assert "<metadata" not in svg and "#010101" not in svg and "var(--ink" in svg


def test_a_boundless_interval_draws_no_bar() -> None:
    device = _device(WORKLOADS)
    endless = [r.model_copy(update={"low": 0.0, "high": float("inf")}) for r in device.results]
    svg = ratio_plot(WORKLOADS, device.model_copy(update={"results": endless}), ROLES, 0.01)
    assert "nan" not in svg and "inf" not in svg


def test_time_has_a_unit_and_a_floor() -> None:
    texts = _texts(time_plot(WORKLOADS, _device(WORKLOADS), ROLES))
    assert "time per launch (µs)" in texts and "floor" in texts


def test_further_axes_become_panels_and_words_a_category_axis() -> None:
    two = _workloads(*({"c": c, "topk": k} for k in (512, 1024) for c in (1, 2)))
    texts = _texts(time_plot(two, _device(two), ROLES))
    assert "topk = 512" in texts and "topk = 1024" in texts
    words = _workloads({"kind": "prefill"}, {"kind": "decode"})
    assert "workload" in _texts(time_plot(words, _device(words), ROLES))


def test_residency_shows_fits_rejections_and_gaps() -> None:
    common: dict[str, Any] = {"study": "s", "config": {}, "target": "sm_120"}
    fits = Feasibility(
        **common,
        arm="baseline",
        verdict="fits",
        ctas_per_sm=2,
        warps_per_sm=8,
        limiter=["registers"],
    )
    reason = Reason(limit="shared memory", required=131328, allowed=101376, text="too much")
    rejected = Feasibility(**common, arm="w8", verdict="rejected", reasons=[reason])
    records = {"sm_120": {"baseline": fits, "w8": rejected}}
    svg = residency_plot(["baseline", "w8", "other"], records, ROLES)
    texts = _texts(svg)
    assert svg == residency_plot(["baseline", "w8", "other"], records, ROLES)
    assert "2 × 4 · registers" in texts and "not compiled" in texts
    assert "rejected: shared memory 131,328 > 101,376" in texts
    assert "resident warps per SM (at most 48)" in texts


def test_the_users_matplotlib_settings_neither_matter_nor_change() -> None:
    plain = time_plot(WORKLOADS, _device(WORKLOADS), ROLES)
    with mpl.rc_context({"lines.linewidth": 9, "font.size": 30, "axes.grid": False}):
        assert time_plot(WORKLOADS, _device(WORKLOADS), ROLES) == plain
        assert mpl.rcParams["font.size"] == 30
