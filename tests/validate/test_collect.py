"""What is gathered from results/<study>/, and what is left out with a note."""

from __future__ import annotations

import json

import pytest

from occupancy_probe.exc import RecordError
from occupancy_probe.records import (
    ArmPlan,
    Check,
    Correctness,
    Feasibility,
    Measurement,
    Plan,
    PlanCommit,
    Reason,
    Replicate,
    WorkloadPlan,
    write_record,
)
from occupancy_probe.validate.collect import DeviceRecords, code_twin, collect

CONFIGS = {"baseline": {"num_warps": 4}, "w8": {"num_warps": 8}}
LAUNCH = "launch-now"


def plan(plan_hash="plan-now"):
    workload = {"axes": {}, "bytes": 1, "flop": 1, "sm_clocks": 0.0, "grids": {}}
    return Plan(
        study="s",
        plan_hash=plan_hash,
        title="t",
        document="D",
        sections={},
        arms=[ArmPlan(name=n, config=c, why=[], facts={}) for n, c in CONFIGS.items()],
        workloads=[WorkloadPlan(name=n, **workload) for n in ("c1", "c64")],
        targets=["sm_90"],
        autotune=None,
    )


def measurement(workload="c1", device="gpu0", plan_hash="plan-now", launch=LAUNCH, **changes):
    fields = {
        "study": "s",
        "depends": {"plan": plan_hash, "launch": launch},
        "plan_commit": "abc",
        "device": device,
        "device_name": "NVIDIA H200",
        "device_uuid": "u",
        "workload": workload,
        "regime": "cold",
        "input_sets": 4,
        "replicates": [Replicate(process=0, allocation=0, arms={"baseline": [1.0]})],
        "started_at": "2026-01-02T00:00:00Z",
        "gpu_seconds": 1.0,
    }
    return Measurement(**fields | changes)


def correctness(arm="w8", device="gpu0", launch=LAUNCH, **changes):
    fields = {
        "study": "s",
        "depends": {"launch": launch},
        "arm": arm,
        "config": CONFIGS.get(arm, {}),
        "device": device,
        "device_name": "NVIDIA H200",
        "mode": "gpu",
        "verdict": "right",
        "checks": [Check(workload="c1", verdict="right")],
    }
    return Correctness(**fields | changes)


def feasibility(arm="w8", target="sm_90", launch=LAUNCH, **changes):
    fields = {
        "study": "s",
        "depends": {"launch": launch},
        "arm": arm,
        "config": CONFIGS.get(arm, {}),
        "target": target,
        "verdict": "fits",
    }
    return Feasibility(**fields | changes)


@pytest.fixture
def results(tmp_path):
    write_record(tmp_path / "plan.json", plan())
    return tmp_path


def test_everything_in_its_place(results):
    commit = PlanCommit(
        study="s",
        plan_hash="plan-now",
        commit="abc",
        committed_at=None,
        preregistered=True,
        note="",
    )
    write_record(results / "plan_commit.json", commit)
    write_record(results / "feasibility/sm_90/w8.json", feasibility())
    write_record(results / "correctness/gpu0/w8.json", correctness())
    write_record(results / "measurement/gpu0/c1.json", measurement())
    logic = correctness(device="interpreter", mode="logic")
    write_record(results / "correctness/interpreter/w8.json", logic)
    found = collect(results, LAUNCH)
    assert found.notes == []
    assert found.plan_commit == commit
    assert list(found.feasibility) == ["sm_90"]
    assert list(found.devices) == ["gpu0"]
    assert found.logic == {"w8": logic}
    gpu = found.devices["gpu0"]
    assert (gpu.source, gpu.device_name) == ("measured here", "NVIDIA H200")
    assert list(gpu.correctness) == ["w8"] and list(gpu.measurements) == ["c1"]
    assert gpu.evidence("c1") == "measurement/gpu0/c1.json"


def test_no_records_at_all(results):
    found = collect(results, LAUNCH)
    assert (found.devices, found.notes, found.plan_commit) == ({}, [], None)


def test_evidence_of_another_machine_with_its_own_feasibility(results):
    write_record(results / "feasibility/sm_90/w8.json", feasibility(registers=100))
    write_record(results / "feasibility/sm_120/w8.json", feasibility(target="sm_120", registers=1))
    there = results / "evidence/gpu0"
    write_record(there / "feasibility/sm_90/w8.json", feasibility(registers=99))
    write_record(there / "correctness/w8.json", correctness())
    write_record(there / "measurement/c1.json", measurement())
    gpu = collect(results, LAUNCH).devices["gpu0"]
    assert gpu.source == "published evidence"
    assert gpu.feasibility["sm_90"]["w8"].registers == 99
    assert gpu.feasibility["sm_120"]["w8"].registers == 1
    assert gpu.evidence("c1") == "evidence/gpu0/measurement/c1.json"


def test_local_records_replace_evidence_only_with_local_measurements(results):
    write_record(results / "evidence/gpu0/measurement/c64.json", measurement("c64"))
    write_record(results / "correctness/gpu0/w8.json", correctness())
    gpu = collect(results, LAUNCH).devices["gpu0"]
    assert (gpu.source, list(gpu.measurements)) == ("published evidence", ["c64"])
    write_record(results / "measurement/gpu0/c1.json", measurement("c1"))
    gpu = collect(results, LAUNCH).devices["gpu0"]
    assert (gpu.source, list(gpu.measurements)) == ("measured here", ["c1"])


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (measurement(plan_hash="plan-then"), "stale: measured under plan plan-then"),
        (measurement(launch="launch-then"), "stale: made from kernel source"),
        (measurement("c9"), "stale: the plan has no workload 'c9'"),
        (measurement("c64"), "says workload 'c64', expected 'c1'"),
        (measurement(device="gpu1"), "says device 'gpu1'"),
        (measurement(study="other"), "belongs to study 'other'"),
    ],
)
def test_H2_stale_measurement_is_named_and_kept_out(results, record, said):
    write_record(results / "measurement/gpu0/c1.json", record)
    found = collect(results, LAUNCH)
    assert found.devices == {}
    (note,) = found.notes
    assert note.startswith("measurement/gpu0/c1.json: ") and said in note and "kept out" in note


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"launch": "launch-then"}, "stale: made from kernel source"),
        ({"config": {"num_warps": 16}}, "stale: config {'num_warps': 16} is now {'num_warps': 8}"),
        ({"arm": "w32"}, "stale: the plan has no arm 'w32'"),
    ],
)
def test_H2_stale_arm_records_are_named_and_kept_out(results, change, said):
    write_record(results / "feasibility/sm_90/w8.json", feasibility(**change))
    write_record(results / "correctness/gpu0/w8.json", correctness(**change))
    found = collect(results, LAUNCH)
    assert found.feasibility == {} and found.devices == {}
    assert len(found.notes) == 2 and all(said in n for n in found.notes)


def test_interpreter_never_counts_as_a_gpu(results):
    write_record(results / "correctness/gpu0/w8.json", correctness(mode="logic"))
    write_record(results / "measurement/interpreter/c1.json", measurement(device="interpreter"))
    found = collect(results, LAUNCH)
    assert found.devices == {} and found.logic == {}
    assert "mode 'logic', expected 'gpu'" in found.notes[0]


def test_what_is_published_says_nothing_of_records_that_are_only_here(results):
    write_record(results / "evidence/gpu0/measurement/c1.json", measurement())
    stale = correctness(device="interpreter", mode="logic", depends={"launch": "another"})
    write_record(results / "correctness/interpreter/w8.json", stale)
    write_record(results / "correctness/gpu0/w8.json", correctness(depends={"launch": "another"}))
    write_record(results / "feasibility/sm_90/w8.json", feasibility(depends={"launch": "another"}))
    assert len(collect(results, LAUNCH).notes) == 3
    assert collect(results, LAUNCH, published_only=True).notes == []


@pytest.mark.parametrize("cut", [0, 1, 40, 200])
def test_H5_half_written_records_are_named_and_ignored(results, cut):
    for place, record in {
        "plan_commit.json": plan(),
        "feasibility/sm_90/w8.json": feasibility(),
        "correctness/gpu0/w8.json": correctness(),
        "measurement/gpu0/c1.json": measurement(),
        "evidence/gpu0/measurement/c1.json": measurement(),
    }.items():
        write_record(results / place, record)
        path = results / place
        path.write_text(path.read_text()[:cut])
    write_record(results / "measurement/gpu0/c64.json", measurement("c64"))
    found = collect(results, LAUNCH)
    assert list(found.devices["gpu0"].measurements) == ["c64"]
    named = {note.split(":")[0] for note in found.notes}
    assert named >= {
        "plan_commit.json",
        "feasibility/sm_90/w8.json",
        "correctness/gpu0/w8.json",
        "measurement/gpu0/c1.json",
    }
    assert not any(str(results) in note for note in found.notes)


@pytest.mark.parametrize(
    "content", [b"[]", b"\xff\xfe", b'{"schema": "occupancy-probe/0"}', b"null"]
)
def test_H5_another_schema_or_no_record_is_named_and_ignored(results, content):
    path = results / "measurement/gpu0/c1.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    found = collect(results, LAUNCH)
    assert found.devices == {}
    assert found.notes[0].startswith("measurement/gpu0/c1.json: ")


def test_H5_leftovers_of_an_interrupted_write_are_no_records(results):
    path = results / "measurement/gpu0/.c1.json.x1y2"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    path.with_name(".c1.json").write_text("{")
    assert collect(results, LAUNCH).notes == []


def test_an_unreadable_plan_says_what_to_do(results):
    (results / "plan.json").write_text(json.dumps({"schema": "occupancy-probe/1"})[:9])
    with pytest.raises(RecordError, match=r"plan\.json.*delete it"):
        collect(results, LAUNCH)


def test_same_code_leads_to_the_first_of_its_kind():
    arms = {
        "a": feasibility("a"),
        "b": feasibility("b", same_code_as="a"),
        "c": feasibility("c", same_code_as="b"),
        "x": feasibility("x", same_code_as="y"),
        "y": feasibility("y", same_code_as="x"),
    }
    assert [code_twin(arms, n) for n in ("a", "b", "c", "none")] == [None, "a", "a", None]
    assert code_twin(arms, "x") == "y"  # a circle ends


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (
            Check(workload="c1", verdict="no answer", reason="no answer in 120 s"),
            "no answer in 120 s",
        ),
        (
            Check(workload="c1", verdict="wrong", guard_rows_overwritten=48),
            "48 guard rows overwritten",
        ),
        (Check(workload="c1", verdict="error"), "c1: error"),
    ],
)
def test_why_an_arm_is_unfit(check, said):
    bad = correctness(verdict=check.verdict, checks=[check])
    records = DeviceRecords("gpu0", "NVIDIA H200", "measured here", {}, {"w8": bad}, {})
    verdict, reason = records.unfit("w8", "sm_90")
    assert verdict == "wrong" and said in reason
    over = Reason(limit="shared memory", required=2, allowed=1, text="2 B > 1 B")
    matrix = {"sm_90": {"w8": feasibility(verdict="rejected", reasons=[over])}}
    records = DeviceRecords("gpu0", "NVIDIA H200", "measured here", matrix, {"w8": bad}, {})
    assert records.unfit("w8", "sm_90") == ("rejected", "2 B > 1 B")
    assert records.unfit("null", "sm_90") is None
