"""Kernel files and Problems that cannot be loaded: the error names the file and the remedy."""

from __future__ import annotations

import sys

import pytest
from conftest import FIXTURES, copy_fixture

from occupancy_probe.exc import ProblemError
from occupancy_probe.launch.device import planned_sm_count, sm_count
from occupancy_probe.launch.launches import trace_study
from occupancy_probe.launch.load import load_file, load_problem
from occupancy_probe.study import load_study

pytestmark = pytest.mark.usefixtures("imports")


def test_a_problem_with_its_parameters():
    assert load_problem(FIXTURES / "tiny", "ScaleRows", {"scale": 3.0}).scale == 3.0


def test_parameters_that_do_not_fit():
    with pytest.raises(
        ProblemError, match=r"problem\.py: ScaleRows: kernel\.parameters do not fit"
    ):
        load_problem(FIXTURES / "tiny", "ScaleRows", {"heads": 3})


def test_a_class_that_is_not_there():
    with pytest.raises(ProblemError, match=r"no Problem named 'ScaleRwos'; it has ScaleRows$"):
        load_problem(FIXTURES / "tiny", "ScaleRwos", {})


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_module_anywhere\n", "ModuleNotFoundError"),
        ("def f(:\n", "SyntaxError"),
        ("1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_a_kernel_file_that_cannot_be_imported(tmp_path, source, words):
    path = tmp_path / "kernel.py"
    path.write_text(source)
    with pytest.raises(ProblemError, match=rf"kernel\.py: cannot be imported: {words}"):
        load_file(path)
    assert "kernel" not in sys.modules


def test_a_problem_whose_kernel_cannot_be_imported(tmp_path):
    study = copy_fixture("tiny", tmp_path)
    (tmp_path / "tiny" / "kernel.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(ProblemError, match=r"problem\.py: cannot be imported: .*no_such_module"):
        trace_study(load_study(study))


def test_no_such_file(tmp_path):
    with pytest.raises(ProblemError, match=r"none\.py: no such Python file; correct kernel\.path"):
        load_file(tmp_path / "none.py")


def test_a_file_is_imported_once():
    assert load_file(FIXTURES / "stacks.py") is load_file(FIXTURES / "tiny" / ".." / "stacks.py")
    sys.modules.pop("stacks")


def test_a_launch_plans_for_the_sms_of_its_target():
    assert sm_count("meta") == 1
    with planned_sm_count(188):
        assert sm_count("meta") == 188
        with planned_sm_count(132):
            assert sm_count("cuda") == 132
    assert sm_count("cpu") == 1


def test_a_study_is_traced_for_all_arms_workloads_and_targets(trace_of):
    path = FIXTURES / "tiny.yaml"
    trace, study = trace_of(path), load_study(path)
    arms = [a.name for a in study.arms if not a.twin]
    assert [(t.target, t.workload, t.arm) for t in trace.launches] == [
        (t, w.name, a) for t in ("sm_90", "sm_120") for w in study.workloads for a in arms
    ]
    assert all(t.error is None and len(t.calls) == 1 for t in trace.launches)
    assert trace.sm_counts == {"sm_90": 132, "sm_120": 188}
    assert {s.file for s in trace.specializations.values()} == {"kernel.py"}
    assert trace.traffic["r64"] == {"bytes": 8 * 64 * 500, "flop": 64 * 500, "sm_clocks": 0.0}


def test_a_launch_that_raises_costs_its_arm_only(tmp_path):
    study = copy_fixture("tiny", tmp_path)
    problem = tmp_path / "tiny" / "problem.py"
    launch = "        rows, n = inputs"
    assert launch in problem.read_text()
    problem.write_text(
        problem.read_text().replace(
            launch, "        if config['num_warps'] == 8: raise ValueError('no tile')\n" + launch
        )
    )
    errors = {t.arm: t.error for t in trace_study(load_study(study)).launches}
    assert errors.pop("num_warps-8") == "ValueError: no tile"
    assert set(errors.values()) == {None}
