"""From recorded launches to a study: what differs becomes an axis, what was used most the baseline."""

from __future__ import annotations

import json

import pytest
import yaml
from conftest import FIXTURES

from occupancy_probe import cli
from occupancy_probe.exc import StudyError
from occupancy_probe.study import load_study
from occupancy_probe.study.draft import draft


def launch(n, count=1, **config):
    return {
        "kernel": "tuned_kernels:block_of",
        "file": str(FIXTURES / "programs/tuned_kernels.py"),
        "key": {"n": n},
        "config": {"BLOCK": 32, "num_warps": 8, "num_ctas": 1, "num_stages": 3, **config},
        "heuristics": {"EVEN": n % 32 == 0},
        "arguments": {
            "out": {"dtype": "int32", "shape": [n], "stride": [1], "aligned": True},
            "n": n,
        },
        "specialization": None,
        "grid": [-(-n // config.get("BLOCK", 32))],
        "count": count,
    }


def record(*launches):
    return {
        "schema": "occupancy-probe-launches/1",
        "command": ["python", "x.py"],
        "launches": launches,
    }


def test_sizes_that_differ_become_one_axis_and_the_grid_an_expression():
    found = yaml.safe_load(draft(record(launch(64, 3), launch(40)), None, ["sm_90"]))
    assert found["signature"]["arguments"]["out"]["shape"] == ["out_0"]
    assert found["signature"]["arguments"]["n"] == "out_0"
    assert found["signature"]["grid"] == ["cdiv(out_0, BLOCK)"]
    assert found["workloads"] == [{"list": [{"out_0": 64}, {"out_0": 40}]}]
    assert "4 launches" in found["hypothesis"]["how"]


def test_the_config_that_was_used_most_is_the_baseline():
    found = yaml.safe_load(draft(record(launch(64), launch(40, 9, BLOCK=16)), None, ["sm_90"]))
    assert found["baseline"] == {"num_warps": 8, "BLOCK": 16, "num_stages": 3}
    assert found["arms"] == [
        {"vary": {"num_warps": [4, 16]}, "why": "the neighbours of what was used"}
    ]


def test_the_draft_is_a_study_that_can_be_traced(tmp_path, imports):
    from occupancy_probe.launch.launches import trace_study

    path = tmp_path / "drafted.yaml"
    path.write_text(draft(record(launch(64), launch(40)), None, ["sm_90"]))
    trace = trace_study(load_study(path))
    assert not any(x.error for x in trace.launches)
    assert {tuple(x.calls[0].grid) for x in trace.launches} == {(2,)}
    assert {x.calls[0].scalars["n"] for x in trace.launches} == {64, 40}


def test_a_study_that_is_there_is_not_replaced(tmp_path, capsys):
    noted, path = tmp_path / "launches.json", tmp_path / "drafted.yaml"
    noted.write_text(json.dumps(record(launch(64), launch(40))))
    path.write_text("mine\n")
    assert cli.main(["draft", str(noted), str(path)]) == 2
    assert path.read_text() == "mine\n"
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path}: is there already") and "give another name" in said
    path.unlink()
    assert cli.main(["draft", str(noted), str(path)]) == 0
    assert yaml.safe_load(path.read_text())["name"] == "recorded_block_of"


def test_several_kernels_have_to_be_told_apart():
    other = {**launch(64), "kernel": "m:other"}
    with pytest.raises(StudyError, match=r"tuned_kernels:block_of \(1 distinct\), m:other"):
        draft(record(launch(64), other), None, ["sm_90"])
    assert "function: block_of" in draft(record(launch(64), other), "block_of", ["sm_90"])
