"""What only a GPU can show: bad arms in their own process, caps that the driver confirms, M1."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from conftest import FIXTURES

from occupancy_probe.execute import measurement as m
from occupancy_probe.execute.correctness import check_arms
from occupancy_probe.execute.device import GpuTurn, assigned, l2_bytes, same_model
from occupancy_probe.execute.job import problem_job
from occupancy_probe.execute.precompile import precompile
from occupancy_probe.gpu import shared_padding, target
from occupancy_probe.records import Calibration, Measurement, PlanCommit, read_record, write_record
from occupancy_probe.study import load_study

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study():
    return load_study(FIXTURES / "faults.yaml")


@pytest.fixture(scope="module")
def plan(study, trace_of):
    from occupancy_probe.plan.freeze import freeze

    return freeze(study, trace_of(study.path))


@pytest.fixture(scope="module")
def commit(plan):
    return PlanCommit(
        study="faults",
        plan_hash=plan.plan_hash,
        commit="c" * 40,
        committed_at="2026-01-01T00:00:00+00:00",
        preregistered=True,
        note="committed",
    )


@pytest.fixture(scope="module")
def gpu():
    with assigned(same_model()) as found:
        yield found


@pytest.fixture(scope="module")
def checked(study, gpu, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checked")
    arms = [a.name for a in study.arms if a.name != "differs"]
    turn = GpuTurn(gpu)
    return check_arms(study, arms, folder, gpu.slug, gpu.name, {}, turn=turn, largest="big")


def test_right_arms_are_right_whatever_the_others_do(checked):
    for name in ("baseline", "w8"):
        [check] = checked[name].checks
        assert (checked[name].verdict, check.reason) == ("right", None)
        assert check.replay_equals_eager and check.replay_follows_inputs
        assert check.repeats == 20
    assert len(checked) == 7


def test_C5_an_illegal_memory_access_disqualifies_its_arm(checked):
    assert checked["illegal"].verdict == "error"
    assert "illegal" in checked["illegal"].checks[0].reason.lower()


def test_C5_an_arm_without_end_disqualifies_itself(checked):
    assert checked["endless"].verdict == "no answer"
    assert checked["endless"].checks[0].reason == "no answer in 20 s"


def test_C6_right_when_eager_and_wrong_on_replay_names_replay(checked):
    [check] = checked["baked"].checks
    assert checked["baked"].verdict == "wrong"
    assert (check.replay_equals_eager, check.replay_follows_inputs) == (True, False)
    assert check.reason.startswith("replay: ")


def test_bits_that_differ_between_launches_disqualify(checked):
    assert checked["unsteady"].verdict == "wrong"
    reason = checked["unsteady"].checks[0].reason
    assert reason.startswith("not deterministic: launch ")


def test_a_wrong_result_disqualifies(checked):
    assert checked["shifted"].verdict == "wrong"
    assert "elementwise gate" in checked["shifted"].checks[0].reason


def compiled(study, gpu, arms):
    workloads = {w.name: w.axes for w in study.workloads}
    configs = {a: study.arm(a).config for a in arms}
    assert precompile(problem_job(study), workloads, configs, gpu, 120) == {}


def test_C5_bad_arms_that_are_timed_lose_nothing_but_themselves(
    study, plan, commit, gpu, tmp_path, monkeypatch
):
    monkeypatch.setattr(m, "TIME_LIMIT_S", 10.0)
    arms = ["baseline", "w8", "illegal", "endless"]
    compiled(study, gpu, arms)
    turn = GpuTurn(gpu)
    found = m.measure(study, plan, commit, arms, tmp_path, turn, l2_bytes(gpu), {})
    record = found["big"]
    assert set(record.disqualified) == {"illegal", "endless"}
    assert {r.process for r in record.replicates} == {0, 1}
    for replicate in record.replicates:
        assert set(replicate.arms) == {"baseline", "null", "w8"}
        assert replicate.device_uuid == gpu.uuid
        kept = {len(s) for s in replicate.arms.values()}
        assert kept == {4} or (len(kept) == 1 and sum(kept) + replicate.dropped == 12)
    assert 0 < record.busy_seconds < record.held_seconds


def test_an_arm_that_compiles_while_the_gpu_is_held_fails_the_run(
    study, plan, commit, gpu, tmp_path
):
    from occupancy_probe.exc import DeviceError

    compiled(study, gpu, ["baseline", "differs"])
    with pytest.raises(DeviceError, match="arm differs: copy_head was compiled while the GPU was"):
        m.measure(
            study, plan, commit, ["baseline", "differs"], tmp_path, GpuTurn(gpu), l2_bytes(gpu), {}
        )


@pytest.mark.parametrize("regime", ["cold", "warm", "eager"])
def test_every_regime_gives_samples(study, plan, commit, gpu, tmp_path, regime):
    compiled(study, gpu, ["baseline", "w8"])
    section = study.file.measurement.model_copy(update={"regime": regime})
    file = study.file.model_copy(update={"measurement": section})
    other = load_study(study.path)
    object.__setattr__(other, "file", file)
    found = m.measure(
        other, plan, commit, ["baseline", "w8"], tmp_path, GpuTurn(gpu), l2_bytes(gpu), {}
    )
    assert found["big"].regime == regime
    samples = [s for r in found["big"].replicates for s in r.arms["w8"]]
    assert samples and all(0.5 < s < 1000 for s in samples)


def test_nothing_measured_is_lost_when_the_run_is_killed(study, plan, commit, gpu, tmp_path):
    arms = ["baseline", "w8"]
    compiled(study, gpu, arms)
    write_record(tmp_path / "plan.json", plan)
    write_record(tmp_path / "commit.json", commit)
    script = textwrap.dedent(
        f"""
        from pathlib import Path
        from occupancy_probe.execute.device import GpuTurn, assigned, l2_bytes, same_model
        from occupancy_probe.execute.measurement import measure
        from occupancy_probe.records import Plan, PlanCommit, read_record
        from occupancy_probe.study import load_study
        study = load_study({str(study.path)!r})
        plan = study.file.measurement.model_copy(update={{"processes": 50}})
        object.__setattr__(study, "file", study.file.model_copy(update={{"measurement": plan}}))
        folder = Path({str(tmp_path)!r})
        gpu = next(g for g in same_model() if g.uuid == {gpu.uuid!r})
        measure(study, read_record(folder / "plan.json", Plan),
                read_record(folder / "commit.json", PlanCommit), {arms!r}, folder / "m",
                GpuTurn(gpu), l2_bytes(gpu), {{}})
        """
    )
    child = subprocess.Popen([sys.executable, "-c", script])
    path = tmp_path / "m" / "big.json"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (
        path.exists() and read_record(path, Measurement).replicates
    ):
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = read_record(path, Measurement).replicates
    assert before
    turn = GpuTurn(gpu)  # the worker ended with its parent: the GPU is free
    turn.enter()
    turn.leave()
    section = study.file.measurement.model_copy(update={"processes": len(before) + 1})
    other = load_study(study.path)
    object.__setattr__(other, "file", study.file.model_copy(update={"measurement": section}))
    found = m.measure(other, plan, commit, arms, tmp_path / "m", turn, l2_bytes(gpu), {})
    assert found["big"].replicates[: len(before)] == before
    assert len(found["big"].replicates) == len(before) + 1


PADDED = """
import json, sys
from pathlib import Path
import torch
from occupancy_probe.execute.replicate import TimedArm, prepared
from occupancy_probe.launch.load import load_problem
problem = load_problem(Path(sys.argv[1]), "Chase", {})
inputs = problem.make_inputs({"entries": 1 << 20, "programs": 2000}, "cuda", 0)
found = {}
for size in json.loads(sys.argv[2]):
    arm = TimedArm(problem, {"steps": 200, "num_warps": 1}, size)
    inputs["end"].fill_(-1)
    replay = prepared(arm, [inputs], "warm")  # eager once, then under capture
    inputs["end"].fill_(-1)
    replay()
    torch.cuda.synchronize()
    right = bool((inputs["end"].double() == problem.reference(inputs)["end"]).all())
    found[size] = [arm.padding.resident_ctas(), arm.padding.ctas, right]
print(json.dumps(list(found.values())))
"""


def test_the_driver_confirms_every_cap_and_the_padded_kernel_computes_the_same(gpu):
    of = target(gpu.target)
    caps = [n for n in range(1, 9) if of.shared_per_sm_bytes // n >= 8192]
    sizes = [shared_padding(of, 0, n) for n in caps]
    done = subprocess.run(
        [sys.executable, "-c", PADDED, str(ROOT / "kernels/calibration"), json.dumps(sizes)],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu.uuid},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[n, 2000, True] for n in caps]


def test_M1_calibration_claims_at_most_five_of_a_hundred_and_sees_one_percent(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "occupancy_probe", "calibrate", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    [path] = [p for p in tmp_path.glob("*.json") if not p.stem.endswith("-samples")]
    found = read_record(path, Calibration)
    assert found.trials == 100
    assert found.claimed <= 5
    assert found.power_at_1_percent >= 0.99
    assert found.power_at_half_percent >= 0.90
    assert found.gpu_seconds_per_trial <= 1.0
    samples = json.loads((tmp_path / found.samples_file).read_text())
    assert len(samples) == 100 and len(samples[0]["replicates"]) == 10
