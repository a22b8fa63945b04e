"""Records held against a driver: recorded figures here, the real driver where a GPU is."""

from __future__ import annotations

import pytest
import torch
from conftest import FIXTURES

from occupancy_probe.gpu import present, target
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

    def ask(spec):
        asked.append(spec)
        found = by_words[spec.options.get("num_warps"), spec.words()]
        return {**found, "local_bytes": 0}

    kernels, missing = compare_with_driver(trace, "sm_90", matrix.records, ask)
    assert missing == []
    assert [k.differs for k in kernels] == [[]] * 5
    assert {k.arm for k in kernels} == {n for n, r in matrix.records.items() if r.verdict == "fits"}
    assert len(asked) == len({s.key for s in asked})
    assert kernels[0].driver["local_bytes"] == 0


def test_a_difference_and_a_kernel_that_cannot_be_loaded_are_results(matrix_of, trace_of, tmp_path):
    matrix, trace = matrix_of(LIMITS, "sm_90"), trace_of(LIMITS)

    def ask(spec):
        if spec.options["num_warps"] == 8:
            raise RuntimeError("out of resource")
        return {**figures(matrix["baseline"]), "registers": 200}

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
def test_the_driver_here_says_what_was_compiled(tmp_path):
    """Every fitting arm of the tiny and the gather study, through Triton's own loader."""
    from conftest import copy_fixture, own_imports

    from occupancy_probe.launch.launches import trace_study
    from occupancy_probe.launch.loaded import ask_driver
    from research.conftest import compile_matrix

    gpu = present()
    assert gpu is not None
    for name in ("tiny_limits", "gather"):
        path = copy_fixture(name, tmp_path / name)
        study = load_study(path)
        if gpu.target not in study.file.targets:
            pytest.skip(f"{name} has no target {gpu.target}")
        with own_imports():
            trace = trace_study(study)
            records = compile_matrix(path, gpu.target, tmp_path / name / "out", trace)
            kernels, missing = compare_with_driver(
                trace,
                gpu.target,
                records,
                lambda spec, study=study: ask_driver(study.kernel_folder, spec, target(gpu.target)),
            )
        assert missing == []
        assert kernels
        assert {k.arm: k.differs for k in kernels if k.differs} == {}
