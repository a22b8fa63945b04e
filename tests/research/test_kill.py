"""A run that is killed at any moment leaves no compiler behind and loses only what was in flight."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import copy_fixture

from occupancy_probe.launch.launches import trace_study
from occupancy_probe.records import Feasibility, read_record, write_record
from occupancy_probe.study import load_study

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own call is Linux'")


@pytest.fixture
def command(tmp_path):
    """`command()` starts the compile stage of the hostile study, with a cache of its own."""
    study = copy_fixture("hostile", tmp_path / "study")
    results = tmp_path / "results"
    write_record(results / "trace.json", trace_study(load_study(study)))
    words = [
        "compile",
        str(study),
        "--results",
        str(results),
        "--target",
        "sm_90",
        "--workers",
        "2",
    ]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "occupancy_probe", *words],
            env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start, results / "feasibility" / "sm_90", tmp_path / "cache"


def compiled(cache):
    """When each binary in Triton's cache was made; one counts from its group file on, written last."""
    done = [
        (Path(place), files)
        for place, _, files in os.walk(cache)
        if any(f.startswith("__grp__") for f in files)
    ]
    made = (place / f for place, files in done for f in files if f.endswith(".cubin"))
    return {p.parent.name: p.stat().st_mtime_ns for p in made}


def test_killed_and_started_again(command):
    start, records, cache = command
    first = start()
    deadline = time.monotonic() + 60
    while not (records / "after.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)  # `hangs` is still in flight
    family = psutil.Process(first.pid).children(recursive=True)
    assert sum("spawn_main" in " ".join(p.cmdline()) for p in family) == 2
    os.kill(first.pid, signal.SIGKILL)
    assert not psutil.wait_procs(family, timeout=10)[1], "compilers outlive the command"
    first.wait()
    first.stdout.close()
    kept = {p.name: p.read_bytes() for p in records.glob("*.json")}
    assert {"baseline.json", "after.json"} <= set(kept) and "hangs.json" not in kept
    made = compiled(cache)
    assert len(made) == 2

    second = start()
    said, _ = second.communicate(timeout=120)
    assert second.returncode == 0, said
    assert compiled(cache) == made
    assert read_record(records / "hangs.json", Feasibility).reasons[0].limit == "compile time"
    for name in ("baseline.json", "after.json"):
        before = Feasibility.model_validate_json(kept[name])
        after = read_record(records / name, Feasibility)
        assert after.variants == before.variants and after.verdict == before.verdict


@pytest.mark.parametrize("known", [0, 1, 4, 9])
def test_whenever_it_is_killed_nothing_that_was_compiled_is_compiled_again(tmp_path, known):
    study = copy_fixture("tiny_limits", tmp_path / "study")
    results, cache = tmp_path / "results", tmp_path / "cache"
    write_record(results / "trace.json", trace_study(load_study(study)))
    words = ["compile", str(study), "--results", str(results), "--workers", "2"]
    command = [sys.executable, "-m", "occupancy_probe", *words]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    first = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    while first.poll() is None and len(compiled(cache)) < known:
        time.sleep(0.01)
    first.kill()
    first.wait()
    made = compiled(cache)
    assert len(made) >= known
    subprocess.run(command, env=environment, check=True, capture_output=True)
    after = compiled(cache)
    assert {key: after[key] for key in made} == made
    for target_name in ("sm_90", "sm_120"):
        folder = results / "feasibility" / target_name
        found = [read_record(p, Feasibility).verdict for p in sorted(folder.glob("*.json"))]
        assert sorted(found) == ["fits"] * 5 + ["rejected"] * 2
