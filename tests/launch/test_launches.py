"""Before anything is traced, every workload that will be launched makes its inputs."""

from __future__ import annotations

import pytest
import yaml
from conftest import copy_fixture

from occupancy_probe.exc import StudyError
from occupancy_probe.launch.launches import trace_study
from occupancy_probe.study import load_study


def traced(tmp_path, **sections):
    path = copy_fixture("touch", tmp_path)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | sections))
    return trace_study(load_study(path))


@pytest.mark.parametrize("place", ["warmup", "capture"])
def test_A6_an_autotune_entry_that_lacks_an_axis_is_named(tmp_path, imports, place):
    lists = {"capture": [{"list": [{"batch": 1}]}]} | {place: [{"list": [{"heads": 8}]}]}
    with pytest.raises(StudyError) as fault:
        traced(tmp_path, autotune=lists)
    assert str(fault.value) == (
        f"{tmp_path / 'touch.yaml'}: autotune.{place}: 'heads-8': the Problem's make_inputs raises"
        " KeyError: 'batch'; its axes are heads=8; add one that is missing, or mend make_inputs"
    )


def test_a_workload_that_lacks_an_axis_is_named(tmp_path, imports):
    lacking = [{"list": [{"topk": 64}]}]
    with pytest.raises(StudyError, match=r"workloads: 'topk-64': .* KeyError: 'batch'"):
        traced(tmp_path, workloads=lacking, decision={"improve": "topk > 0"})


def test_an_axis_that_the_problem_has_a_default_for_may_be_left_out(tmp_path, imports):
    entries = [{"list": [{"batch": 1}]}, {"list": [{"batch": 1, "topk": 512}]}]
    assert traced(tmp_path, autotune={"capture": entries}).launches
