"""One GPU for one worker at a time, one for a whole job, with devices that are simulated."""

from __future__ import annotations

import threading
import time

import pytest

from execute.conftest import WORKER, simulated
from occupancy_probe.exc import DeviceError
from occupancy_probe.execute import device as d
from occupancy_probe.execute import measurement as m


def test_two_turns_of_one_gpu_never_overlap_and_add_up(tmp_path):
    first, second = d.GpuTurn(simulated(0), tmp_path), d.GpuTurn(simulated(0), tmp_path)
    inside = []

    def use(turn):
        for _ in range(3):
            assert turn.enter() == {"uuid": "GPU-0"}
            inside.append(1)
            assert len(inside) == 1
            time.sleep(0.02)
            inside.pop()
            turn.leave()

    threads = [threading.Thread(target=use, args=[t]) for t in (first, second)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert 0.06 <= first.held_s < 0.5
    held = first.held_s
    first.leave()
    assert first.held_s == held


def test_who_waits_too_long_is_told_where_to_look(tmp_path, monkeypatch):
    monkeypatch.setattr(d, "LOCK_LIMIT_S", 0.05)
    holder, waiting = d.GpuTurn(simulated(0), tmp_path), d.GpuTurn(simulated(0), tmp_path)
    holder.enter()
    with pytest.raises(DeviceError, match="held by another run"):
        waiting.enter()
    holder.leave()
    waiting.enter()
    waiting.leave()


def test_each_job_gets_a_gpu_of_its_own(tmp_path):
    gpus = [simulated(0), simulated(1)]
    with d.assigned(gpus, locks=tmp_path) as one, d.assigned(gpus, locks=tmp_path) as two:
        assert [one.uuid, two.uuid] == ["GPU-0", "GPU-1"]
        turn = d.GpuTurn(one, tmp_path)
        turn.enter()
        with d.assigned(gpus, locks=tmp_path) as third:  # shares the one that is free now
            assert third.uuid == "GPU-1"
        turn.leave()
    with d.assigned(gpus, locks=tmp_path) as again:
        assert again.uuid == "GPU-0"


def test_a_job_that_goes_on_keeps_its_gpu(tmp_path):
    gpus = [simulated(0), simulated(1)]
    with d.assigned(gpus, "GPU-1", tmp_path) as one:
        assert one.uuid == "GPU-1"
        with d.assigned(gpus, "GPU-1", tmp_path) as two:
            assert two.uuid == "GPU-1"
    with d.assigned(gpus, "GPU-gone", tmp_path) as other:
        assert other.uuid == "GPU-0"


def test_two_studies_jobs_run_side_by_side_on_two_gpus(stage, tmp_path, workers):
    """Both jobs are under way at the same time, each record names one UUID, each verdict is the same."""
    gpus = [simulated(0), simulated(1)]
    workers.setenv("WORK_S", "0.1")
    found = {}

    def job(name):
        with d.assigned(gpus, locks=tmp_path) as gpu:
            found[name] = m.measure(
                stage.study,
                stage.plan,
                stage.commit,
                [a.name for a in stage.study.arms if a.name != "null"],
                tmp_path / name,
                d.GpuTurn(gpu, tmp_path),
                60_000_000,
                {},
                worker=WORKER,
            )

    object.__setattr__(
        stage.study,
        "file",
        stage.study.file.model_copy(
            update={
                "measurement": stage.study.file.measurement.model_copy(
                    update={"processes": 2, "allocations": 1, "blocks": 4}
                )
            }
        ),
    )
    threads = [threading.Thread(target=job, args=[n]) for n in ("one", "two")]
    [t.start() for t in threads]
    [t.join() for t in threads]
    uuids = [
        {r.device_uuid for record in records.values() for r in record.replicates}
        for records in found.values()
    ]
    assert sorted(map(tuple, uuids)) == [("GPU-0",), ("GPU-1",)]
    for name in found["one"]:
        one, two = (found[n][name].replicates for n in ("one", "two"))
        assert [r.arms for r in one] == [r.arms for r in two]  # the same seeds, the same simulation
