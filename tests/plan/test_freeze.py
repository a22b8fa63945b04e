"""The frozen plan: a pure function of study, kernel and Problem."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import FIXTURES, copy_fixture

from occupancy_probe.exc import StudyError
from occupancy_probe.plan.difference import differences
from occupancy_probe.plan.freeze import freeze, hash_of
from occupancy_probe.records import Plan, read_record, to_json, write_record
from occupancy_probe.study import load_study

TINY = FIXTURES / "tiny.yaml"


@pytest.fixture
def frozen(trace_of):
    return freeze(load_study(TINY), trace_of(TINY))


def test_the_plan_says_what_will_be_measured(frozen):
    assert [a.name for a in frozen.arms][:2] == ["baseline", "null"]
    first, second = frozen.workloads
    assert (first.axes, first.bytes, first.flop) == ({"rows": 4, "n": 500}, 16000, 2000)
    assert first.grids == {"sm_90": [4], "sm_120": [4]}
    assert second.grids["sm_120"] == [64]
    assert frozen.autotune["key"] == ["n"]
    assert len(frozen.autotune["configs"]) == 4
    assert frozen.plan_hash == hash_of(frozen)


def test_another_copy_freezes_to_the_same_bytes_in_another_process(frozen, tmp_path):
    study = copy_fixture("tiny", tmp_path / "elsewhere")
    code = (
        "import sys; from occupancy_probe.study import load_study;"
        "from occupancy_probe.launch.launches import trace_study;"
        "from occupancy_probe.plan.freeze import freeze;"
        "from occupancy_probe.records import to_json; s = load_study(sys.argv[1]);"
        "sys.stdout.write(to_json(freeze(s, trace_study(s))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(study)], capture_output=True, text=True, check=True
    )
    assert done.stdout == to_json(frozen)


def test_the_plan_knows_no_place_and_no_clock(frozen):
    assert str(FIXTURES) not in to_json(frozen)
    assert frozen.versions == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("improve: rows >= 64", "improve: rows >= 4"),
        ("title: Tiny A/B", "title: Another A/B"),
        ("num_warps: [1, 8]", "num_warps: [1, 2]"),
    ],
)
def test_another_study_has_another_hash(frozen, trace_of, tmp_path, old, new):
    study = copy_fixture("tiny", tmp_path)
    text = study.read_text()
    assert old in text
    study.write_text(text.replace(old, new))
    assert freeze(load_study(study), trace_of(study)).plan_hash != frozen.plan_hash


def test_another_kernel_source_has_another_hash(frozen, trace_of, tmp_path):
    study = copy_fixture("tiny", tmp_path)
    kernel = tmp_path / "tiny" / "kernel.py"
    kernel.write_text(kernel.read_text() + "\n# a remark\n")
    assert freeze(load_study(study), trace_of(study)).plan_hash != frozen.plan_hash


def test_another_series_or_profile_is_another_plan(trace_of, tmp_path):
    """They decide what the document projects; they must be committed like all other inputs."""
    study = copy_fixture("tiny", tmp_path)
    series, profile = tmp_path / "own.csv", tmp_path / "p.csv"
    named = "throughput: {series: own.csv, axis: rows, share: {profile: p.csv}}\n"
    study.write_text(study.read_text() + named)
    series.write_text("concurrency,step_ms\n1,4\n16,8\n48,16.5\n")
    profile.write_text("name,time_us\nscale_rows,25\nelse,75\n")
    first = load_study(study)
    assert {series, profile} < set(first.inputs)
    plans = [freeze(first, trace_of(study))]
    for path in (series, profile):
        path.write_text(path.read_text().replace("5", "6"))
        plans.append(freeze(load_study(study), trace_of(study)))
    assert len({p.plan_hash for p in plans}) == 3
    [line] = differences(plans[0], plans[1])
    assert line.startswith("series and profile: ")


def test_the_hash_survives_the_file(frozen, tmp_path):
    write_record(tmp_path / "plan.json", frozen)
    back = read_record(tmp_path / "plan.json", Plan)
    assert hash_of(back) == frozen.plan_hash
    edited = back.model_copy(update={"title": "Another"})
    assert hash_of(edited) != frozen.plan_hash


def test_function_that_is_not_launched(trace_of, tmp_path):
    study = copy_fixture("tiny", tmp_path)
    study.write_text(study.read_text().replace("function: scale_rows", "function: scale_rwos"))
    with pytest.raises(
        StudyError, match=r"kernel\.function: 'scale_rwos' is not launched; .*scale_rows"
    ):
        freeze(load_study(study), trace_of(study))


def test_baseline_that_cannot_be_launched(trace_of, tmp_path):
    study = copy_fixture("tiny", tmp_path)
    study.write_text(
        study.read_text().replace("{BLOCK: 512, num_warps: 4", "{BLOCK: 512, num_warps: 6")
    )
    with pytest.raises(StudyError, match=r"baseline: .*correct the baseline"):
        freeze(load_study(study), trace_of(study))
