"""Real first calls in fresh processes; without a GPU a run is kept with the reason why it failed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, wait
from typing import ClassVar

import pytest
import torch
from conftest import FIXTURES

from occupancy_probe.exc import DeviceError
from occupancy_probe.execute import autotune_runs as runs
from occupancy_probe.study import load_study

STUDY = load_study(FIXTURES / "touch.yaml")


class NoGpu:
    """A turn without a GPU; says when it was taken."""

    environment: ClassVar = {"CUDA_VISIBLE_DEVICES": ""}

    def __init__(self):
        self.said = []

    def enter(self):
        self.said.append("enter")
        return {"uuid": "none"}

    def leave(self):
        self.said.append("leave")


def test_a_run_that_fails_is_kept_with_its_reason_and_gives_the_gpu_back():
    turn = NoGpu()
    found = runs._run(STUDY, STUDY.workloads[0], 0, turn)
    assert (turn.said[0], turn.said[-1], turn.said.count("enter")) == ("enter", "leave", 1)
    assert found.winner == {}
    assert "CUDA" in found.error or "NVIDIA" in found.error


def test_no_process_tunes_before_all_of_its_group_are_ready_or_gone():
    group, said = runs._Group(3), []

    class Turn:
        environment: ClassVar = {}

        def enter(self):
            said.append("enter")
            return {}

        def leave(self):
            pass

    first, second, dead = (runs._TurnOf(group, Turn()) for _ in range(3))
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(turn.enter) for turn in (first, second)]
        assert not wait(waiting, timeout=0.2).done and said == []
        dead.leave()  # its process ended before it was ready
        assert len(wait(waiting, timeout=10).done) == 2
    first.leave()
    assert said == ["enter"] * 2


def test_the_first_and_the_last_workload_unless_named():
    assert [w.name for w in runs.chosen(STUDY, [])] == ["b1", "b512"]
    assert [w.name for w in runs.chosen(STUDY, ["b64"])] == ["b64"]
    with pytest.raises(DeviceError, match="no workload b9; the study has b1, b64, b512"):
        runs.chosen(STUDY, ["b9"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_A9_the_winner_of_every_fresh_run_is_noted(monkeypatch):
    from occupancy_probe.execute.device import require_gpu

    monkeypatch.setitem(os.environ, "TRITON_CACHE_AUTOTUNING", "1")  # must not count
    found = runs.autotune_runs(STUDY, runs.chosen(STUDY, ["b64"]), 3, require_gpu())
    assert [r.error for r in found.runs] == [None] * 3
    for run in found.runs:
        assert len(run.timings_us) == 3
        fastest = min(run.timings_us, key=lambda timed: timed[1])
        assert run.winner == fastest[0]
        assert run.seconds > 0
