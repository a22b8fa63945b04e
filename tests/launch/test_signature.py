"""A study without a launch: arguments with sizes become the launches that a Problem would make."""

from __future__ import annotations

import sys

import pytest
import torch
from conftest import FIXTURES

from occupancy_probe.exc import ProblemError, StudyError
from occupancy_probe.gpu import target
from occupancy_probe.launch.load import load_file
from occupancy_probe.launch.signature import SignatureProblem
from occupancy_probe.launch.trace import recording
from occupancy_probe.study.schema import Signature

CONFIG = {"BLOCK": 64, "num_warps": 8}


@pytest.fixture(scope="module")
def kernels():
    yield load_file(FIXTURES / "stacks.py"), load_file(FIXTURES / "advanced.py")
    for name in ("stacks", "advanced", "advanced_helpers"):
        sys.modules.pop(name, None)


def traced(kernel, arguments, grid, axes=None, config=CONFIG):
    signature = Signature(arguments=arguments, grid=grid)
    problem = SignatureProblem(signature, kernel, config)
    with recording(target("sm_90"), FIXTURES) as noted:
        problem.launch(problem.make_inputs(axes or {}, "meta", 0), config)
    return noted[0]


def test_the_same_as_a_launch_by_hand(kernels):
    stacks, _ = kernels
    arguments = {
        "x": {"dtype": "bf16", "shape": ["rows", 64]},
        "k": "rows - 1",
        "scale": 0.5,
        "stride": "min(16, rows)",
        "y": {"dtype": "fp32", "shape": ["rows * 64"]},
        "DTYPE": {"dtype": "fp32"},
    }
    spec, call = traced(stacks.add, arguments, ["cdiv(rows * 64, BLOCK)"], {"rows": 8})
    x, y = (torch.empty(512, dtype=t, device="meta") for t in (torch.bfloat16, torch.float32))
    import triton.language as tl

    with recording(target("sm_90"), FIXTURES) as noted:
        stacks.add[(8,)](x, 7, 0.5, 8, y, BLOCK=64, DTYPE=tl.float32, num_warps=8)
    assert (spec, call) == noted[0]


def test_heuristics_stay_and_the_autotuner_goes(kernels):
    arguments = {n: {"dtype": "fp16", "shape": [128]} for n in ("x", "y")} | {"n": "rows"}
    spec, call = traced(kernels[0].tuned_twice, arguments, [2], {"rows": 128})
    assert (call.scalars["EVEN"], call.scalars["BLOCK"], spec.options) == (
        True,
        64,
        {"num_warps": 8},
    )


def test_alignment_is_what_the_signature_says(kernels):
    arguments = {
        "x": {"dtype": "fp16", "shape": [128], "align": 8},
        "y": {"dtype": "fp16", "shape": [128]},
        "n": 100,
        "EVEN": False,
    }
    assert (
        traced(kernels[0].bare, arguments, [2])[0]
        .words()
        .startswith("x: *fp16, y: *fp16/16, n: i32,")
    )


def test_descriptors_tuples_none_and_strings(kernels):
    _, advanced = kernels
    tensor = {"dtype": "bf16", "shape": ["rows", 256]}
    tiles = {"M": 64, "N": 128, "K": 64}
    arguments = {
        "a": tensor | {"block_shape": ["M", "K"]},
        "b": tensor | {"block_shape": ["N", "K"]},
        "c": tensor | {"block_shape": ["M", "N"], "strides": [512, 1]},
        "k": 256,
        "SPECIALIZE": False,
    }
    spec, _ = traced(advanced.descriptors, arguments, ["cdiv(rows, M)"], {"rows": 512}, tiles)
    assert spec.signature["c"] == "tensordesc<bf16[64, 128]>"
    flat = {"dtype": "bf16", "shape": [4096]}
    arguments = {
        "pointers": [flat, flat],
        "strides": [1, "rows"],
        "extent": [100, 1],
        "bias": None,
        "SHAPE": [3, {"text": "name"}],
    }
    spec, _ = traced(advanced.tuples, arguments, [1], {"rows": 32})
    assert spec.words() == (
        "pointers: (*bf16/16, *bf16/16), strides: (1, i32/16), extent: (i32, 1), bias=None, BLOCK=64,"
        " SHAPE=(3, name)"
    )


@pytest.mark.parametrize(
    ("name", "triton_name"),
    [
        ("bf16", "bf16"),
        ("float16", "fp16"),
        ("fp8e4nv", "fp8e4nv"),
        ("fp8e5", "fp8e5"),
        ("i1", "u1"),
        ("u8", "u8"),
    ],
)
def test_element_types(kernels, name, triton_name):
    tensor = {"dtype": name, "shape": [128]}
    arguments = {"x": tensor, "y": tensor, "n": 100, "EVEN": False}
    assert traced(kernels[0].bare, arguments, [2])[0].signature["x"] == f"*{triton_name}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"xx": 3}, r"signature\.arguments\.xx: no argument of the kernel; did you mean 'x'\?"),
        (
            {"x": 3, "n": 3},
            r"signature\.arguments: y missing; the kernel takes x, y, n, BLOCK, EVEN",
        ),
    ],
)
def test_arguments_that_do_not_fit_the_kernel(kernels, arguments, words):
    with pytest.raises(ProblemError, match=words):
        SignatureProblem(Signature(arguments=arguments, grid=[1]), kernels[0].tuned_twice, CONFIG)


def test_an_unknown_element_type(kernels):
    tensor = {"dtype": "bf61", "shape": [128]}
    with pytest.raises(ProblemError, match="no element type 'bf61'; known: i1, i8"):
        traced(kernels[0].bare, {"x": tensor, "y": tensor, "n": 1, "EVEN": True}, [1])


def test_a_name_that_no_axis_and_no_key_has(kernels):
    with pytest.raises(
        StudyError, match=r"signature\.arguments\.n: .*rowz.*for a string write \{text: rowz\}"
    ):
        traced(kernels[0].bare, {"x": 1, "y": 1, "n": "rowz", "EVEN": True}, [1], {"rows": 3})


def test_it_only_serves_the_trace(kernels):
    problem = SignatureProblem(
        Signature(arguments={"x": 1, "y": 1, "n": 1}, grid=[1]), kernels[0].tuned_twice, CONFIG
    )
    with pytest.raises(ProblemError, match="no launch: feasibility only"):
        problem.make_inputs({}, "cpu", 0)
