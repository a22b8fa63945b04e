"""The same matrix under two Tritons, side by side."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import FIXTURES, copy_fixture
from launch.test_environment import VERSION, another_triton

from occupancy_probe.launch.launches import trace_study
from occupancy_probe.records import EnvironmentDrift, Feasibility, read_record, write_record
from occupancy_probe.research.drift import compare_environment, summary, table
from occupancy_probe.study import load_study

TINY = FIXTURES / "tiny.yaml"


def fill(matrix_of, results, name, change=lambda record: {}):
    """Matrices of the tiny study in `results`, those of environment `name` changed."""
    for target in ("sm_90", "sm_120"):
        for arm, record in matrix_of(TINY, target).records.items():
            write_record(results / "feasibility" / target / f"{arm}.json", record)
            other = record.model_copy(update=change(record))
            write_record(results / f"feasibility@{name}" / target / f"{arm}.json", other)
    return compare_environment(load_study(TINY), results, name)


def test_nothing_moved(matrix_of, tmp_path):
    found = fill(matrix_of, tmp_path, "same")
    assert len(found.arms) == 2 * 4
    assert all(row.same_figures and row.same_code for row in found.arms)
    assert summary(found)[0] == (
        "sm_90: 4 arms, 4 with the same code; 0 other registers, 0 other shared memory,"
        " 0 other CTAs per SM, 0 another verdict"
    )


def test_from_and_to(matrix_of, tmp_path):
    def change(record: Feasibility):
        if record.arm != "num_warps-8" or record.target != "sm_90":
            return {}
        variants = [v.model_copy(update={"code_sha256": "0" * 64}) for v in record.variants]
        return {
            "verdict": "rejected",
            "registers": 99,
            "shared_bytes": 2**18,
            "ctas_per_sm": 0,
            "spill_store_bytes": 8,
            "variants": variants,
            "versions": {"triton": VERSION},
        }

    found = fill(matrix_of, tmp_path, "other", change)
    [row] = [r for r in found.arms if not r.same_figures]
    before = matrix_of(TINY, "sm_90")["num_warps-8"]
    assert (row.target, row.arm, row.same_code) == ("sm_90", "num_warps-8", False)
    assert row.figures == {
        "verdict": ("fits", "rejected"),
        "registers": (before.registers, 99),
        "shared_bytes": (before.shared_bytes, 2**18),
        "ctas_per_sm": (before.ctas_per_sm, 0),
        "spill_store_bytes": (0, 8),
    }
    assert "num_warps-8 fits → rejected" in summary(found)[0]
    text = table(found)
    assert f"{before.registers} → 99" in text and "spill_store_bytes 0 → 8" in text
    write_record(tmp_path / "drift.json", found)
    assert read_record(tmp_path / "drift.json", EnvironmentDrift) == found


def test_arms_that_one_matrix_lacks_are_named(matrix_of, tmp_path):
    fill(matrix_of, tmp_path, "half")
    (tmp_path / "feasibility@half" / "sm_120" / "num_warps-1.json").unlink()
    found = compare_environment(load_study(TINY), tmp_path, "half")
    assert found.missing == ["sm_120 num_warps-1"]
    assert summary(found)[-1] == "not compared: sm_120 num_warps-1"


@pytest.fixture(scope="module")
def under_another(tmp_path_factory):
    """The tiny study's trace and one matrix, really made under another Triton by the command line."""
    folder = tmp_path_factory.mktemp("under")
    place = another_triton(folder / "other")
    study = copy_fixture("tiny", folder / "study")
    text = study.read_text().replace("[1, 8], num_stages: [3]", "[8]")
    study.write_text(text.replace("[sm_90, sm_120]", "[sm_90]"))
    results = folder / "results"
    base = [sys.executable, "-m", "occupancy_probe", "under", str(place)]
    tail = [str(study), "--results", str(results), "--environment", "other"]
    for command in (["trace", *tail], ["compile", *tail, "--target", "sm_90", "--workers", "2"]):
        done = subprocess.run([*base, *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return study, results


def test_the_matrix_of_another_triton_says_whose_it_is(under_another):
    study, results = under_another
    record = read_record(results / "feasibility@other/sm_90/baseline.json", Feasibility)
    assert record.versions["triton"] == VERSION
    assert not (results / "feasibility").exists()
    found = compare_environment(load_study(study), results, "other")
    assert found.missing == ["sm_90 baseline", "sm_90 num_warps-8"]


def test_the_same_triton_under_another_path_makes_the_same_code(under_another, tmp_path):
    from research.conftest import compile_matrix

    study, results = under_another
    compile_matrix(
        study, "sm_90", results / "feasibility" / "sm_90", trace_study(load_study(study))
    )
    found = compare_environment(load_study(study), results, "other")
    assert found.before["triton"] != found.after["triton"] == VERSION
    assert all(row.same_code and row.same_figures for row in found.arms)
