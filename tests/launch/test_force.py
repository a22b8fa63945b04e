"""Forcing a config: in this process, in an unmodified program and its children; recording launches."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl
from conftest import FIXTURES

import occupancy_probe
from occupancy_probe.exc import ForceError
from occupancy_probe.gpu import target
from occupancy_probe.launch.load import load_file
from occupancy_probe.launch.program import parse_rules
from occupancy_probe.launch.trace import recording
from occupancy_probe.study import load_study

ROOT = FIXTURES.parents[1]
PROGRAMS = FIXTURES / "programs"
CONFIG = {"BLOCK": 32, "num_warps": 8, "num_stages": 3}


@pytest.fixture(scope="module")
def kernels():
    yield load_file(FIXTURES / "stacks.py")
    sys.modules.pop("stacks")


def meta(*shape):
    return torch.empty(shape, device="meta")


def launched(launch):
    with recording(target("sm_90"), FIXTURES) as noted:
        launch()
    return noted


# -- in this process -------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", ["tuned_over_guessed", "guessed_over_tuned", "tuned_twice"])
def test_force_goes_through_autotuners_and_heuristics(kernels, stack):
    kernel = getattr(kernels, stack)

    def launch():
        with occupancy_probe.force(kernel, CONFIG) as rule:
            for n in (128, 100):
                kernel[lambda given: (triton.cdiv(128, given["BLOCK"]),)](meta(n), meta(n), n)
        assert rule.launches == 2
        assert rule.bypassed == 2, "a launch is one, however many autotuners stand around it"

    found = launched(launch)
    assert [s.options["num_warps"] for s, _ in found] == [8, 8]
    assert [c.scalars["BLOCK"] for _, c in found] == [32, 32]
    assert [c.scalars["EVEN"] for _, c in found] == [True, False]
    assert [c.grid for _, c in found] == [[4], [4]]


@pytest.mark.parametrize("stack", ["bare", "tuned_over_guessed"])
def test_a_launch_that_only_warms_up_is_no_use_of_the_forced_config(kernels, stack):
    """It is compiled under the config, and nothing has run."""
    kernel, given = getattr(kernels, stack), {"BLOCK": 64, "EVEN": True} if stack == "bare" else {}

    def launch():
        with occupancy_probe.force(kernel, CONFIG) as rule:
            kernel.warmup(meta(128), meta(128), 128, grid=(4,), **given)
            assert (rule.launches, rule.bypassed) == (0, 0)
            kernel[(4,)](meta(128), meta(128), 128, **given)
            assert (rule.launches, rule.bypassed) == (1, int(stack != "bare"))

    assert {c.scalars["BLOCK"] for _, c in launched(launch)} == {32}


def test_force_replaces_what_the_program_passes_by_name_and_by_position(kernels):
    def launch():
        with occupancy_probe.force(kernels.bare, CONFIG):
            kernels.bare[(4,)](meta(128), meta(128), 128, 64, True)
            kernels.bare[(4,)](meta(128), meta(128), 128, BLOCK=64, EVEN=True, num_warps=2)

    found = launched(launch)
    assert [(c.scalars["BLOCK"], s.options["num_warps"]) for s, c in found] == [(32, 8), (32, 8)]


def test_force_leaves_other_kernels_alone_and_ends_with_its_block(kernels):
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    before = (JITFunction.run, Autotuner.run)

    def launch():
        with occupancy_probe.force(kernels.bare, CONFIG):
            kernels.add[(2,)](meta(1024), 7, 0.5, 16, meta(1024), 64, tl.float32)
        kernels.bare[(4,)](meta(128), meta(128), 128, 64, True)

    found = launched(launch)
    assert found[0][1].scalars["BLOCK"] == 64
    assert found[1][1].scalars["BLOCK"] == 64
    assert (JITFunction.run, Autotuner.run) == before


def test_a_part_of_a_config_is_completed_where_the_list_leaves_no_choice(kernels):
    with occupancy_probe.force(kernels.tuned_over_guessed, {"BLOCK": 64, "num_warps": 8}) as rule:
        assert rule.config == {"BLOCK": 64, "num_warps": 8, "num_ctas": 1, "num_stages": 3}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_warps": 8}, "chooses BLOCK among 64, 128"),
        ({**CONFIG, "BLOK": 3}, "did you mean BLOCK?"),
        ({**CONFIG, "n": 3}, "n is a run-time argument"),
        ({**CONFIG, "num_warps": 6}, "not a power of two"),
        ({**CONFIG, "num_warps": 64}, "2,048 threads > 1,024"),
        ({**CONFIG, "num_warps": True}, "num_warps True is no whole number of at least 1"),
        ({**CONFIG, "num_stages": -1}, "num_stages -1 is no whole number of at least 0"),
        ({**CONFIG, "num_stages": "2"}, "num_stages '2' is no whole number"),
        ({**CONFIG, "num_ctas": 0}, "num_ctas 0 is no whole number of at least 1"),
        ({**CONFIG, "maxnreg": 0}, "maxnreg 0 is no whole number of at least 1"),
        ({}, "{} is no config; give parameters by name"),
        ("x", "'x' is no config"),
        (None, "None is no config"),
        ({8: 1}, "is no config"),
    ],
)
def test_a_config_that_cannot_be_is_refused_before_any_launch(kernels, config, words):
    with (
        pytest.raises(ForceError, match=words.replace("?", r"\?")),
        occupancy_probe.force(kernels.tuned_over_guessed, config),
    ):
        pytest.fail("nothing may be launched")


def test_what_triton_takes_is_taken(kernels):
    free = {**CONFIG, "num_stages": 0, "maxnreg": None}
    with occupancy_probe.force(kernels.tuned_over_guessed, free) as rule:
        assert rule.config == {**free, "num_ctas": 1}


def test_unknown_kernels_are_refused():
    with (
        pytest.raises(ForceError, match="no_such_module"),
        occupancy_probe.force("no_such_module:f", {}),
    ):
        pass
    with pytest.raises(ForceError, match="no Triton kernel"), occupancy_probe.force(len, CONFIG):
        pass


def test_a_grid_that_was_computed_from_another_tile_is_warned_of(kernels, caplog):
    def launch():
        with occupancy_probe.force(kernels.bare, CONFIG):
            kernels.bare[(4,)](meta(128), meta(128), 128, BLOCK=64, EVEN=True)

    launched(launch)
    assert "launches with BLOCK=64 and a fixed grid; forced to 32" in caplog.text


def test_what_was_forced_and_how_often_is_logged(kernels, caplog):
    caplog.set_level("INFO", "occupancy_probe")

    def launch():
        with occupancy_probe.force(kernels.bare, CONFIG):
            kernels.bare[(4,)](meta(128), meta(128), 128, BLOCK=32, EVEN=True)

    launched(launch)
    assert 'forced bare to {"BLOCK": 32, "num_warps": 8, "num_stages": 3}: 1 launch' in caplog.text


def test_rules_are_read_from_both_forms():
    expected = {"a.b:k": {"num_warps": 8}, "c:d": {"BLOCK": 16}}
    assert parse_rules('a.b:k={"num_warps": 8}\nc:d={"BLOCK": 16}') == expected
    assert parse_rules(json.dumps(expected)) == expected
    twice = 'a:b={"BLOCK": 16}\na:b={"num_warps": 8}'
    for wrong in ("a.b={}", "a:b={}", "a:b=8", "a:b={", '{"a": 1}', twice):
        with pytest.raises(ForceError):
            parse_rules(wrong)


# -- in a program that nobody edits, in the interpreter --------------------------------------------


def program(*arguments, script="server.py", arrange=(), environment=()):
    """`occupancy-probe run … -- python server.py …`, every kernel interpreted."""
    command = [sys.executable, "-m", "occupancy_probe", "run", *arrange]
    return subprocess.run(
        [*command, "--", sys.executable, script, *arguments],
        cwd=PROGRAMS,
        env={**os.environ, "TRITON_INTERPRET": "1", **dict(environment)},
        capture_output=True,
        text=True,
    )


FORCED = """tuned_kernels:block_of={"BLOCK": 32, "num_warps": 8}"""


def test_an_unmodified_program_and_its_spawned_child_use_the_config(tmp_path):
    record = tmp_path / "launches.json"
    done = program("spawn", arrange=["--force", FORCED, "--record", str(record)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:4] == ["64 [32]", "64 [32]", "40 [-32]", "64 [32]"]
    assert """tuned_kernels:block_of {"BLOCK": 32, "num_warps": 8}: 4 launches""" in done.stderr
    first, second = json.loads(record.read_text())["launches"]
    assert (first["kernel"], first["count"]) == ("tuned_kernels:block_of", 3)
    assert (first["key"], first["grid"]) == ({"n": 64}, [2])
    assert first["config"]["BLOCK"] == 32
    assert first["arguments"]["out"]["shape"] == [64]
    assert (second["key"], second["count"], second["heuristics"]["EVEN"]) == ({"n": 40}, 1, False)


def test_a_forked_child_counts_for_itself():
    done = program("fork", arrange=["--force", FORCED])
    assert done.returncode == 0, done.stderr
    assert """{"BLOCK": 32, "num_warps": 8}: 4 launches""" in done.stderr


def test_a_kernel_in_the_script_itself_goes_by_the_scripts_name():
    done = program(script="alone.py", arrange=["--force", """alone:block={"BLOCK": 16}"""])
    assert done.stdout == "[16]\n", done.stderr


def test_the_environment_says_the_same_and_reaches_other_interpreters():
    done = program("child", environment={"OCCUPANCY_PROBE_FORCE": FORCED}.items())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("64 [32]") == 4
    assert "6 launches" in done.stderr


def test_a_sitecustomize_of_the_environment_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    done = program(arrange=["--force", FORCED], environment={"PYTHONPATH": str(tmp_path)}.items())
    assert "mine\n64 [32]" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("""tuned_kernels:block={"BLOCK": 32}""", "has no kernel 'block'; it has block_of"),
        ("""tuned_kernels:block_of={"num_warps": 8}""", "chooses BLOCK among 16, 32"),
        ("""tuned_kernels:block_of={"BLOCK": 16, "num_stages": -1}""", "num_stages -1 is no whole"),
    ],
)
def test_a_rule_that_cannot_be_ends_the_program_before_its_first_launch(rule, words):
    done = program(arrange=["--force", rule])
    assert done.returncode != 0
    assert words in done.stderr
    assert done.stdout == ""


def test_a_program_that_loads_triton_again_counts_every_launch_once(tmp_path):
    record = tmp_path / "launches.json"
    reload = "import importlib, triton; importlib.reload(triton)"
    code = f"{reload}; import server; server.serve(64, 'cpu')"
    done = program(code, script="-c", arrange=["--force", FORCED, "--record", str(record)])
    assert done.stdout == "64 [32]\n", done.stderr
    assert ": 1 launch" in done.stderr
    assert done.stderr.count("occupancy-probe: forced") == 1
    assert [x["count"] for x in json.loads(record.read_text())["launches"]] == [1]


def test_a_rule_that_was_never_used_is_an_error():
    done = program(script="-c", arrange=["--force", FORCED])
    assert done.returncode == 2 or "Argument expected" in done.stderr
    done = program("pass", script="-c", arrange=["--force", FORCED])
    assert done.returncode == 2
    assert "never launched: tuned_kernels:block_of" in done.stderr


def test_the_programs_own_status_is_kept():
    done = program("raise SystemExit(7)", script="-c", arrange=["--force", FORCED])
    assert done.returncode == 7


# -- on a GPU --------------------------------------------------------------------------------------

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def on_gpu(*arguments, arrange=()):
    command = [sys.executable, "-m", "occupancy_probe", "run", *arrange, "--"] if arrange else []
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [*command, sys.executable, "server.py", "cuda", *arguments],
        cwd=PROGRAMS, env=environment, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.gpu
@needs_gpu
def test_A6_capture_fails_unforced_and_works_forced_in_an_unmodified_program(tmp_path):
    unforced = on_gpu("graph")
    assert unforced.returncode != 0
    assert unforced.stdout.startswith("256"), "its eager call tunes, the capture brings another key"
    record = tmp_path / "launches.json"
    done = on_gpu("graph", arrange=["--force", FORCED, "--record", str(record)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["256 [32]", "64 [32]", "128 [32]"]
    first, *_ = json.loads(record.read_text())["launches"]
    assert first["specialization"]["out"].startswith("*i32")
    assert first["config"]["num_warps"] == 8


@pytest.mark.gpu
@needs_gpu
def test_a_config_too_large_for_the_gpu_is_named_before_the_kernel_runs():
    from conftest import own_imports

    from occupancy_probe.launch.launches import study_problem

    with own_imports():
        study = load_study(FIXTURES / "gemm_bf16.yaml")
        problem = study_problem(study)
        inputs = problem.make_inputs({"m": 512, "n": 512, "k": 512}, "cuda", 0)
        big = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128, "num_warps": 8, "num_stages": 5}
        with (
            occupancy_probe.force(problem.kernel, big),
            pytest.raises(ForceError, match="does not fit"),
        ):
            problem.launch(inputs, study.file.baseline)


@pytest.mark.gpu
@needs_gpu
def test_launches_recorded_around_a_graph_become_a_study_that_runs(tmp_path):
    record, study = tmp_path / "launches.json", tmp_path / "recorded.yaml"
    done = on_gpu("graph", arrange=["--force", FORCED, "--record", str(record)])
    assert done.returncode == 0, done.stderr
    probe = [sys.executable, "-m", "occupancy_probe"]
    workflow = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "--cores", "2"]
    settings = ["--config", "study=recorded.yaml", "commit=False"]
    for command in (
        [*probe, "draft", str(record), str(study), "--target", "sm_90"],
        [*workflow, "--directory", str(tmp_path), "ab_report", *settings],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + done.stdout
    results = tmp_path / "results" / "recorded_block_of"
    matrix = json.loads((results / "feasibility" / "sm_90.json").read_text())
    assert matrix["fits"] == ["baseline", "num_warps-4", "num_warps-16"]
    assert [w.axes for w in load_study(study).workloads] == [{"out_0": n} for n in (256, 64, 128)]
    assert "not measured" in (results / "report.html").read_text()
