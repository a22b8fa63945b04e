"""The correctness stage in the interpreter: right, wrong and hostile arms of one study."""

from __future__ import annotations

import pytest
from conftest import FIXTURES, copy_fixture

from occupancy_probe.execute.correctness import INTERPRETER, check_arms
from occupancy_probe.records import Correctness, read_record
from occupancy_probe.study import load_study


def run(path, folder):
    study = load_study(path)
    arms = [a.name for a in study.arms]
    return check_arms(study, arms, folder, INTERPRETER, "Triton's interpreter", {"triton": "x"})


def stamps(folder):
    return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.glob("*.json")}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    return folder, run(FIXTURES / "rows.yaml", folder)


def test_a_right_arm(rows):
    record = rows[1]["baseline"]
    assert (record.verdict, record.mode) == ("right", "logic")
    [check] = record.checks
    assert check.workload == "h16"
    assert check.outputs["y"].max_absolute == 0
    assert check.replay_equals_eager is None


def test_the_null_arm_is_not_checked_twice_and_the_same_tile_stands_for_all(rows):
    assert "null" not in rows[1]
    assert "w8" not in rows[1]
    assert rows[1]["baseline"].stands_for == ["w8"]


def test_C2_stores_without_a_mask_overwrite_48_guard_rows(rows):
    record = rows[1]["unmasked"]
    assert record.verdict == "wrong"
    assert record.checks[0].guard_rows_overwritten == 48
    assert record.checks[0].reason == "48 guard rows outside the outputs overwritten"


def test_C3_each_arm_writes_one_half_and_both_are_wrong(rows):
    for name in ("first_half", "second_half"):
        record = rows[1][name]
        assert record.verdict == "wrong"
        assert record.checks[0].outputs["y"].not_written == 256
        assert "256 elements not written" in record.checks[0].reason


def test_hostile_arms_lose_nothing_but_themselves(rows):
    assert rows[1]["raises"].verdict == "error"
    assert rows[1]["raises"].checks[0].reason == "ValueError: no such tile"
    assert rows[1]["aborts"].verdict == "error"
    assert "exit status -6" in rows[1]["aborts"].checks[0].reason
    assert rows[1]["hangs"].verdict == "no answer"
    assert rows[1]["hangs"].checks[0].reason == "no answer in 5 s"
    assert len(rows[1]) == 8


def test_an_arm_that_overwrites_its_input_is_wrong_and_the_next_one_does_not_pay(rows):
    spoils, after = rows[1]["spoils"].checks[0], rows[1]["unmasked"].checks[0]
    assert spoils.verdict == "wrong"
    assert spoils.reason == "overwrites its input x"
    assert after.outputs["y"].max_absolute == 0


def test_every_arm_has_its_record(rows):
    folder, records = rows
    for name, record in records.items():
        assert read_record(folder / f"{name}.json", Correctness) == record


def test_fresh_records_are_kept_and_one_edited_arm_is_checked_alone(tmp_path):
    path = copy_fixture("tiny", tmp_path)
    folder = tmp_path / "out"
    text = path.read_text().replace(
        "vary: {num_warps: [1, 8], num_stages: [3]}", "list: [{BLOCK: 128}]"
    )
    path.write_text(text.replace("    why: neighbours", "    name: small\n    why: x"))
    assert [r.verdict for r in run(path, folder).values()] == ["right", "right"]
    before = stamps(folder)
    run(path, folder)
    assert stamps(folder) == before
    path.write_text(path.read_text().replace("BLOCK: 128", "BLOCK: 64"))
    found = run(path, folder)
    assert found["small"].verdict == "wrong", "64 columns of 100"
    after = stamps(folder)
    assert after["baseline.json"] == before["baseline.json"]
    assert after["small.json"] != before["small.json"]


def test_a_problem_that_cannot_be_loaded_gives_every_arm_the_reason(tmp_path):
    path = copy_fixture("tiny", tmp_path)
    (tmp_path / "tiny" / "kernel.py").write_text("import no_such_module_anywhere\n")
    found = run(path, tmp_path / "out")
    assert {r.verdict for r in found.values()} == {"error"}
    assert all("no_such_module_anywhere" in r.checks[0].reason for r in found.values())


@pytest.fixture
def tiny_problem(imports):
    from occupancy_probe.launch.load import load_problem

    return load_problem(FIXTURES / "tiny", "ScaleRows", {})


AXES = {"rows": 3, "n": 100}


def values_of(problem, seed=1):
    from occupancy_probe.execute import check

    guarded = check.guard_outputs(problem.make_inputs(AXES, "cpu", 0), problem.outputs)
    return guarded, check._values(problem, guarded, AXES, "cpu", seed)


def test_C6_other_values_go_into_the_same_tensors_and_come_out_again(tiny_problem):
    guarded, values = values_of(tiny_problem)
    own, place = guarded.inputs["x"].clone(), guarded.inputs["x"].data_ptr()
    other = tiny_problem.make_inputs(AXES, "cpu", 1)
    with values.inside(guarded.inputs):
        assert guarded.inputs["x"].data_ptr() == place, "a captured graph reads from here"
        assert guarded.inputs["x"].equal(other["x"])
        assert values.reference["y"].equal(tiny_problem.reference(other)["y"])
    assert guarded.inputs["x"].equal(own)


def test_values_that_do_not_differ_prove_nothing(tiny_problem):
    assert values_of(tiny_problem, seed=0)[1] is None


def test_values_of_another_shape_are_not_put_in(tiny_problem, monkeypatch):
    whole = tiny_problem.make_inputs
    guarded, _ = values_of(tiny_problem)
    from occupancy_probe.execute import check

    monkeypatch.setattr(tiny_problem, "make_inputs", lambda w, d, s: whole({**w, "n": 99}, d, s))
    assert check._values(tiny_problem, guarded, AXES, "cpu", 1) is None


def test_the_largest_workload_is_the_one_that_moves_most():
    from occupancy_probe.execute.correctness import largest_workload

    assert largest_workload({"c1": 1, "c96": 96, "c8": 8}) == "c96"
    assert largest_workload({}) is None


def test_a_record_names_the_gpu_that_checked_it_and_none_in_the_interpreter(
    rows, tmp_path, monkeypatch
):
    from execute.conftest import simulated
    from occupancy_probe.execute import correctness
    from occupancy_probe.execute.device import GpuTurn

    assert {r.device_uuid for r in rows[1].values()} == {None}
    told = []

    def answers(module, job, tasks, limit, environment, turn):
        told.append(turn.environment)
        yield from ((t, {"checks": [{"workload": "r4", "verdict": "right"}]}) for t in tasks)

    monkeypatch.setattr(correctness, "precompile", lambda *a: {})
    monkeypatch.setattr(correctness, "supervise", answers)
    gpu, study = simulated(3), load_study(FIXTURES / "tiny.yaml")
    turn = GpuTurn(gpu, tmp_path)
    found = check_arms(study, ["baseline"], tmp_path, gpu.slug, gpu.name, {}, turn=turn)
    assert (found["baseline"].device_uuid, found["baseline"].mode) == ("GPU-3", "gpu")
    assert told == [{"CUDA_VISIBLE_DEVICES": "GPU-3"}]
