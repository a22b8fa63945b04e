"""The measurement stage over simulated workers: what is kept, what is refused, how it ends."""

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

from execute.conftest import WORKER
from occupancy_probe.exc import DeviceError
from occupancy_probe.execute import measurement as m
from occupancy_probe.records import Measurement, read_record
from occupancy_probe.study.schema import Measurement as MeasurementPlan
from occupancy_probe.study.schema import Stop
from occupancy_probe.validate.statistics import all_decided, estimate

ARMS = ["baseline"]


def run(stage, arms=ARMS, **more):
    return m.measure(
        stage.study,
        stage.plan,
        stage.commit,
        arms,
        stage.folder,
        stage.turn,
        60_000_000,
        {"triton": "x"},
        worker=WORKER,
        **more,
    )


def planned(stage, **changes):
    """The stage with another ``measurement`` section."""
    section = MeasurementPlan(**{"processes": 2, "allocations": 1, "blocks": 4, **changes})
    file = stage.study.file.model_copy(update={"measurement": section})
    object.__setattr__(stage.study, "file", file)
    return stage


@pytest.fixture
def short(stage):
    return planned(stage)


def names(study):
    return [a.name for a in study.arms]


def test_every_process_gives_every_workload_its_replicates(short):
    assert names(short.study)[:2] == ["baseline", "null"]
    found = run(short, arms=[n for n in names(short.study) if n != "null"])
    assert set(found) == {"r4", "r64"}
    for name, record in found.items():
        assert [(r.process, r.allocation) for r in record.replicates] == [(0, 0), (1, 0)]
        assert set(record.replicates[0].arms) == set(names(short.study))
        assert {r.device_uuid for r in record.replicates} == {"GPU-0"}
        assert record.busy_seconds == pytest.approx(0.8)
        assert record.held_seconds > 0
        assert read_record(short.folder / f"{name}.json", Measurement) == record
    held = sum(r.held_seconds for r in found.values())
    assert held == pytest.approx(short.turn.held_s, abs=0.01)


def test_samples_stay_compact(short):
    run(short)
    text = (short.folder / "r4.json").read_text()
    [line] = [t for t in text.splitlines() if t.strip().startswith('"baseline": [')][:1]
    assert len(json.loads(line.split(": ", 1)[1].rstrip(","))) == 4


def first_arm(stage):
    return next(n for n in names(stage.study) if n not in ("baseline", "null"))


def right(stage):
    return [n for n in names(stage.study) if n != "null"]


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_C5_an_arm_that_crashes_or_hangs_is_out_and_the_others_are_measured(
    short, workers, monkeypatch, fault
):
    monkeypatch.setattr(m, "TIME_LIMIT_S", 1.0)
    bad = first_arm(short)
    workers.setenv("FAULTS", json.dumps({bad: fault}))
    found = run(short, arms=right(short))
    for record in found.values():
        assert set(record.disqualified) == {bad}
        words = "illegal memory access" if fault == "crash" else "no answer in 1 s"
        assert words in record.disqualified[bad]
        assert len(record.replicates) == 2
        assert bad not in record.replicates[-1].arms


def test_a_compile_while_the_gpu_is_held_fails_the_run_and_names_the_arm(short, workers):
    bad = first_arm(short)
    workers.setenv("FAULTS", json.dumps({bad: "compile"}))
    with pytest.raises(DeviceError, match=f"arm {bad}: compiled"):
        run(short, arms=right(short))


def test_a_baseline_that_crashes_ends_the_run_with_the_reason(short, workers):
    workers.setenv("FAULTS", json.dumps({"baseline": "crash"}))
    with pytest.raises(DeviceError, match="illegal memory access"):
        run(short, arms=right(short))


def test_nothing_measured_is_lost_when_the_run_is_killed(short, workers, tmp_path):
    """SIGKILL in the second process: what the first gave stays, and the run goes on from there."""
    script = textwrap.dedent(
        f"""
        import os, sys
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from pathlib import Path
        from occupancy_probe.execute.device import GpuTurn
        from occupancy_probe.execute.measurement import measure
        from occupancy_probe.records import Plan, PlanCommit, read_record
        from occupancy_probe.study import load_study
        from execute.conftest import simulated
        study = load_study({str(short.study.path)!r})
        file = study.file.model_copy(update={{"measurement": study.file.measurement.model_copy(
            update=dict(processes=50, allocations=1, blocks=4))}})
        object.__setattr__(study, "file", file)
        folder = Path({str(tmp_path)!r})
        measure(study, read_record(folder / "plan.json", Plan),
                read_record(folder / "commit.json", PlanCommit), {right(short)!r},
                folder / "measurement", GpuTurn(simulated(0), folder), 60_000_000, {{"triton": "x"}},
                worker={WORKER!r})
        """
    )
    from occupancy_probe.records import write_record

    write_record(tmp_path / "plan.json", short.plan)
    write_record(tmp_path / "commit.json", short.commit)
    child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "WORK_S": "0.05"})
    path = short.folder / "r64.json"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (
        path.exists() and read_record(path, Measurement).replicates
    ):
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = {p.stem: read_record(p, Measurement) for p in short.folder.glob("[!.]*.json")}
    done = max(len(r.replicates) for r in before.values())
    assert 1 <= done < 50
    found = run(planned(short, processes=done + 1), arms=right(short))
    for name, record in before.items():
        kept = found[name].replicates[: len(record.replicates)]
        assert kept == record.replicates
        assert len(found[name].replicates) == done + 1


def test_what_a_stopped_process_held_is_counted_with_what_it_was_busy(short, workers):
    """The busy share of a run that was stopped and went on is not above what it was."""
    workers.setenv("WORK_S", "0.1")

    def stop(done, total, what):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(short, progress=stop)
    [kept] = [read_record(p, Measurement) for p in short.folder.glob("[!.]*.json")]
    assert kept.busy_seconds == pytest.approx(0.4)
    assert 0.1 <= kept.held_seconds <= short.turn.held_s
    for record in run(short).values():
        assert record.held_seconds >= 0.1 * len(record.replicates)


def test_a_record_of_another_gpu_is_measured_anew(short, tmp_path):
    from execute.conftest import simulated
    from occupancy_probe.execute.device import GpuTurn

    run(short)
    short.turn = GpuTurn(simulated(1), tmp_path)
    found = run(short)
    assert {r.device_uuid for x in found.values() for r in x.replicates} == {"GPU-1"}
    assert m.previous_uuid(short.folder) == "GPU-1"


def test_a_group_sequential_run_ends_at_the_look_that_decides(stage):
    planned(stage, processes=8, stop=Stop(looks=[3, 8]))
    seen = []

    def enough(found):
        samples = {w: r.replicates for w, r in found.items()}
        seen.append({len(m.processes_of(r)) for r in found.values()})
        others = [a for a in right(stage) if a != "baseline"]
        return all_decided(samples, others, "baseline", "null", 0.01, 0.025)

    found = run(stage, arms=right(stage), enough=enough)
    assert seen == [{3}]
    assert {len(r.replicates) for r in found.values()} == {3}


def test_a_fixed_plan_is_never_looked_at(short):
    run(short, enough=lambda found: pytest.fail("looked"))


def test_M6_a_confirmation_is_made_of_other_processes_with_other_samples(short):
    arm = first_arm(short)
    first = run(short, arms=right(short))
    short.folder = short.folder.with_name("confirmation")
    again = run(short, arms=["baseline", arm], first_process=m.CONFIRM_PROCESSES)
    for name, record in again.items():
        assert m.processes_of(record) == {1000, 1001}
        assert set(record.replicates[0].arms) == {"baseline", "null", arm}
        assert record.replicates[0].arms[arm] != first[name].replicates[0].arms[arm]
        assert estimate(record.replicates, arm, "baseline", 0.05).ratio == pytest.approx(
            stage_ratio(short, arm), rel=0.01
        )


def stage_ratio(stage, arm):
    """The simulated worker's truth."""
    return (
        stage.study.arm(arm).config["num_warps"] / stage.study.arm("baseline").config["num_warps"]
    )
