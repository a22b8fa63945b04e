"""Exports: code that runs, an autotune cache that Triton itself accepts, warm-up calls per key."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch
import yaml
from conftest import FIXTURES, copy_fixture, own_imports

from occupancy_probe.gpu import target
from occupancy_probe.launch.driver import compile_only
from occupancy_probe.launch.tuned import autotuners
from occupancy_probe.launch.warmup import install_timings
from occupancy_probe.records import (
    Audit,
    Bucket,
    CaptureSafety,
    DeviceVerdict,
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
        timings = [
            ({**c["kwargs"], "num_warps": c["num_warps"], "num_stages": c["num_stages"]}, ms[0])
            for c, ms in content["configs_timings"]
        ]
        install_timings(tuner, content["key"], timings)
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
        least = min(range(3), key=lambda i: sum(EXAMPLE["us"][i]))
        assert {**chosen.kwargs, "num_warps": chosen.num_warps, "num_stages": 2} == CONFIGS[least]
        with pytest.raises(KeyError, match="not in the autotuner's list"):
            install_timings(tuner, content["key"], [({"BLOCK_T": 8}, 1.0)])


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.mark.gpu
@needs_gpu
def test_A6_a_capture_fails_unprotected_and_passes_after_the_generated_warm_up(exported):
    import subprocess
    import sys

    study, folder = exported
    program = Path(FIXTURES, "programs", "capture.py")
    command = [sys.executable, str(program), str(study.path)]
    unprotected = subprocess.run(command, capture_output=True, text=True)
    assert unprotected.returncode != 0
    assert "capture" in unprotected.stderr
    protected = subprocess.run(
        [*command, str(folder / "warmup.py")], capture_output=True, text=True
    )
    assert protected.returncode == 0, protected.stderr
    assert protected.stdout.split() == ["captured", "replayed"]
