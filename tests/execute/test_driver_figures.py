"""Asking a driver: pinned to the GPU of the job, and nothing is compiled while it is held."""

from __future__ import annotations

import re
import time
from argparse import Namespace
from pathlib import Path

import pytest
from conftest import FIXTURES

from execute.conftest import simulated
from occupancy_probe.exc import DeviceError
from occupancy_probe.execute import device as d
from occupancy_probe.execute import driver_figures as f
from occupancy_probe.records import DriverCheck, Feasibility, Variant, read_record, write_record
from occupancy_probe.study import load_study

WORKER = "execute.driver_answers"
ROOT = Path(__file__).parents[2]
TINY = FIXTURES / "tiny.yaml"


class NotedTurn(d.GpuTurn):
    """When it began and ended."""

    def enter(self):
        found = super().enter()
        self.began = time.time()
        return found

    def leave(self):
        if self._since is not None:
            self.ended = time.time()
        super().leave()


@pytest.fixture
def specs(trace_of):
    trace = trace_of(TINY)
    used = {c.specialization for t in trace.launches if t.target == "sm_90" for c in t.calls}
    return {key: trace.specializations[key] for key in sorted(used)}


@pytest.fixture
def notes(workers, tmp_path):
    """What the simulated driver noted: (what, GPU, time); the cache is empty."""
    workers.setenv("ANSWERS", str(tmp_path / "answers"))
    workers.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    workers.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    return lambda: [
        (what, gpu, float(at))
        for what, gpu, at in map(str.split, (tmp_path / "answers").read_text().splitlines())
    ]


def test_with_a_cold_cache_all_is_compiled_before_the_gpu_is_held(specs, notes, tmp_path):
    turn, seen = NotedTurn(simulated(1), tmp_path), []
    folder = load_study(TINY).kernel_folder
    found = f.driver_figures(folder, specs, turn, 60, lambda *a: seen.append(a[:2]), worker=WORKER)
    by_warps = {specs[key].options["num_warps"]: said for key, said in found.items()}
    assert by_warps[8] == "RuntimeError: out of resource"
    assert all(
        set(s) == {"registers", "shared_bytes", "ctas_per_sm"}
        for w, s in by_warps.items()
        if w != 8
    )
    assert len(found) == len(specs) == seen[-1][0] == seen[-1][1]
    asked = notes()
    assert [what for what, _, _ in asked] == ["context", *["ask"] * len(specs)]
    assert {gpu for _, gpu, _ in asked} == {"GPU-1"}
    made = [p.stat().st_mtime for p in (tmp_path / "cache").rglob("*.cubin")]
    assert len(made) == len(specs)
    assert max(made) < turn.began and asked[0][2] < turn.began
    assert turn.began < asked[1][2] and asked[-1][2] < turn.ended
    assert turn.held_s == pytest.approx(turn.ended - turn.began, abs=0.05)


def test_a_compile_while_the_gpu_is_held_fails_the_run(specs, notes, workers, tmp_path):
    workers.setenv("LATE_COMPILE", "1")
    turn = d.GpuTurn(simulated(0), tmp_path)
    with pytest.raises(DeviceError, match="asking sm_90's driver: scale_rows was compiled while"):
        f.driver_figures(load_study(TINY).kernel_folder, specs, turn, 60, worker=WORKER)
    assert not d._taken(turn._path)


def test_a_kernel_that_does_not_compile_is_its_own_result(specs, notes, tmp_path):
    key, spec = next((k, s) for k, s in specs.items() if s.options["num_warps"] != 8)
    broken = {"bad": spec.model_copy(update={"file": "no_such_file.py"}), key: spec}
    turn = d.GpuTurn(simulated(0), tmp_path)
    found = f.driver_figures(load_study(TINY).kernel_folder, broken, turn, 60, worker=WORKER)
    assert "no_such_file.py: no such Python file" in found["bad"]
    assert found[key]["registers"] == 32


@pytest.fixture
def gpus(workers, trace_of, tmp_path):
    """Two simulated GPUs, and results in ``tmp_path`` of which the baseline fits."""
    study, gpus = load_study(TINY), [simulated(0), simulated(1)]
    workers.setattr(d, "same_model", lambda: gpus)
    workers.setattr(d, "_lock_path", lambda d, kind, locks: tmp_path / f"{d.uuid}.{kind}")
    workers.setattr(f, "WORKER", WORKER)
    trace, depends = trace_of(TINY), {"launch": study.launch_digest}
    write_record(tmp_path / "trace.json", trace)
    [call] = next(t for t in trace.launches if t.arm == "baseline" and t.target == "sm_90").calls
    spec = trace.specializations[call.specialization]
    config = study.arm("baseline").config
    variant = Variant(
        kernel=spec.kernel, specialization=spec.words(), workloads=["r4"], shared_bytes=0,
        tensor_memory_columns=0, threads=64, registers=32, stack_bytes=0, spill_store_bytes=0,
        spill_load_bytes=0, ctas_per_sm=3, warps_per_sm=6, occupancy=0.1, limiter=["CTAs"],
        code_sha256="c", compile_seconds=1.0,
    )  # fmt: skip
    write_record(
        tmp_path / "feasibility" / "sm_90" / "baseline.json",
        Feasibility(
            study="tiny", depends=depends, arm="baseline", config=config, target="sm_90",
            verdict="fits", variants=[variant],
        ),
    )  # fmt: skip
    return gpus


def test_a_gpu_that_gives_no_context_ends_the_check_and_nothing_is_recorded(
    gpus, notes, workers, tmp_path
):
    from occupancy_probe.commands import compare_driver

    workers.setenv("NO_CONTEXT", "1")
    said = r"NVIDIA H200 GPU-0: no kernel .*CUDA error: out of memory.*nvidia-smi"
    with pytest.raises(DeviceError, match=said):
        compare_driver.run(Namespace(study=TINY, results=tmp_path))
    assert not (tmp_path / "driver").exists()


def test_nothing_to_ask_is_no_fault_of_the_gpu(tmp_path):
    turn = d.GpuTurn(simulated(0), tmp_path)
    assert f.driver_figures(load_study(TINY).kernel_folder, {}, turn, 60) == {}


def test_the_check_is_stale_when_the_code_that_asks_changes():
    rule = (ROOT / "rules" / "research.smk").read_text().split("rule compare_driver:")[1]
    watched = set(re.findall('"([^"]+)"', rule.split("params:")[1].split("shell:")[0]))
    modules = {f"execute/{p.name}" for p in Path(f.__file__).parent.glob("driver_*.py")}
    assert len(modules) == 3 and modules <= watched


def test_a_check_beside_another_job_asks_the_other_gpu_and_records_which(
    gpus, notes, tmp_path, capsys
):
    from occupancy_probe.commands import compare_driver

    path = tmp_path / "driver" / "nvidia-h200.json"

    def checked() -> str | None:
        compare_driver.run(Namespace(study=TINY, results=tmp_path))
        record = read_record(path, DriverCheck)
        assert [k.differs for k in record.kernels] == [["ctas_per_sm"]]
        assert record.missing == []
        return record.device_uuid

    with d.assigned(gpus):  # another job has the first
        uuids = [checked()]
    uuids.append(checked())
    assert uuids == ["GPU-1", "GPU-0"]
    assert [gpu for what, gpu, _ in notes() if what == "ask"] == uuids
    assert "NVIDIA H200 GPU-1: 0 of 1 kernels as the driver says" in capsys.readouterr().out
