"""Samples in the formats of other tools, read back by those tools' own rules."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass

import jsonschema
import numpy as np
import pytest
from conftest import FIXTURES

from occupancy_probe.records import (
    ArmPlan,
    Bound,
    Check,
    Clocks,
    Correctness,
    DeviceVerdict,
    EndToEnd,
    Feasibility,
    Interval,
    Measurement,
    Plan,
    Reason,
    Replicate,
    Result,
    Ruling,
    System,
    Verdict,
    WorkloadPlan,
)
from occupancy_probe.validate.interchange import csv_text, t4_results, write_nvbench
from occupancy_probe.validate.pull_request import render_pull_request

CONFIGS = {
    "baseline": {"num_warps": 4, "num_stages": 2},
    "null": {"num_warps": 4, "num_stages": 2},
    "w8": {"num_warps": 8, "num_stages": 2},
    "s9": {"num_warps": 4, "num_stages": 9},
    "bad": {"num_warps": 2, "num_stages": 2},
}
TRUTH = {"baseline": 20.0, "null": 20.0, "w8": 22.0}


@pytest.fixture(scope="module")
def plan():
    return Plan(
        study="s", plan_hash="P", title="#1 | warps", document="D", targets=["sm_90"],
        sections={
            "kernel": {"function": "attention"},
            "hypothesis": {"what": "Use `num_warps=8`.\nIt hides latency."},
            "projection": {"arms": ["w8"]},
            "decision": {"alpha": 0.05, "improve": "c >= 64"},
        },
        arms=[ArmPlan(name=n, config=c, why=[], facts={}) for n, c in CONFIGS.items()],
        workloads=[
            WorkloadPlan(name=w, axes={"c": c}, bytes=1, flop=1, sm_clocks=0, grids={})
            for w, c in (("c1", 1), ("c64", 64))
        ],
        autotune=None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def measurements():
    rng = np.random.default_rng(0)
    clocks = Clocks(
        sm_mhz_low=1900, sm_mhz_median=1980, sm_mhz_high=1980, temperature_c=50, power_w=1
    )

    def measured(workload):
        replicates = [
            Replicate(
                process=p,
                allocation=0,
                arms={
                    a: (t * (1 + 0.002 * rng.standard_normal(8))).tolist() for a, t in TRUTH.items()
                },
                clocks=clocks,
            )
            for p in range(3)
        ]
        return Measurement(
            study="s", plan_commit="c", device="h200", device_name="NVIDIA H200", device_uuid="u",
            workload=workload, regime="cold", input_sets=2, replicates=replicates,
            started_at="2026-03-01T12:00:00+00:00", gpu_seconds=1.0,
        )  # fmt: skip

    return {w: measured(w) for w in ("c1", "c64")}


@pytest.fixture(scope="module")
def t4(plan, measurements):
    feasible = {"study": "s", "config": {}, "target": "sm_90"}
    matrix = {
        "baseline": Feasibility(arm="baseline", verdict="fits", compile_seconds=1.5, **feasible),
        "s9": Feasibility(
            arm="s9",
            verdict="rejected",
            reasons=[Reason(limit="shared memory", text="x")],
            **feasible,
        ),
    }
    correct = {
        a: Correctness(
            study="s", arm=a, config={}, device="h200", device_name="NVIDIA H200", mode="gpu",
            verdict=v, checks=[Check(workload="c1", verdict=v)],
        )
        for a, v in (("baseline", "right"), ("w8", "right"), ("bad", "wrong"))
    }  # fmt: skip
    return t4_results(plan, measurements["c64"], matrix, correct)


def test_t4_has_every_arm_that_is_an_arm_of_its_own_with_its_validity(t4):
    found = {tuple(r["configuration"].values()): r for r in t4["results"]}
    assert len(t4["results"]) == len(found) == 4  # the null arm is no config of its own
    assert found[4, 2]["invalidity"] == found[8, 2]["invalidity"] == "correct"
    assert found[4, 9]["invalidity"] == "constraints" and not found[4, 9]["times"]["runtimes"]
    assert found[2, 2]["invalidity"] == "correctness" and found[2, 2]["correctness"] == 0
    assert found[4, 2]["times"]["compilation_time"] == 1500


def test_t4_times_are_milliseconds(t4):
    base = t4["results"][0]
    assert len(base["times"]["runtimes"]) == 24
    assert base["measurements"][0]["value"] == pytest.approx(0.020, rel=0.01)
    assert t4["metadata"]["timeunit"] == "milliseconds"


def test_t4_passes_kernel_tuners_own_schema(t4):
    schema = json.loads((FIXTURES / "t4/results-schema.json").read_text())
    content = json.loads(json.dumps(t4))
    jsonschema.validate(content, schema)
    content["results"][0]["invalidity"] = "slow"
    with pytest.raises(jsonschema.ValidationError, match="'slow' is not one of"):
        jsonschema.validate(content, schema)


def test_t4_has_what_the_schema_requires(t4):
    """Types and required keys of T4 results 1.0.0."""
    assert t4["schema_version"] == "1.0.0"
    for entry in json.loads(json.dumps(t4))["results"]:
        assert isinstance(entry["configuration"], dict) and isinstance(entry["times"], dict)
        assert isinstance(entry["times"]["compilation_time"], int | float)
        assert isinstance(entry["times"]["runtimes"], list)
        assert entry["invalidity"] in (
            "timeout", "compile", "runtime", "correctness", "constraints", "correct",
        )  # fmt: skip
        assert isinstance(entry["correctness"], int | float)
        assert all({"name", "value", "unit"} == m.keys() for m in entry["measurements"])


@pytest.fixture(scope="module")
def nvbench(plan, measurements, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvbench")
    paths = {a: write_nvbench(folder, plan, a, measurements) for a in CONFIGS}
    assert paths["s9"] is None  # never timed
    return folder, {a: json.loads(p.read_text()) for a, p in paths.items() if p}


def value(state, tag, name="value"):
    """As NVBench's scripts look a summary up; its numbers are strings."""
    (summary,) = [s for s in state["summaries"] if s["tag"] == tag]
    (data,) = [d for d in summary["data"] if d["name"] == name]
    return data["value"], data["type"]


def test_nvbench_has_a_state_per_workload_with_the_tags_that_its_comparison_reads(nvbench):
    _, files = nvbench
    root = files["w8"]
    assert root["meta"]["version"]["json"]["string"] == "1.0.0"
    assert root["devices"][0]["id"] == 0 and root["devices"][0]["number_of_sms"] == 132
    (benchmark,) = root["benchmarks"]
    assert [s["axis_values"][0]["value"] for s in benchmark["states"]] == ["c1", "c64"]
    assert benchmark["axes"][0]["name"] == "workload"
    for state in benchmark["states"]:
        mean, kind = value(state, "nv/cold/time/gpu/mean")
        assert kind == "float64" and float(mean) == pytest.approx(22e-6, rel=0.01)
        for tag in ("stdev/relative", "min", "max", "q1", "median", "q3", "iqr/relative"):
            assert value(state, f"nv/cold/time/gpu/{tag}")[1] == "float64"
        clock = float(value(state, "nv/cold/sm_clock_rate/mean")[0])
        assert clock == pytest.approx(1.98e9)


def test_states_of_two_arms_match_by_name(nvbench):
    _, files = nvbench
    names = [[s["name"] for s in f["benchmarks"][0]["states"]] for f in files.values()]
    assert all(n == names[0] for n in names)
    assert len({f["benchmarks"][0]["name"] for f in files.values()}) == 1


def test_nvbench_raw_samples_are_float32_seconds_beside_the_file(nvbench, measurements):
    folder, files = nvbench
    state = files["w8"]["benchmarks"][0]["states"][1]
    tag = "nv/json/bin:nv/cold/sample_times"
    samples = np.fromfile(folder / value(state, tag, "filename")[0], "<f4")
    taken = [us for r in measurements["c64"].replicates for us in r.arms["w8"]]
    assert int(value(state, tag, "size")[0]) == len(samples) == 24
    np.testing.assert_allclose(samples, np.array(taken) / 1e6, rtol=1e-6)


def results():
    return [
        Result(
            arm=a, workload=w, device="h200", time_us=t, ratio=t / 20, low=t / 20 - 0.01,
            high=t / 20 + 0.01, verdict="baseline" if a == "baseline" else "slower",
            noise_floor=0.002,
        )
        for a, t in TRUTH.items()
        for w in ("c1", "c64")
    ]  # fmt: skip


def test_the_csv_has_every_sample_with_axes_config_and_verdict(plan, measurements):
    rows = list(csv.DictReader(io.StringIO(csv_text(plan, results(), measurements))))
    assert len(rows) == 2 * 3 * 3 * 8
    one = next(r for r in rows if r["arm"] == "w8" and r["workload"] == "c64")
    assert (one["c"], one["num_warps"], one["process"], one["block"]) == ("64", "8", "0", "0")
    assert one["verdict"] == "slower"
    assert float(one["time_us"]) == measurements["c64"].replicates[0].arms["w8"][0]


def verdict(**changes):
    gain = Interval(value=-0.01, low=-0.012, high=-0.008)
    of = EndToEnd(
        arm="w8", workload="c64", concurrency=64, ratio=Interval(value=1.1, low=1.09, high=1.11),
        share=Interval(value=0.1, low=0.09, high=0.11), projected=gain, outcome="kernel loss",
    )  # fmt: skip
    fields = {
        "device": "h200",
        "device_name": "NVIDIA H200",
        "target": "sm_90",
        "source": "measured here",
        "measured_at": "2026-03-01T12:00:00+00:00",
        "plan_commit": "c0ffee" * 6,
        "preregistered": True,
        "versions": {"triton": "3.6.0"},
        "decision": "reject: no arm is faster",
        "adopted": None,
        "conclusions": [],
        "results": results(),
        "ruling": Ruling(rule="kernel time better", outcome="reject", text="reject"),
        "system": System(gains=[of]),
    }
    device = DeviceVerdict(**fields | changes)
    return Verdict(
        study="s", plan_hash="P", plan_commit="c0ffee" * 6, devices=[device], assumptions=[]
    )


@pytest.fixture
def templates(request):
    return request.config.rootpath / "templates"


def test_the_pull_request_says_all_that_people_ask(plan, templates):
    text = render_pull_request(plan, verdict(), templates)
    assert text.startswith("## #1 \\| warps\n")
    assert "**Hypothesis.** Use `num_warps=8`. It hides latency." in text
    assert text.count("| Arm |") == 2  # the table, and the end-to-end one
    assert "| w8 | 1.100 \\[1.090–1.110\\] slower | 1.100" in text
    assert "**reject: no arm is faster**" in text
    assert "Rule, fixed in the plan (commit `c0ffeec0ffee`): kernel time better." in text
    assert "10.00 % [9.00–11.00] | −1.00 % [−1.20–−0.80] | not measured | kernel loss" in text
    assert "triton=3.6.0; measured here, 2026-03-01, plan committed before the first sample" in text
    block = text[text.index("```sh") :].strip().splitlines()
    assert block[1:-1] == [
        f"git checkout {'c0ffee' * 6}",
        "snakemake ab_report --config study=s",
    ]


@dataclass
class Change:
    committed_at: str
    why: str
    changes: tuple[str, ...]


def test_the_pull_request_does_not_call_an_amended_rule_fixed(plan, templates):
    changes = [
        Change("2026-02-01T00:00:00+00:00", "more blocks", ("measurement.blocks 6 to 96",)),
        Change(
            "2026-02-02T00:00:00+00:00", "a softer guard", ("decision.guard_loss 0.01 to 0.02",)
        ),
    ]
    text = render_pull_request(plan, verdict(), templates, changes)
    assert "fixed in the plan" not in text
    assert "Rule, in the plan as amended (commit `c0ffeec0ffee`): kernel time better." in text
    assert (
        "amended 2 times after it had first been committed (last on 2026-02-02: a softer guard),"
        " **the decision rule itself among it**; what was measured before a change is exploratory"
    ) in text
    once = render_pull_request(plan, verdict(), templates, changes[:1])
    assert "amended 1 time after" in once and "decision rule itself" not in once


def test_the_pull_request_checks_out_what_holds_all_evidence_and_says_the_next_step(
    plan, templates
):
    said = verdict(conclusions=["c1: slow", "next step: a rewrite would gain +2.0 % at c64"])
    text = render_pull_request(plan, said, templates, evidence="beef" * 10)
    assert f"git checkout {'beef' * 10}\nsnakemake ab_report --config study=s" in text
    assert "**Next step:** a rewrite would gain +2.0 % at c64." in text and "c1: slow" not in text


def test_in_a_clone_without_a_note_of_the_plan_commit_the_evidences_is_checked_out(plan, templates):
    noteless = verdict().model_copy(update={"plan_commit": None})
    text = render_pull_request(plan, noteless, templates)
    assert f"git checkout {'c0ffee' * 6}\n" in text and "REVISION" not in text


def test_the_pull_request_of_whole_steps_speaks_of_the_step(plan, templates):
    steps = plan.model_copy(
        update={"sections": {**plan.sections, "throughput": {"series": "measured"}}}
    )
    bound = Bound(
        workload="c64", arm="baseline", time_us=3766.0, floor_us=961.0, headroom=3.919,
        why="3.9 × the bandwidth floor of 961 µs",
    )  # fmt: skip
    slow = [r.model_copy(update={"time_us": 3766.4}) for r in results()]
    text = render_pull_request(steps, verdict(bounds=[bound], results=slow), templates)
    assert "Whole step around kernel `attention`, time relative to the baseline" in text
    assert "- c64: the whole step takes 3.9 × the bandwidth floor of 961 µs\n" in text
    assert "| baseline | 3,766 µs | 3,766 µs |" in text


def test_without_a_device_it_says_not_measured(plan, templates):
    empty = verdict().model_copy(update={"devices": []})
    assert "not measured on any device yet" in render_pull_request(plan, empty, templates)
