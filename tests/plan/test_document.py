"""The plan document is a pure function of the plan, and is later filled from the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from occupancy_probe.plan.document import render_document
from occupancy_probe.records import (
    ArmPlan,
    Assumption,
    Bound,
    DeviceVerdict,
    Drops,
    Feasibility,
    GpuUse,
    Plan,
    Reason,
    Result,
    Verdict,
    WorkloadPlan,
)
from occupancy_probe.study.schema import Decision

TEMPLATES = Path(__file__).parents[2] / "templates"
BASE = {"BLOCK_T": 32, "num_warps": 4}
WIDE = {"BLOCK_T": 32, "num_warps": 8}
EMPTY_TABLE = """\
## Result table

| Arm | c1 | c96 |
| :-- | :-- | :-- |
| baseline | not measured | not measured |
| null | not measured | not measured |
| w8 | not measured | not measured |

## Provenance
"""


def make_plan(title: str = "num_warps=8 probe", why: str = "Latency-bound.", **more: Any) -> Plan:
    sections: dict[str, Any] = {
        "hypothesis": {"what": "Force 8 warps.", "why": why, "how": "A/B."},
        "projection": {
            "metric": "throughput",
            "low": 0.15,
            "high": 0.25,
            "where": "concurrency > 8",
        },
        "kernel": {"path": "k", "problem": "P", "function": "split"},
        "baseline": BASE,
        "assume": ["block_h == 32"],
        "risks": ["C | D"],
        "decision": {"improve": "concurrency > 8"},
    }
    arms = [("baseline", BASE, 128), ("null", BASE, 128), ("w8", WIDE, 64)]
    fields: dict[str, Any] = {
        "study": "dsv4",
        "plan_hash": "5f3c" * 16,
        "title": title,
        "document": "AB",
        "sections": sections,
        "arms": [
            ArmPlan(name=n, config=c, why=["because"], facts={"block_h": 16, "acc": a})
            for n, c, a in arms
        ],
        "workloads": [
            WorkloadPlan(
                name=f"c{c}",
                axes={"concurrency": c},
                bytes=c * 389_120,
                flop=c * 20_971_520,
                sm_clocks=c * 44_800.0,
                grids={"sm_120": [c, 4]},
            )
            for c in (1, 96)
        ],
        "targets": ["sm_120", "sm_86"],
        "autotune": {"key": ["topk_rounded"], "configs": [WIDE]},
    }
    return Plan(**{**fields, **more})


def make_verdict(plan: Plan) -> Verdict:
    def result(arm: str, workload: str, **more: Any) -> Result:
        return Result(arm=arm, workload=workload, device="h200", **more)

    results = [
        result("baseline", "c1", time_us=9.6, ratio=1.0, verdict="baseline", noise_floor=0.003),
        result("baseline", "c96", time_us=73.8, ratio=1.0, verdict="baseline"),
        result("w8", "c1", time_us=8.6, ratio=0.9, low=0.88, high=0.91, verdict="faster"),
        result("w8", "c96", verdict="wrong", reason="out: gate used 11.3"),
    ]
    device = DeviceVerdict(
        device="h200",
        device_name="NVIDIA H200",
        target="sm_90",
        source="published evidence",
        measured_at="2026-02-11T09:30:00+00:00",
        plan_commit="c0ffee" * 6 + "c0ff",
        preregistered=True,
        versions={"triton": "3.6.0"},
        decision="reject",
        adopted=None,
        conclusions=["w8 is wrong."],
        results=results,
    )
    assumption = Assumption(text="block_h == 32", verdict="refuted", values={"block_h": 16})
    return Verdict(
        study="dsv4",
        plan_hash=plan.plan_hash,
        plan_commit=device.plan_commit,
        devices=[device],
        assumptions=[assumption],
        notes=["c24.json: stale; kept out"],
    )


def test_the_empty_table_is_this() -> None:
    text = render_document(make_plan(), TEMPLATES)
    assert EMPTY_TABLE in text
    assert "**Status:** plan only. Nothing has been measured." in text


def test_same_plan_same_bytes_and_no_host_in_them() -> None:
    text = render_document(make_plan(), TEMPLATES)
    assert render_document(make_plan(versions={"triton": "3.7.0"}), TEMPLATES) == text
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert all(line == line.rstrip() for line in text.splitlines())


def test_the_argument_has_its_numbers() -> None:
    text = render_document(make_plan(), TEMPLATES)
    assert "one CTA of the baseline, 4 warps, is 8.3 % of an SM's 48 warp slots" in text
    assert "| c96 | 384 | 2.04 | 3, 68 % full | – | not known | not known |" in text
    assert "at c1 the grid has at most one CTA per SM" in text
    assert "| 16 | 128 | baseline, null |" in text and "| 16 | 64 | w8 |" in text
    assert "953 B per SM for every 100 ns of latency" in text
    assert "37,355,520 | 2.01 G | 4.30 M | 20.8 µs" in text


def test_protocol_rule_and_risks_are_in_words() -> None:
    text = render_document(make_plan(), TEMPLATES)
    assert "6 fresh processes × 2 fresh allocations and graph captures = 12" in text
    assert "`improve` selects c96" in text and "at least 4 × L2" in text
    assert "keys on `topk_rounded`; `concurrency` varies here and is not in it by name" in text
    assert "- C \\| D" in text
    assert "no key can be blind" in render_document(make_plan(autotune=None), TEMPLATES)


def test_the_filled_document_says_where_its_figures_come_from() -> None:
    plan = make_plan()
    text = render_document(plan, TEMPLATES, make_verdict(plan))
    assert (
        "- NVIDIA H200: published evidence, 2026-02-11, pre-registered, plan commit `c0ffeec0ffee`"
        in text
    )
    assert "| w8 | 8.60 µs, 0.900 (0.880–0.910), faster | wrong |" in text
    assert "| null | not measured | not measured |" in text
    assert "- w8, wrong at c96: out: gate used 11.3" in text
    assert "`block_h == 32`: **refuted** (block_h = 16)" in text
    assert "**Decision:** reject" in text and "c24.json: stale" in text and "triton=3.6.0" in text


def test_a_kernel_that_is_launched_again_and_again_is_named_once() -> None:
    text = render_document(make_plan(kernels=["split", "combine"] * 3 + ["cast"]), TEMPLATES)
    assert (
        "Its Triton kernels, in order of first launch: `split` (3 launches traced), `combine` (3"
        " launches traced), `cast`. The configs apply to"
    ) in text


def test_dropped_blocks_stand_beside_the_result_table() -> None:
    plan = make_plan()
    drops = [
        Drops(workload="c1", blocks=30, dropped=5),
        Drops(workload="c96", blocks=30, dropped=21, reasons=["sw_power_cap"]),
    ]
    gpu = GpuUse(
        held_seconds=1, busy_seconds=1, workloads={}, arms={}, blocks=60, dropped=26, drops=drops,
        uuids=[],
    )  # fmt: skip
    text = render_document(plan, TEMPLATES, with_device(make_verdict(plan), gpu=gpu))
    line = "- dropped blocks: c1 5 of 30 (SM clock moved), c96 21 of 30 (sw_power_cap)\n"
    assert text.index("| w8 |") < text.index(line) < text.index("- w8, wrong at c96")
    assert "dropped blocks:" not in render_document(plan, TEMPLATES, make_verdict(plan))


def test_of_whole_steps_only_the_headroom_over_the_bandwidth_floor_is_said() -> None:
    bound = Bound(
        workload="c96", arm="w8", time_us=3766.4, floor_us=961.0, headroom=3.919, limit="waves", why="y"
    )  # fmt: skip
    texts = []
    for series in ("measured", "b200"):
        plan = make_plan()
        throughput = {"series": series, "share": None, "step": None, "where": "True"}
        decision = Decision(improve="concurrency > 8").model_dump()
        sections = {**plan.sections, "throughput": throughput, "decision": decision}
        plan = plan.model_copy(update={"sections": sections})
        found = with_device(make_verdict(plan), bounds=[bound])
        texts.append(render_document(plan, TEMPLATES, found))
    assert "| c96 | w8 | 3,766 µs | 961 µs | 3.9 × |\n" in texts[0]
    assert "metric step time" in texts[0] and "Median µs per step" in texts[0]
    assert "End to end there" not in texts[0] and "waves: y" not in texts[0]
    assert "End to end there" in texts[1] and "waves: y" in texts[1]
    assert "metric kernel" in texts[1] and "Median µs per launch" in texts[1]


def with_device(verdict: Verdict, **changes: Any) -> Verdict:
    (device,) = verdict.devices
    return verdict.model_copy(update={"devices": [device.model_copy(update=changes)]})


def test_a_verdict_without_devices_leaves_the_table_empty() -> None:
    plan = make_plan()
    nothing = make_verdict(plan).model_copy(update={"devices": []})
    text = render_document(plan, TEMPLATES, nothing)
    assert EMPTY_TABLE.split("## Provenance")[0] in text


def test_feasibility_names_limits_and_what_was_not_compiled() -> None:
    plan = make_plan()
    reason = Reason(
        limit="shared memory", required=131328, allowed=101376, text="131,328 B > 101,376 B"
    )
    rejected = Feasibility(
        study="dsv4", arm="w8", config=WIDE, target="sm_120", verdict="rejected", reasons=[reason]
    )
    text = render_document(plan, TEMPLATES, feasibility={"sm_120": {"w8": rejected}})
    assert "| w8 | rejected: 131,328 B > 101,376 B |" in text
    assert "| baseline | not compiled |" in text


def test_text_of_the_study_is_inert() -> None:
    evil = "<script>x</script> {{ 7 * 7 }} | a\n# heading"
    plan = make_plan(title=evil, why=evil)
    verdict = make_verdict(plan).model_copy(update={"notes": [evil]})
    text = render_document(plan, TEMPLATES, verdict)
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<script" not in html and "<h1>heading" not in html and html.count("<h1>") == 1
    assert html.count("{{ 7 * 7 }}") == 3
