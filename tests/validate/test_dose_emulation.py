"""Arms at another target's residency against simulated truth, against the published samples, as shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from occupancy_probe.records import Dose, DosePoint, Replicate, read_record
from occupancy_probe.templating import render
from occupancy_probe.validate.dose import judge_doses
from occupancy_probe.validate.dose_emulation import emulated

ROOT = Path(__file__).parents[2]
PROCESSES, ALLOCATIONS, BLOCKS = 6, 2, 8
ARMS = {"baseline": 4, "narrow": 4, "wide": 8}
"""Warps of one CTA."""
THERE = {"baseline@1": ["sm_120"], "narrow@2": ["sm_120"], "wide@1": ["sm_120"]}
TRUTH = {"baseline": 40.0, "baseline@1": 60.0, "baseline@2": 40.0, "narrow@2": 54.0, "wide@1": 66.0}
"""µs: at sm_120's residency narrow takes 0.9 and wide 1.1 of the baseline's time *there*."""


def doses(truth, seed=0, spread=0.001, drift=0.0, grids=1000, arms=ARMS, there=THERE):
    """truth: workload → dose name → µs. drift: of whole blocks, the same for all arms."""
    rng = np.random.default_rng(seed)
    names = {w: [n for n in by if "@" in n] for w, by in truth.items()}
    keys = [(p, a) for p in range(PROCESSES) for a in range(ALLOCATIONS)]
    samples = {}
    for w, by in truth.items():
        for key in keys:
            common = drift * rng.standard_normal(BLOCKS)
            for n, us in by.items():
                own = spread * rng.standard_normal() + 0.002 * rng.standard_normal(BLOCKS)
                samples[w, key, n] = (us * np.exp(common + own)).tolist()
    return {
        arm: Dose(
            study="s",
            plan_commit=None,
            device="nvidia-h200",
            device_name="NVIDIA H200",
            device_uuid="GPU-0",
            arm=arm,
            config={"num_warps": warps},
            num_warps=warps,
            points={
                n: DosePoint(
                    ctas=int(n[-1]),
                    shared_bytes=1,
                    driver_ctas=int(n[-1]),
                    emulates=there.get(n, []),
                )
                for own in names.values()
                for n in own
                if n.startswith(f"{arm}@")
            },
            grids=dict.fromkeys(truth, grids),
            replicates={
                w: [
                    Replicate(
                        process=p,
                        allocation=a,
                        arms={
                            n: samples[w, (p, a), n]
                            for n in ["baseline", *names[w]]
                            if n == "baseline" or n.startswith(f"{arm}@")
                        },
                    )
                    for p, a in keys
                ]
                for w in truth
            },
            started_at="2026-01-01T00:00:00+00:00",
        )
        for arm, warps in arms.items()
    }


def judge(found):
    return judge_doses(found, "NVIDIA H200", 0.01, 0.05)


def said(found):
    return [t for t in judge(found).sentences if "residency" in t]


def test_the_ratio_is_to_the_baseline_at_its_own_residency_there():
    [e] = judge(doses({"c96": TRUTH})).emulations
    narrow, wide = e.ratios
    assert (e.target, narrow.arm, wide.arm) == ("sm_120", "narrow", "wide")
    assert narrow.low < 0.9 < narrow.high and wide.low < 1.1 < wide.high
    assert narrow.compared() == "narrow: 2 × 4 warps against baseline: 1 × 4"
    assert wide.compared() == "wide: 1 × 8 warps against baseline: 1 × 4"


def test_the_interval_covers_the_truth_as_often_as_it_says():
    inside = 0
    for seed in range(200):
        found = doses({"c96": TRUTH}, seed=100 + seed, spread=0.003)
        [e] = emulated(found, "NVIDIA H200", "sm_90", 132, 0.05)
        inside += e.ratios[1].low < 1.1 < e.ratios[1].high
    assert 180 <= inside <= 199, "95 % of 200, and binomial error"


def test_arms_are_paired_in_their_blocks_so_that_a_drift_of_all_cancels():
    """Blocks that differ by 10 %: unpaired, no ratio would be known better than to some percent."""
    calm, drifting = (judge(doses({"c96": TRUTH}, seed=3, drift=d)) for d in (0.0, 0.1))
    for e in (calm.emulations[0], drifting.emulations[0]):
        assert e.ratios[1].high - e.ratios[1].low < 0.005
        assert e.ratios[1].ratio == pytest.approx(1.1, abs=0.003)


def test_a_sentence_says_slower_or_faster_only_where_the_interval_excludes_1():
    even = {**TRUTH, "wide@1": 60.0}
    swift = {**TRUTH, "wide@1": 50.0}
    begin = "at sm_120's residency (emulated on NVIDIA H200, exploratory, not sm_120's result) — "
    text = "wide: 1 × 8 warps against baseline: 1 × 4: "
    narrow, wide = said(doses({"c48": TRUTH, "c96": TRUTH}))
    assert narrow.startswith(
        f"{begin}narrow: 2 × 4 warps against baseline: 1 × 4: faster at c48, c96"
    )
    assert wide.startswith(f"{begin}{text}slower at c48, c96 (ratio 1.1")
    _, wide = said(doses({"c48": TRUTH, "c64": even, "c96": swift}, seed=1))
    assert wide.startswith(f"{begin}{text}differs by workload: slower at c48 (ratio 1.")
    assert "; no difference shown at c64 (ratio " in wide and "; faster at c96 (ratio 0.8" in wide
    _, wide = said(doses({"c96": even}, seed=1))
    assert wide.startswith(f"{begin}{text}no difference shown at c96 (ratio ")


def test_it_is_no_test_of_the_plan():
    """Neither among the findings, whose p values Holm's correction adjusts, nor with a verdict."""
    verdict = judge(doses({"c96": TRUTH}))
    without = judge(doses({"c96": TRUTH}, there={}))
    assert without.emulations == [] and not any("residency" in t for t in without.sentences)
    assert verdict.findings == without.findings


def test_an_arm_without_that_residency_is_left_out_with_the_reason():
    found = doses({"c96": TRUTH}, there={k: v for k, v in THERE.items() if k != "wide@1"})
    note = "wide on sm_120: rejected, so there is no residency to emulate"
    found["wide"] = found["wide"].model_copy(update={"notes": [note]})
    [e] = judge(found).emulations
    assert [r.arm for r in e.ratios] == ["narrow"] and e.left_out == [note]
    assert not any("wide" in t for t in said(found))


def test_a_residency_that_the_driver_denies_is_none():
    found = doses({"c96": TRUTH})
    points = dict(found["wide"].points)
    points["wide@1"] = points["wide@1"].model_copy(update={"driver_ctas": 2})
    found["wide"] = found["wide"].model_copy(update={"points": points})
    [e] = judge(found).emulations
    assert [r.arm for r in e.ratios] == ["narrow"]
    assert e.left_out == ["wide on sm_120: no dose has the CTAs per SM that it has there"]


def test_arms_of_two_runs_are_not_paired():
    found = doses({"c96": TRUTH})
    later = {"started_at": "2026-01-02T00:00:00+00:00"}
    found["wide"] = found["wide"].model_copy(update=later)
    [e] = judge(found).emulations
    assert e.left_out == ["wide: not in the baseline's blocks"]


def test_a_grid_that_does_not_fill_the_residency_is_no_comparison():
    """100 CTAs on 132 SMs: two of narrow's never share one, one of wide's is what it has there."""
    [e] = judge(doses({"c96": TRUTH}, grids=100)).emulations
    assert [r.arm for r in e.ratios] == ["wide"]
    assert e.left_out == ["narrow at c96: the grid has too few CTAs for it"]


def test_without_the_baselines_residency_there_is_nothing_to_compare_with():
    found = doses({"c96": TRUTH}, arms={"narrow": 4, "wide": 8})
    [e] = judge(found).emulations
    assert e.ratios == [] and e.left_out[0].startswith("every arm: no dose of the baseline")


def test_the_devices_own_residency_is_no_emulation():
    own = {name: ["sm_90"] for name in THERE}
    assert judge(doses({"c96": TRUTH}, there=own)).emulations == []


def test_of_the_published_samples_8_warps_are_slower_than_4_at_the_residency_of_sm_120():
    """The ratio of the module against one by hand; another measurement stays within half a percent."""
    folder = ROOT / "results/dsv4_attn_occupancy/evidence/nvidia-h200/dose"
    found = {p.stem: read_record(p, Dose) for p in sorted(folder.glob("*.json"))}
    [e] = judge(found).emulations
    wide = {r.workload: r for r in e.ratios if r.arm == "t32-w8-s2"}
    logs = {}
    for a, b in zip(
        found["t32-w8-s2"].replicates["c48"], found["baseline"].replicates["c48"], strict=True
    ):
        assert (a.process, a.allocation) == (b.process, b.allocation)
        pairs = np.array(a.arms["t32-w8-s2@1"]) / np.array(b.arms["baseline@1"])
        logs.setdefault(a.process, []).append(np.median(np.log(pairs)))
    by_hand = np.exp(np.mean([np.mean(own) for own in logs.values()]))
    assert wide["c48"].ratio == pytest.approx(by_hand, rel=1e-12)
    assert wide["c48"].ratio == pytest.approx(1.119, abs=0.005)
    assert all(r.low > 1.1 and r.high < 1.15 for r in wide.values()) and len(wide) == 6


LABEL = (
    "emulation of sm_120's residency on NVIDIA H200, exploratory (not one of the plan's tests);"
    " clocks, caches, bandwidth and instruction costs stay this GPU's: not sm_120's result"
)


@pytest.fixture(scope="module")
def shown():
    """Document and report, their sections on the dose alone; narrow has no ratio at c8."""
    found = doses({"c8": TRUTH, "c96": TRUTH})
    found["narrow"] = found["narrow"].model_copy(update={"grids": {"c8": 18, "c96": 1000}})
    device = {"device": "nvidia-h200", "device_name": "NVIDIA H200", "dose": judge(found)}
    plan = {
        "arms": list(ARMS), "workloads": "True", "emulate": ["sm_120"], "ctas": "auto",
        "processes": 6, "allocations": 2, "blocks": 8,
    }  # fmt: skip
    return [
        render(ROOT / "templates", "plan_dose.md.j2", sections={"dose": plan}, devices=[device]),
        render(
            ROOT / "templates",
            "report_dose.html.j2",
            s={"dose": plan},
            devices=[{"verdict": device, "dose_plot": ""}],
        ),
    ]


def test_document_and_report_label_the_table_and_say_what_is_left_out(shown):
    for text in shown:
        assert f"An {LABEL}." in text.replace("&#39;", "'")
        assert "left out: narrow at c8: the grid has too few CTAs for it" in text


def test_the_table_has_a_row_per_arm_and_a_column_per_workload(shown):
    document, page = shown
    section = document.split("##### At sm_120's residency")[1].split("| Dose |")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    assert [r[1:3] for r in rows[:1]] == [["c8", "c96 |"]]
    assert [r[0] for r in rows[2:]] == [
        "| wide: 1 × 8 warps against baseline: 1 × 4",
        "| narrow: 2 × 4 warps against baseline: 1 × 4",
    ]
    assert rows[2][1].startswith("1.") and rows[3][1] == "–" and rows[3][2].startswith("0.")
    assert (
        "<td><code>narrow: 2 × 4 warps against baseline: 1 × 4</code></td><td>–</td><td>0." in page
    )
