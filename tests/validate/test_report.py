"""The report is one calm page that hides nothing, loads nothing and believes nobody's text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from occupancy_probe.records import (
    ArmPlan,
    Assumption,
    Bound,
    Check,
    Correctness,
    DeviceVerdict,
    Drops,
    Feasibility,
    GpuUse,
    OutputError,
    Plan,
    PlanCommit,
    Reason,
    Result,
    Verdict,
    WorkloadPlan,
)
from occupancy_probe.validate.report import render_report

TEMPLATES = Path(__file__).parents[2] / "templates"
CONCURRENCY = (1, 8, 16, 32, 48, 64, 96)
BASE_US = (9.6, 14.2, 21.1, 29.6, 37.3, 46.8, 73.8)
TOKENS = 640
H200 = "NVIDIA H200"


def _config(tile: int, warps: int, stages: int) -> dict[str, Any]:
    return {"BLOCK_T": tile, "num_warps": warps, "num_stages": stages}


def _arms() -> list[ArmPlan]:
    arms = [
        ("baseline", _config(32, 4, 2), "what runs today"),
        ("null", _config(32, 4, 2), "twin of the baseline: the study's own noise floor"),
    ]
    for tile in (16, 32, 64):
        for warps in (2, 4, 8, 16):
            for stages in (1, 2, 3):
                name = f"t{tile}-w{warps}-s{stages}"
                if (tile, warps, stages) != (32, 4, 2) and len(arms) < 33:
                    arms.append(
                        (name, _config(tile, warps, stages), "full product around the baseline")
                    )
    return [
        ArmPlan(
            name=n,
            config=c,
            why=[w],
            facts={
                "block_h": 16,
                "accumulator_values_per_thread": 16 * 512 // (32 * c["num_warps"]),
                "tile_bytes": c["BLOCK_T"] * 1024,
            },
        )
        for n, c, w in arms
    ]


def sample_plan(**changes: Any) -> Plan:
    sections = {
        "name": "dsv4-occupancy",
        "title": "DSV4 attention occupancy: num_warps=8 and num_stages=3 on the split kernel",
        "hypothesis": {
            "what": "Force `num_warps = 8`, and perhaps three stages, on the sparse decode kernel.",
            "why": "The kernel is latency-bound: scattered fp8 gathers stall it.\n\nMore warps in flight hide them.",
            "how": "Interleaved A/B over concurrency 1 to 96.",
        },
        "projection": {
            "metric": "decode throughput",
            "low": 0.15,
            "high": 0.25,
            "where": "concurrency >= 48",
            "arms": ["t32-w8-s2", "t32-w8-s3"],
        },
        "kernel": {"path": "../kernels/x", "problem": "P", "function": "sparse_decode_split"},
        "baseline": _config(32, 4, 2),
        "baseline_why": "what runs today",
        "assume": ["block_h == 32", 'fits("sm_120", "t32-w8-s3")', '"batch" in autotune_key'],
        "risks": ["a batch-aware key multiplies the combinations that must be tuned"],
        "decision": {"margin": 0.01, "improve": "concurrency >= 48", "guard": "True"},
    }
    fields: dict[str, Any] = {
        "study": "dsv4-occupancy",
        "plan_hash": "5f3c" * 16,
        "depends": {"kernel": "9a1b" * 16},
        "title": sections["title"],
        "document": "DSV4_ATTN_OCCUPANCY_AB",
        "sections": sections,
        "arms": _arms(),
        "workloads": [
            WorkloadPlan(
                name=f"c{c}",
                axes={"concurrency": c, "topk": 512},
                bytes=c * TOKENS * 608,
                flop=c * TOKENS * 32768,
                sm_clocks=c * TOKENS * 70.0,
                grids={
                    "sm_90": [c, 1, 4],
                    "sm_100": [c, 1, 4],
                    "sm_120": [c, 1, 4],
                },
            )
            for c in CONCURRENCY
        ],
        "targets": ["sm_120", "sm_90", "sm_100"],
        "autotune": {
            "key": ["topk_rounded"],
            "configs": [_config(16, 4, 2), _config(16, 8, 2), _config(32, 8, 2)],
        },
    }
    return Plan(**{**fields, **changes})


def sample_feasibility(plan: Plan) -> dict[str, dict[str, Feasibility]]:
    limits = {
        "sm_120": (101376, 102400, 48),
        "sm_90": (232448, 233472, 64),
        "sm_100": (232448, 233472, 64),
    }
    found: dict[str, dict[str, Feasibility]] = {}
    for target, (block, per_sm, most) in limits.items():
        for arm in plan.arms:
            c = arm.config
            shared = 16_640 + c["BLOCK_T"] * 1024 * c["num_stages"]
            shared += c["BLOCK_T"] * 512 * (c["num_stages"] == 3)
            warps = c["num_warps"]
            registers = {2: 255, 4: 249, 8: 210, 16: 128}[warps]
            common: dict[str, Any] = {
                "study": plan.study, "arm": arm.name, "config": c, "target": target,
                "shared_bytes": shared, "threads": warps * 32, "tensor_memory_columns": 0,
            }  # fmt: skip
            if shared > block:
                reason = Reason(
                    limit="shared memory",
                    required=shared,
                    allowed=block,
                    text=f"shared memory {shared:,} B > {block:,} B per block on {target}",
                )
                record = Feasibility(**common, verdict="rejected", reasons=[reason])
            else:
                by_shared = per_sm // (shared + 1024)
                by_registers = 65536 // (registers * 32 * warps)
                ctas = min(by_shared, by_registers)
                same = {"null": "baseline", "t16-w16-s3": "t16-w16-s2"}.get(arm.name)
                record = Feasibility(
                    **common, verdict="fits", registers=registers, stack_bytes=0,
                    spill_store_bytes=440 if warps == 2 else 0, spill_load_bytes=720 if warps == 2 else 0,
                    ctas_per_sm=ctas, warps_per_sm=ctas * warps, occupancy=ctas * warps / most,
                    limiter=["shared memory" if by_shared < by_registers else "registers"],
                    same_code_as=same, code_sha256="ab" * 32,
                )  # fmt: skip
            found.setdefault(target, {})[arm.name] = record
    return found


def _factor(config: dict[str, Any], i: int) -> float:
    warps = {2: 1.22, 4: 1.0, 8: 0.9 + 0.075 * i, 16: 1.0 + 0.16 * i}[config["num_warps"]]
    stages = {1: 0.93, 2: 1.0, 3: 1.015}[config["num_stages"]]
    tile = {16: 1.13, 32: 1.0, 64: 1.04}[config["BLOCK_T"]]
    return warps * stages * tile


def _results(plan: Plan, feasibility: dict[str, Feasibility]) -> list[Result]:
    results = []
    for arm in plan.arms:
        for i, (w, base) in enumerate(zip(plan.workloads, BASE_US, strict=True)):
            common: dict[str, Any] = {"arm": arm.name, "workload": w.name, "device": "nvidia-h200"}
            if feasibility[arm.name].verdict == "rejected":
                text = feasibility[arm.name].reasons[0].text
                results.append(Result(**common, verdict="rejected", reason=text))
            elif arm.name == "t64-w8-s1":
                results.append(
                    Result(**common, verdict="wrong", reason="out: gate used 11.3 at c16")
                )
            elif arm.name == "baseline":
                results.append(
                    Result(**common, time_us=base, ratio=1.0, verdict="baseline", noise_floor=0.003)
                )
            else:
                ratio = 1.0007 if arm.name == "null" else _factor(arm.config, i)
                low, high = ratio * 0.994, ratio * 1.006
                word = "faster" if high < 1 else "slower" if low > 1 else "equivalent"
                results.append(
                    Result(
                        **common, time_us=base * ratio, ratio=ratio, low=low, high=high, p_adjusted=0.001,
                        verdict=word, noise_floor=0.003, evidence=f"measurement/nvidia-h200/{w.name}.json",
                    )  # type: ignore[arg-type]
                )  # fmt: skip
    return results


def sample_verdict(plan: Plan, feasibility: dict[str, dict[str, Feasibility]]) -> Verdict:
    device = DeviceVerdict(
        device="nvidia-h200",
        device_name=H200,
        target="sm_90",
        source="published evidence",
        measured_at="2026-02-11T09:30:00+00:00",
        plan_commit="c0ffee" * 6 + "c0ff",
        preregistered=True,
        versions={"triton": "3.6.0", "torch": "2.11.0", "ptxas": "12.9.86", "driver": "580.95"},
        decision="adopt t32-w4-s1",
        adopted="t32-w4-s1",
        conclusions=[
            "t32-w8-s2 is slower than the baseline by 20 to 35 % at c48, c64, c96: the projection does not hold here.",
            "On sm_90 the baseline already has 2 CTAs × 4 warps, as many warps as one CTA of 8; on sm_120 it has 1 × 4. The hypothesis is about sm_120 and does not transfer.",
        ],
        results=_results(plan, feasibility["sm_90"]),
        floors={
            w.name: {
                "bandwidth_us": w.bytes / 4.3e6,
                "issue_us": w.sm_clocks / 132 / 1755,
                "floor_us": max(w.bytes / 4.3e6, w.sm_clocks / 132 / 1755),
            }
            for w in plan.workloads
        },
    )
    return Verdict(
        study=plan.study,
        plan_hash=plan.plan_hash,
        plan_commit=device.plan_commit,
        devices=[device],
        assumptions=[
            Assumption(text="block_h == 32", verdict="refuted", values={"block_h": 16}),
            Assumption(
                text='fits("sm_120", "t32-w8-s3")',
                verdict="refuted",
                values={"fits(sm_120, t32-w8-s3)": False},
            ),
            Assumption(
                text='"batch" in autotune_key',
                verdict="refuted",
                values={"autotune_key": ["topk_rounded"]},
            ),
        ],
        notes=["measurement/nvidia-h200/c24.json: stale: the plan has no workload 'c24'; kept out"],
    )


def sample_correctness(plan: Plan, mode: str) -> dict[str, Correctness]:
    records = {}
    for arm in plan.arms:
        if mode == "logic" and arm.config["num_warps"] != 4:
            continue
        wrong = mode == "gpu" and arm.name == "t64-w8-s1"
        error = OutputError(
            max_absolute=0.34 if wrong else 3.1e-4, gate_used=11.3 if wrong else 0.27,
            one_minus_cosine=1e-6, relative_norm=8e-4, not_written=64 if wrong else 0,
        )  # fmt: skip
        verdict: Any = "wrong" if wrong else "right"
        check = Check(
            workload="c16",
            verdict=verdict,
            outputs={"out": error},
            replay_equals_eager=True if mode == "gpu" else None,
            reason="out: gate used 11.3" if wrong else None,
        )
        stands = [
            a.name
            for a in plan.arms
            if a.config["BLOCK_T"] == arm.config["BLOCK_T"] and a.name != arm.name
        ]
        records[arm.name] = Correctness(
            study=plan.study, arm=arm.name, config=arm.config,
            device="interpreter" if mode == "logic" else "nvidia-h200",
            device_name="Triton interpreter" if mode == "logic" else H200, mode=mode,  # type: ignore[arg-type]
            verdict=verdict, checks=[check], stands_for=stands if mode == "logic" else [],
        )  # fmt: skip
    return records


COMMIT = PlanCommit(
    study="dsv4-occupancy",
    plan_hash="5f3c" * 16,
    commit="c0ffee" * 6 + "c0ff",
    committed_at="2026-02-10T17:00:00+00:00",
    preregistered=True,
    note="found in history",
)
VERSIONS = {"occupancy-probe": "0.1.0", "triton": "3.6.0"}


def full_report(**changes: Any) -> str:
    plan = changes.pop("plan", sample_plan())
    feasibility = sample_feasibility(plan)
    arguments: dict[str, Any] = {
        "plan": plan,
        "commit": COMMIT,
        "verdict": sample_verdict(plan, feasibility),
        "feasibility": feasibility,
        "logic": sample_correctness(plan, "logic"),
        "correctness": {"nvidia-h200": sample_correctness(plan, "gpu")},
        "versions": VERSIONS,
        "templates": TEMPLATES,
    }
    return render_report(**{**arguments, **changes})


def empty_verdict(plan: Plan) -> Verdict:
    return Verdict(
        study=plan.study, plan_hash=plan.plan_hash, plan_commit=None, devices=[], assumptions=[]
    )


@pytest.fixture(scope="module")
def page() -> str:
    return full_report()


class _Tags(HTMLParser):
    """Open elements, to see that the page nests, and every attribute."""

    void = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")


def _parsed(page: str) -> _Tags:
    parser = _Tags()
    parser.feed(page)
    assert not parser.faults and not parser.open
    return parser


def test_the_same_records_give_the_same_bytes(page: str) -> None:
    assert full_report() == page


def test_the_page_loads_nothing(page: str) -> None:
    for tag, attributes in _parsed(page).seen:
        assert tag not in {"script", "link", "img", "iframe", "object", "base"}
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    assert "@import" not in page
    assert all(found.startswith("url(#") for found in re.findall(r"url\(.", page))


def test_every_arm_stands_in_every_part(page: str) -> None:
    for part in ("results", "feasibility", "correctness"):
        section = page.split(f'<section id="{part}">')[1].split("</section>")[0]
        for arm in sample_plan().arms:
            assert f"<code>{arm.name}</code>" in section, (part, arm.name)
    residency = page.split('<section id="residency">')[1].split("</section>")[0]
    assert all(f">{arm.name}<" in residency for arm in sample_plan().arms)


def test_evidence_is_attributed_before_anything_else(page: str) -> None:
    summary = page.split('<section id="summary">')[1].split("</section>")[0]
    assert "published evidence, measured on NVIDIA H200 on 2026-02-11, Triton 3.6.0" in summary
    assert "adopt t32-w4-s1" in summary


def test_dropped_blocks_are_shown_per_workload_and_a_step_has_no_limit_by_one_kernels_grid() -> (
    None
):
    plan = sample_plan()
    drops = [Drops(workload="c96", blocks=30, dropped=21, reasons=["sw_power_cap"])]
    gpu = GpuUse(
        held_seconds=2, busy_seconds=1, workloads={}, arms={}, blocks=210, dropped=21, drops=drops,
        uuids=["u"],
    )  # fmt: skip
    bound = Bound(
        workload="c96", arm="w8", time_us=3766.4, floor_us=961.0, headroom=3.919, limit="waves", why="y"
    )  # fmt: skip
    verdict = sample_verdict(plan, sample_feasibility(plan))
    device = verdict.devices[0].model_copy(update={"gpu": gpu, "bounds": [bound]})
    verdict = verdict.model_copy(update={"devices": [device]})
    pages = []
    for series in ("measured", "b200"):
        plan = sample_plan()
        plan.sections["throughput"] = {"series": series}
        pages.append(full_report(plan=plan, verdict=verdict))
    for page in pages:
        assert "21 of 210 blocks dropped" in page
        assert "moving clock: c96 21 of 30 (sw_power_cap).</p>" in page
    step, kernel = (p.split('<section id="throughput">')[1].split("</section>")[0] for p in pages)
    assert "<td>3,766 µs</td><td>961 µs</td><td>3.9 ×</td></tr>" in step
    assert "End to end" not in step and "waves" not in step
    assert "End to end there" in kernel and "waves: y" in kernel


def test_verdicts_are_words_and_not_only_colours(page: str) -> None:
    results = page.split('<section id="results">')[1].split("</section>")[0]
    for word in ("▼ faster", "▲ slower", "≈ equivalent", "✕ rejected", "✕ wrong", "● baseline"):
        assert word in results


def test_rejected_and_wrong_arms_keep_their_reason(page: str) -> None:
    assert "131,328 required, 101,376 allowed" in page
    assert "out: gate used 11.3 at c16" in page
    assert "c16: wrong: out: gate used 11.3; 64 elements not written" in page


def test_without_a_gpu_nothing_has_a_figure_in_a_measured_column() -> None:
    plan = sample_plan()
    page = full_report(verdict=empty_verdict(plan), correctness={})
    _parsed(page)
    results = page.split('<section id="results">')[1].split("</section>")[0]
    assert results.count("not measured") == len(plan.arms) * len(plan.workloads)
    assert "µs" not in results and "NVIDIA H200" not in page
    assert "logic (interpreter)" in page


def test_with_nothing_at_all_the_page_still_says_so() -> None:
    plan = sample_plan(depends={}, autotune=None)
    page = full_report(
        plan=plan,
        commit=None,
        verdict=empty_verdict(plan),
        feasibility={},
        logic={},
        correctness={},
    )
    _parsed(page)
    assert "not committed" in page and "not compiled" in page and "not checked" in page


def test_text_of_the_study_is_inert() -> None:
    evil = "<script>alert(1)</script> {{ 7 * 7 }} {% for x in y %}"
    plan = sample_plan(title=evil)
    hypothesis = {**plan.sections["hypothesis"], "what": evil, "why": evil}
    axes = [w.model_copy(update={"axes": {"<b>$x_$": i}}) for i, w in enumerate(plan.workloads)]
    plan = plan.model_copy(
        update={"sections": {**plan.sections, "hypothesis": hypothesis}, "workloads": axes}
    )
    page = full_report(plan=plan)
    assert not {"script", "b"} - {"b"} & {tag for tag, _ in _parsed(page).seen}
    assert "{{ 7 * 7 }}" in page and "<b>$x_$" not in page


def test_plan_and_commit_are_named(page: str) -> None:
    assert COMMIT.commit and COMMIT.commit in page
    assert f"git checkout {COMMIT.commit}" in page
    assert "stale: the plan has no workload" in page
