"""First touch by Triton's own Autotuner, cases A2 and A9, with the times of a real kernel injected."""

from __future__ import annotations

import json

import pytest
from conftest import FIXTURES, own_imports

from occupancy_probe.gpu import target
from occupancy_probe.launch.autotune import rehearse
from occupancy_probe.launch.launches import study_origin, study_problem
from occupancy_probe.study import Workload, load_study

EXAMPLE = json.loads((FIXTURES / "autotune/first_touch_h200.json").read_text())
PLACE = {(16, 4): 0, (16, 8): 1, (32, 8): 2}


@pytest.fixture(scope="module")
def touch():
    with own_imports():
        study = load_study(FIXTURES / "touch.yaml")
        yield study, study_problem(study), study_origin(study)


def run(touch, batches, timer):
    study, problem, origin = touch
    workloads = [Workload(str(b), {"batch": b}) for b in batches]
    return rehearse(problem, study.file.baseline, workloads, target("sm_90"), origin, 132, timer)


def measured(config, workload):
    row = PLACE[config["BLOCK_T"], config["num_warps"]]
    return EXAMPLE["us"][row][EXAMPLE["batch"].index(int(workload))]


@pytest.mark.parametrize(("first", "chosen"), [(1, (32, 8)), (16, (16, 4)), (96, (16, 4))])
def test_A2_the_first_batch_chooses_for_all(touch, first, chosen):
    others = [b for b in EXAMPLE["batch"] if b != first]
    touches = run(touch, [first, *others], measured)
    assert [t.tuned for t in touches] == [True] + [False] * len(others)
    assert {(t.chosen["BLOCK_T"], t.chosen["num_warps"]) for t in touches} == {chosen}


def test_A9_on_a_tie_the_first_in_the_list(touch):
    [found] = run(touch, [1], lambda config, workload: 5.0)
    assert (found.chosen["BLOCK_T"], found.chosen["num_warps"]) == (16, 4)


def test_what_does_not_fit_is_skipped_in_silence(touch):
    from triton.runtime.errors import OutOfResources

    def timer(config, workload):
        if config["num_warps"] == 4:
            raise OutOfResources(300_000, 232_448, "shared memory")
        return 5.0

    [found] = run(touch, [1], timer)
    assert found.error is None
    assert (found.chosen["BLOCK_T"], found.chosen["num_warps"]) == (16, 8)


def test_anything_else_ends_the_launch(touch):
    def timer(config, workload):
        raise RuntimeError("no such thing")

    [found] = run(touch, [1], timer)
    assert found.error == "RuntimeError: no such thing"


def test_the_autotuner_is_left_as_it_was(touch):
    _, problem, _ = touch
    before = dict(problem.kernel.__dict__)
    run(touch, [1, 8], measured)
    assert problem.kernel.__dict__ == before
