"""Records held against a driver: recorded figures here, the real driver where a GPU is."""

from __future__ import annotations

import pytest
import torch
from conftest import FIXTURES

from occupancy_probe.records import DriverCheck, read_record, write_record
from occupancy_probe.research.driver import COMPARED, compare_with_driver
from occupancy_probe.study import load_study

LIMITS = FIXTURES / "tiny_limits.yaml"


def figures(record):
    [variant] = record.variants
    return {figure: getattr(variant, figure) for figure in COMPARED}


def test_equal_figures_are_equal_and_rejected_arms_are_not_asked(matrix_of, trace_of):
    matrix, trace, asked = matrix_of(LIMITS, "sm_90"), trace_of(LIMITS), []
    by_words = {
        (r.config["num_warps"], v.specialization): figures(r)
        for r in matrix.records.values()
        for v in r.variants
    }

    def ask(specs):
        asked.append(specs)
        return {
            key: {**by_words[s.options.get("num_warps"), s.words()], "local_bytes": 0}
            for key, s in specs.items()
        }

    kernels, missing = compare_with_driver(trace, "sm_90", matrix.records, ask)
    assert missing == []
    assert [k.differs for k in kernels] == [[]] * 5
    assert {k.arm for k in kernels} == {n for n, r in matrix.records.items() if r.verdict == "fits"}
    [specs] = asked
    fitting = {k.arm for k in kernels}
    assert specs.keys() == {
        c.specialization
        for launch in trace.launches
        if launch.target == "sm_90" and launch.arm in fitting
        for c in launch.calls
    }
    assert kernels[0].driver["local_bytes"] == 0


def test_a_difference_and_a_kernel_that_cannot_be_loaded_are_results(matrix_of, trace_of, tmp_path):
    matrix, trace = matrix_of(LIMITS, "sm_90"), trace_of(LIMITS)

    def ask(specs):
        said = {**figures(matrix["baseline"]), "registers": 200}
        return {
            key: "RuntimeError: out of resource" if s.options["num_warps"] == 8 else said
            for key, s in specs.items()
        }

    kernels, missing = compare_with_driver(trace, "sm_90", matrix.records, ask)
    assert {tuple(k.differs) for k in kernels} == {("registers",)}
    assert kernels[0].recorded["registers"] == matrix["baseline"].registers
    assert missing == ["num_warps-8: scale_rows: RuntimeError: out of resource"]
    check = DriverCheck(
        study="tiny", device="h200", device_name="H200", target="sm_90",
        kernels=kernels, missing=missing,
    )  # fmt: skip
    write_record(tmp_path / "h200.json", check)
    assert read_record(tmp_path / "h200.json", DriverCheck) == check


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_the_driver_here_says_what_was_compiled(tmp_path, monkeypatch):
    """Every fitting arm of the tiny and the gather study, through Triton's own loader on each GPU here.

    The cache is empty when the driver is asked: everything is compiled before the GPU is held.
    """
    from conftest import copy_fixture, own_imports

    from occupancy_probe.execute.device import GpuTurn, same_model
    from occupancy_probe.execute.driver_figures import driver_figures
    from occupancy_probe.launch.launches import trace_study
    from research.conftest import compile_matrix

    gpus = same_model()
    for name in ("tiny_limits", "gather"):
        path = copy_fixture(name, tmp_path / name)
        study = load_study(path)
        if gpus[0].target not in study.file.targets:
            pytest.skip(f"{name} has no target {gpus[0].target}")
        with own_imports():
            trace = trace_study(study)
            records = compile_matrix(path, gpus[0].target, tmp_path / name / "out", trace)
        for number, gpu in enumerate(gpus):
            monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / f"cold-{name}-{number}"))
            turn = GpuTurn(gpu)
            kernels, missing = compare_with_driver(
                trace,
                gpu.target,
                records,
                lambda specs, study=study, turn=turn: driver_figures(
                    study.kernel_folder, specs, turn, 120
                ),
            )
            assert missing == []
            assert kernels
            assert {k.arm: k.differs for k in kernels if k.differs} == {}
            assert 0 < turn.held_s < 10
            print(name, gpu.uuid, len(kernels), f"held {turn.held_s:.2f} s")
