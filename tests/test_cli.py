"""The command line as rules call it: one stage a process, one line per fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conftest import FIXTURES, copy_fixture

from occupancy_probe import cli, records

TINY = FIXTURES / "tiny.yaml"


def run(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "occupancy_probe", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """Results of the stages that need no GPU and no git, each run as a rule would."""
    results = tmp_path_factory.mktemp("results")
    done = {"trace": run("trace", TINY, "--results", results)}
    done["compile"] = run(
        "compile", TINY, "--results", results, "--target", "sm_120", "--workers", 2
    )
    done["audit"] = run("audit", TINY, "--results", results)
    return results, done


def test_every_stage_succeeds(stages):
    for name, done in stages[1].items():
        assert (name, done.returncode, done.stderr if done.returncode else "") == (name, 0, "")


def test_trace_writes_its_record(stages):
    trace = records.read_record(stages[0] / "trace.json", records.Trace)
    assert {t.target for t in trace.launches} == {"sm_90", "sm_120"}


def test_compile_writes_a_record_per_arm_and_one_over_them(stages):
    results, done = stages
    folder = results / "feasibility"
    names = {"baseline", "num_warps-1", "num_warps-8", "num_stages-3"}
    assert {p.stem for p in (folder / "sm_120").iterdir()} == names
    index = json.loads((folder / "sm_120.json").read_text())
    assert set(index["arms"]) == names
    assert index["same_code"] == {"num_stages-3": "baseline"}
    assert "tiny: sm_120: 4 of 4 arms fit, 1 the same code as another" in done["compile"].stdout


def test_audit_writes_its_record(stages):
    audit = records.read_record(stages[0] / "audit.json", records.Audit)
    assert audit.key == ["n"]


def test_check_in_the_interpreter(tmp_path):
    results = tmp_path / "results"
    done = run("check", TINY, "--results", results, "--device", "interpreter")
    assert done.returncode == 0, done.stderr
    index = json.loads((results / "correctness" / "interpreter.json").read_text())
    assert index == {"baseline": "right"}
    assert "1 right" in done.stdout


def test_a_fault_of_the_study_is_a_line_each_and_status_2(tmp_path, capsys):
    path = copy_fixture("tiny", tmp_path)
    path.write_text(path.read_text().replace("title:", "titel:").replace("why: n", "wy: n"))
    assert cli.main(["trace", str(path), "--results", str(tmp_path / "r")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith(f"error: {path}: ") for line in lines)
    assert not (tmp_path / "r").exists()


def test_no_traceback_for_a_kernel_that_cannot_be_imported(tmp_path):
    path = copy_fixture("tiny", tmp_path)
    (tmp_path / "tiny" / "kernel.py").write_text("import no_such_module_anywhere\n")
    done = run("trace", path, "--results", tmp_path / "r")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "no_such_module_anywhere" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trace", "none.yaml", "--results", "r"], "none.yaml: No such file"),
        (["compile", TINY, "--results", "r", "--target", "sm_90"], "trace.json: No such file"),
        (["compile", TINY, "--results", "r", "--target", "sm_9O"], "unknown target 'sm_9O'"),
    ],
)
def test_what_is_missing_is_said_in_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert cli.main([str(a) for a in arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_an_unknown_command_lists_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        cli.main(["measrue"])
    assert "trace" in capsys.readouterr().err


def test_schema_is_a_json_schema(capsys):
    assert cli.main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["additionalProperties"] is False
    assert "list" in schema["$defs"]["ConfigRule"]["properties"]


def test_a_reader_that_has_seen_enough_is_no_fault():
    made = subprocess.Popen(
        [sys.executable, "-m", "occupancy_probe", "schema"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    made.stdout.close()
    assert made.stderr.read() == b"" and made.wait() == 0
