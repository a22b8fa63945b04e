"""Exports: code that runs, an autotune cache that Triton itself accepts, warm-up calls per key."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import yaml
from conftest import FIXTURES, copy_fixture, own_imports

from occupancy_probe.gpu import target
from occupancy_probe.launch.driver import compile_only
from occupancy_probe.launch.tuned import autotuners
from occupancy_probe.launch.tuning_cache import install_file
from occupancy_probe.records import (
    Audit,
    Bucket,
    CaptureSafety,
    DeviceVerdict,
    Result,
    Ruling,
    TunedConfig,
    Verdict,
    WiderKey,
)
from occupancy_probe.study import load_study
from occupancy_probe.validate.exports import write_exports
from occupancy_probe.validate.first_touch import advise, matrix_of

EXAMPLE = json.loads((FIXTURES / "autotune/first_touch_h200.json").read_text())
CONFIGS = [{"BLOCK_T": t, "num_warps": w, "num_stages": 2} for t, w in ((16, 4), (16, 8), (32, 8))]
DTYPES = ["float32", "float32"]


@pytest.fixture
def exported(tmp_path):
    path = copy_fixture("touch", tmp_path)
    content = yaml.safe_load(path.read_text())
    names = [f"b{b}" for b in EXAMPLE["batch"]]
    content["workloads"] = [{"list": [{"batch": b} for b in EXAMPLE["batch"]], "name": "b{batch}"}]
    content["autotune"] = {"capture": content["workloads"]}
    path.write_text(yaml.safe_dump(content))
    study = load_study(path)
    grids = [[b, 16] for b in EXAMPLE["batch"]]
    audit = Audit(
        study="touch",
        key=["topk_rounded"],
        configs=[TunedConfig(config=c, fate={}) for c in CONFIGS],
        buckets=[
            Bucket(
                key={"topk_rounded": 640}, dtypes=DTYPES, workloads=names, grids=grids, configs=3
            )
        ],
        capture=CaptureSafety(warmup=[], capture=names, first_in_capture=[], calls=["b1"]),
        wider_key=WiderKey(
            added=["batch"], is_argument=False, buckets=7, tuning_launches=21, seconds=2.6
        ),
    )
    touch = matrix_of(names, CONFIGS, EXAMPLE["us"], EXAMPLE["device"])
    device = DeviceVerdict(
        device="nvidia-h200", device_name="NVIDIA H200", target="sm_90", source="measured here",
        measured_at="2026-01-01", plan_commit=None, preregistered=False, versions={},
        decision="adopt t32-w8", adopted="t32-w8", conclusions=[], results=[],
        first_touch=[touch], tuning_advice=advise(audit, [touch], 0.01),
    )  # fmt: skip
    verdict = Verdict(
        study="touch",
        plan_hash="p",
        plan_commit=None,
        devices=[device],
        assumptions=[],
        audit=audit,
    )
    write_exports(study, verdict, tmp_path / "exports")
    return study, tmp_path / "exports"


@pytest.fixture
def study(tmp_path):
    """The touch study with an arm that its autotuner's list lacks, and a rule with a threshold."""
    path = copy_fixture("touch", tmp_path)
    content = yaml.safe_load(path.read_text())
    content["arms"].append({"list": [{"BLOCK_T": 64}], "name": "t64-w4", "why": "not in the list"})
    content["decision"] |= {"above": "batch", "outcomes": ["adopt", "adopt_above", "reject"]}
    path.write_text(yaml.safe_dump(content))
    return load_study(path)


PLACES = ("b1", "b64", "b512")
AUDIT = Audit(
    study="touch",
    key=["topk_rounded"],
    configs=[TunedConfig(config=c, fate={}) for c in CONFIGS],
    buckets=[
        Bucket(
            key={"topk_rounded": 640}, dtypes=DTYPES, workloads=list(PLACES), grids=[[1]] * 3, configs=3
        )
    ],
)  # fmt: skip


def device_of(us, adopted=None, above=None, listed=("baseline", "t16-w8", "t32-w8")):
    """A device that measured ``us`` (µs by arm, at b1, b64, b512) and came to that decision.

    listed: arms that the autotuner's list has too."""
    results = [
        Result(
            arm=arm, workload=w, device="nvidia-h200", time_us=t, ratio=t / us["baseline"][i],
            verdict="baseline" if arm == "baseline" else "undecided",
        )
        for arm, row in us.items() for i, (w, t) in enumerate(zip(PLACES, row, strict=True))
    ]  # fmt: skip
    configs = dict(zip(("baseline", "t16-w8", "t32-w8"), CONFIGS, strict=True))
    touch = matrix_of(PLACES, [configs[a] for a in listed], [us[a] for a in listed], "given")
    ruling = Ruling(rule="r", outcome="adopt_above" if above else "adopt", text="t", above=above)
    return DeviceVerdict(
        device="nvidia-h200", device_name="NVIDIA H200", target="sm_90", source="measured here",
        measured_at="2026-01-01", plan_commit=None, preregistered=False, versions={},
        decision="adopt", adopted=adopted, conclusions=[], results=results, ruling=ruling,
        first_touch=[touch], tuning_advice=advise(AUDIT, [touch], 0.001),
    )  # fmt: skip


def write(study, device, tmp_path):
    verdict = Verdict(
        study="touch", plan_hash="p", plan_commit=None, devices=[device], assumptions=[], audit=AUDIT
    )  # fmt: skip
    write_exports(study, verdict, tmp_path / "exports")
    return tmp_path / "exports"


def chosen(folder):
    """What Triton would take: the least of the timings in the file."""
    [path] = folder.glob("nvidia-h200/autotune_cache/640/decode.autotune.json")
    timings = json.loads(path.read_text())["configs_timings"]
    config = min(timings, key=lambda t: t[1])[0]
    return {
        **config["kwargs"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }


def test_the_winner_is_a_triton_config(exported):
    _, folder = exported
    made = runpy.run_path(str(folder / "nvidia-h200/config.py"))
    assert made["CONFIG"].all_kwargs() == {**CONFIGS[2], "num_ctas": 1}
    assert made["PINNED"][0][0] == {"batch": 1}
    assert [c.kwargs["BLOCK_T"] for _, c in made["PINNED"]] == [32, 32, 16, 16, 16, 16, 16]


def test_the_autotune_list_has_the_winners_and_a_key_that_sees_the_batch(exported):
    _, folder = exported
    text = (folder / "nvidia-h200/autotune.py").read_text()
    assert "key=['topk_rounded', 'batch']" in text
    assert "batch must become an argument of the kernel" in text
    assert "'BLOCK_T': 16}, num_warps=8" not in text, "it wins nowhere"
    runpy.run_path(str(folder / "nvidia-h200/autotune.py"))


def test_the_warm_up_takes_the_first_touch_that_costs_the_others_least(exported):
    _, folder = exported
    text = (folder / "warmup.py").read_text()
    assert "{'batch': 16},  # b16: costs the others at most 16.8 % on NVIDIA H200" in text


def test_every_file_has_a_line_in_the_readme(exported):
    _, folder = exported
    readme = (folder / "README.md").read_text()
    for path in folder.rglob("*.py"):
        assert str(path.relative_to(folder)) in readme
    assert "*.autotune.json" in readme


@pytest.mark.skipif(torch.cuda.is_available(), reason="expects a machine without a GPU")
@pytest.mark.parametrize("name", ["warmup.py", "nvidia-h200/install_cache.py"])
def test_a_script_that_needs_a_gpu_says_so_in_one_line(exported, name):
    _, folder = exported
    done = subprocess.run([sys.executable, folder / name], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    [said] = done.stderr.splitlines()
    assert said.startswith(f"{Path(name).name} needs an NVIDIA GPU and none was found")


def test_the_cache_file_is_the_one_that_triton_writes(exported, monkeypatch, tmp_path):
    """Installed by Triton's own code, read back by a fresh autotuner that must not time anything."""
    study, folder = exported
    [path] = folder.glob("nvidia-h200/autotune_cache/640/decode.autotune.json")
    content = json.loads(path.read_text())
    assert content["key"] == [640, "torch.float32", "torch.float32"]
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with own_imports(), compile_only(target("sm_90")):
        from occupancy_probe.launch.launches import study_problem

        [tuner] = autotuners(study_problem(study).kernel)
        assert install_file(tuner, content["key"], content["configs_timings"]) == "installed"
        [written] = Path(tmp_path, "cache").rglob("*.autotune.json")
        theirs = json.loads(written.read_text())
        assert theirs["key"] == content["key"]
        assert [c for c, _ in theirs["configs_timings"]] == [
            c for c, _ in content["configs_timings"]
        ]

        tuner.cache.clear()
        hit = tuner.check_disk_cache(
            tuple(content["key"]), tuner.configs, lambda: pytest.fail("timed")
        )
        assert hit
        chosen = tuner.cache[tuple(content["key"])]
        best = [min(column) for column in zip(*EXAMPLE["us"], strict=True)]
        worst = [max(t / b for t, b in zip(row, best, strict=True)) for row in EXAMPLE["us"]]
        least = worst.index(min(worst))
        assert {**chosen.kwargs, "num_warps": chosen.num_warps, "num_stages": 2} == CONFIGS[least]


def test_the_config_of_a_bucket_is_the_one_with_the_smallest_worst_loss(study, tmp_path):
    """By mean time t32-w8 would win here, and lose 40 % at b64."""
    us = {"baseline": (22.0, 10.0, 33.0), "t16-w8": (99.0,) * 3, "t32-w8": (20.0, 14.0, 28.0)}
    folder = write(study, device_of(us), tmp_path)
    readme = (folder / "README.md").read_text()
    assert chosen(folder) == {"BLOCK_T": 16, "num_warps": 4, "num_stages": 2}
    assert "BLOCK_T=16 num_warps=4 num_stages=2 wins, and loses at most 17.9 % (b512)" in readme
    assert "17.9 % (b512) to the others of the file." in readme


WIN_64 = {
    "baseline": (20.0, 20.0, 20.0), "t16-w8": (21.0, 21.0, 21.0), "t32-w8": (20.1, 19.0, 19.0),
    "t64-w4": (30.0, 15.0, 14.0),
}  # fmt: skip


def test_an_adopted_arm_that_is_not_in_the_list_wins_the_bucket_for_a_real_autotuner(
    study, monkeypatch, tmp_path
):
    """Through the installer that is exported, in Triton's own cache, read by Triton's own code."""
    us = {**WIN_64, "t64-w4": (15.0, 15.0, 14.0)}
    folder = write(study, device_of(us, "t64-w4"), tmp_path)
    assert chosen(folder) == {"BLOCK_T": 64, "num_warps": 4, "num_stages": 2}
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with own_imports(), compile_only(target("sm_90")):
        from occupancy_probe.launch.launches import study_problem

        kernel = study_problem(study).kernel
        runpy.run_path(str(folder / "nvidia-h200/install_cache.py"))["install"](kernel)
        [tuner] = autotuners(kernel)
        key = (640, *(f"torch.{d}" for d in DTYPES))
        tuner.cache.clear()
        assert tuner.check_disk_cache(key, tuner.configs, lambda: pytest.fail("timed"))
        assert tuner.cache[key].all_kwargs()["BLOCK_T"] == 64
    readme = (folder / "README.md").read_text()
    assert re.search(r"json`: BLOCK_T=64 .*wins, and loses nothing to the others", readme)


@contextmanager
def installing(study, folder, monkeypatch, cache):
    """The exported installer around the study's kernel, and that kernel's autotuner."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    with own_imports(), compile_only(target("sm_90")):
        from occupancy_probe.launch.launches import study_problem

        kernel = study_problem(study).kernel
        install = runpy.run_path(str(folder / "nvidia-h200/install_cache.py"))["install"]
        yield lambda: install(kernel), autotuners(kernel)[0]


KEY = (640, *(f"torch.{d}" for d in DTYPES))


def read_back(tuner):
    tuner.cache.clear()
    assert tuner.check_disk_cache(KEY, tuner.configs, lambda: pytest.fail("timed"))
    return tuner.cache[KEY].all_kwargs()["BLOCK_T"]


def test_a_second_install_replaces_the_first_and_says_so(study, monkeypatch, tmp_path, capsys):
    folder = write(study, device_of({**WIN_64, "t64-w4": (15.0, 15.0, 14.0)}, "t64-w4"), tmp_path)
    with installing(study, folder, monkeypatch, tmp_path / "cache") as (install, tuner):
        install()
        assert read_back(tuner) == 64
        write(study, device_of(WIN_64, "t32-w8"), tmp_path)
        install()
        assert read_back(tuner) == 32
    first, second = capsys.readouterr().out.splitlines()
    assert first == "640: installed" and second.startswith("640: replaced")


def test_what_triton_timed_itself_is_kept(study, monkeypatch, tmp_path, capsys):
    folder = write(study, device_of(WIN_64, "t32-w8"), tmp_path)
    with installing(study, folder, monkeypatch, tmp_path / "cache") as (install, tuner):

        def timing():
            tuner.configs_timings = {c: [float(c.num_warps)] * 3 for c in tuner.configs}

        assert not tuner.check_disk_cache(KEY, tuner.configs, timing)
        [own] = (tmp_path / "cache").rglob("*.autotune.json")
        before = own.read_bytes()
        install()
        assert own.read_bytes() == before
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("640: kept: this machine has tuned that key itself")
    assert said[1:] == ["nothing was written"]


def test_a_pre_hook_makes_the_install_impossible(study, monkeypatch, tmp_path, capsys):
    folder = write(study, device_of(WIN_64, "t32-w8"), tmp_path)
    with installing(study, folder, monkeypatch, tmp_path / "cache") as (install, tuner):
        tuner.configs[0].pre_hook = lambda arguments: None
        install()
    assert not list((tmp_path / "cache").rglob("*.autotune.json"))
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("640: impossible: ") and "pre_hook" in said[0]
    assert said[1:] == ["nothing was written"]


def test_an_arm_adopted_from_a_value_on_carries_its_condition_everywhere(study, tmp_path):
    folder = write(study, device_of(WIN_64, "t64-w4", above=64), tmp_path)
    readme = (folder / "README.md").read_text()
    config = folder / "nvidia-h200/config.py"
    assert (
        "`CONFIG` is the adopted arm t64-w4 on NVIDIA H200, only for batch >= 64 (elsewhere up to"
        " 50.0 % slower than the baseline, at b1): `config_at(batch)` gives the baseline there"
    ) in readme
    assert "# Adopted only for batch >= 64 (elsewhere up to 50.0 % slower" in config.read_text()
    made = runpy.run_path(str(config))
    assert [made["config_at"](b).kwargs["BLOCK_T"] for b in (1, 63, 64, 512)] == [16, 16, 64, 64]
    tune = (folder / "nvidia-h200/autotune.py").read_text()
    assert tune.startswith(
        '"""Autotuning of decode on NVIDIA H200; t64-w4 is adopted only for batch'
    )
    assert chosen(folder) != {"BLOCK_T": 64, "num_warps": 4, "num_stages": 2}, "b1 is in the bucket"
    assert (
        "35.7 % (b512) to t64-w4, the best that was measured there; t64-w4 is not in it, as it is"
        " adopted only for batch >= 64 and the key does not tell"
    ) in readme


def test_what_is_pinned_says_how_far_it_is_from_the_decision(study, tmp_path):
    folder = write(study, device_of(WIN_64, "t64-w4", above=64), tmp_path)
    text = (folder / "nvidia-h200/config.py").read_text()
    assert "num_stages=2)),  # b1: as fast as baseline" in text
    assert "num_stages=2)),  # b64: 26.7 % slower than t64-w4" in text
    readme = (folder / "README.md").read_text()
    assert "at each workload: up to 35.7 % slower than t64-w4 (b512)." in readme


def test_the_autotune_list_has_every_config_that_is_best_or_equivalent_somewhere(study, tmp_path):
    us = {**WIN_64, "t16-w8": (25.0, 25.0, 14.1)}
    device = device_of(us, "t64-w4", above=64, listed=("t16-w8", "t32-w8"))
    folder = write(study, device, tmp_path)
    text = (folder / "nvidia-h200/autotune.py").read_text()
    listed = [
        line.strip() for line in text.splitlines() if line.startswith("        triton.Config")
    ]
    assert listed == [
        "triton.Config({'BLOCK_T': 64}, num_warps=4, num_stages=2),",  # best at b64 and b512
        "triton.Config({'BLOCK_T': 16}, num_warps=4, num_stages=2),",  # the baseline, best at b1
        "triton.Config({'BLOCK_T': 32}, num_warps=8, num_stages=2),",  # within 1 % at b1
        "triton.Config({'BLOCK_T': 16}, num_warps=8, num_stages=2),",  # within 1 % at b512
    ]


def test_a_best_arm_that_won_nothing_by_the_rule_is_still_in_the_list(study, tmp_path):
    """Its times count, not its verdict: the baseline never is "faster"."""
    us = {
        "baseline": (10.0, 20.0, 20.0),
        "t32-w8": (12.0, 10.0, 10.0),
        "t16-w8": (30.0, 30.0, 30.0),
    }
    device = device_of(us, "t32-w8", listed=("t16-w8", "t32-w8"))
    text = (write(study, device, tmp_path) / "nvidia-h200/autotune.py").read_text()
    assert "{'BLOCK_T': 16}, num_warps=4" in text and "num_warps=8, num_stages=2" in text
    assert "{'BLOCK_T': 16}, num_warps=8" not in text


NOT_IN_CAPTURE = (
    "operation not permitted when stream is capturing"
    "|operation failed due to a previous error during capture"
    "|cudaErrorStreamCapture"
)
"""CUDA's own words for work that a capture does not allow."""


def test_A6_no_other_failure_of_the_program_is_taken_for_a_lost_capture(study):
    """Without a GPU it fails too, and its traceback names capture.py and torch.cuda.graph."""
    command = [sys.executable, str(FIXTURES / "programs/capture.py"), str(study.path)]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    failed = subprocess.run(command, capture_output=True, text=True, env=hidden)
    assert failed.returncode != 0 and "capture" in failed.stderr
    assert not re.search(NOT_IN_CAPTURE, failed.stderr)
    seen = "torch.AcceleratorError: CUDA error: operation failed due to a previous error during capture"
    assert re.search(NOT_IN_CAPTURE, seen)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.mark.gpu
@needs_gpu
def test_A6_a_capture_fails_unprotected_and_passes_after_the_generated_warm_up(exported):
    study, folder = exported
    program = Path(FIXTURES, "programs", "capture.py")
    command = [sys.executable, str(program), str(study.path)]
    unprotected = subprocess.run(command, capture_output=True, text=True)
    assert unprotected.returncode != 0
    assert re.search(NOT_IN_CAPTURE, unprotected.stderr), unprotected.stderr
    protected = subprocess.run(
        [*command, str(folder / "warmup.py")], capture_output=True, text=True
    )
    assert protected.returncode == 0, protected.stderr
    assert protected.stdout.split() == ["captured", "replayed"]
