"""Whatever a launch passes: trace → JSON → compile elsewhere is exactly what the JIT compiles."""

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
from triton.tools.tensor_descriptor import TensorDescriptor

from occupancy_probe.exc import ProblemError
from occupancy_probe.gpu import target
from occupancy_probe.launch.driver import compile_only
from occupancy_probe.launch.load import load_file
from occupancy_probe.launch.trace import Origin, recording
from occupancy_probe.records import Specialization

COMPILE = """
import json, sys
from pathlib import Path
from occupancy_probe.gpu import target
from occupancy_probe.launch.compile import compiled_kernel
from occupancy_probe.records import Specialization
for line in sys.stdin:
    job = json.loads(line)
    spec = Specialization.model_validate(job["spec"])
    made = compiled_kernel(Path(job["folder"]), spec, target(job["target"]))
    Path(job["out"]).write_text(made.asm["ptx"])
    print(json.dumps([made.hash, made.metadata.num_warps, "torch" in sys.modules]))
"""


@pytest.fixture(scope="module")
def kernels():
    yield load_file(FIXTURES / "advanced.py")
    for name in ("advanced", "advanced_helpers"):
        sys.modules.pop(name, None)


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


def descriptor(rows, columns, block):
    return TensorDescriptor.from_tensor(meta(rows, columns), block)


def launches(k):
    """Name → target, kernel, arguments, options."""
    a, b, c = (descriptor(256, 256, block) for block in ([64, 64], [128, 64], [64, 128]))
    tiles = {"M": 64, "N": 128, "K": 64}
    x, y = meta(4096), meta(4096)
    names, extent = k.helpers, k.Extent(1000, 1)
    return {
        "host descriptors": ("sm_90", k.descriptors, (a, b, c, 256), {**tiles, "SPECIALIZE": False}),
        "rewritten without TMA": ("sm_80", k.descriptors, (a, b, c, 256), {**tiles, "SPECIALIZE": False}),
        "warp specialization": ("sm_100", k.descriptors, (a, b, c, 256), {**tiles, "SPECIALIZE": True}),
        "device descriptors": ("sm_90", k.made_on_the_device, (x, y, 64, 64), {"BLOCK": 32}),
        "maxnreg": ("sm_90", k.made_on_the_device, (x, y, 64, 128), {"BLOCK": 32, "maxnreg": 64}),
        "num_ctas": ("sm_90", k.constants, (x, y, names.relu, names.Activation.NONE, tl.float32),
                     {"BLOCK": 512, "num_ctas": 2}),
        "tuples": ("sm_120", k.tuples, ((x, y), (1, 17), extent, None), {"BLOCK": 64, "SHAPE": (3, 5)}),
        "tuples with a bias": ("sm_120", k.tuples, ((x, y), (2, 16), k.Extent(2**31, 7), x),
                               {"BLOCK": 64, "SHAPE": (3, tl.constexpr(5))}),
        "constants": ("sm_120", k.constants, (x, y, names.clamp, names.Activation.RELU, tl.float16),
                      {"BLOCK": tl.constexpr(128), "num_warps": 2}),
    }  # fmt: skip


@pytest.fixture(scope="module")
def both_ways(kernels, tmp_path_factory):
    """By name: what the JIT made, what another process made of the trace, the trace itself."""
    folder = tmp_path_factory.mktemp("elsewhere")
    jobs, jit, specs = [], {}, {}
    for number, (name, (arch, kernel, args, kwargs)) in enumerate(launches(kernels).items()):
        with recording(target(arch), FIXTURES) as noted:
            kernel[(2, 2)](*args, **kwargs)
        [(spec, call)] = noted
        text = json.dumps(spec.model_dump())
        assert Specialization.model_validate(json.loads(text)) == spec
        specs[name] = spec, call
        out = folder / str(number)
        jobs.append(
            {"spec": spec.model_dump(), "folder": str(FIXTURES), "target": arch, "out": str(out)}
        )
        with compile_only(target(arch)):
            made = kernel.warmup(*args, grid=(2, 2), **kwargs)
        jit[name] = made.hash, made.metadata.num_warps, made.asm["ptx"], out
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        input="".join(json.dumps(job) + "\n" for job in jobs),
        env={**os.environ, "TRITON_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {n: (jit[n], a, *specs[n]) for n, a in zip(jit, answers, strict=True)}


NAMES = [
    "host descriptors", "rewritten without TMA", "warp specialization", "device descriptors",
    "maxnreg", "num_ctas", "tuples", "tuples with a bias", "constants",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_same_key_and_the_same_ptx(both_ways, name):
    (hashed, warps, ptx, out), (other, other_warps, torch_loaded), _, _ = both_ways[name]
    assert (other, other_warps) == (hashed, warps)
    assert (
        out.read_text() == ptx
    )  # not the cubin: ptxas gives other registers from run to run on sm_100
    assert not torch_loaded


def test_every_launch_was_compared(kernels):
    assert list(launches(kernels)) == NAMES


def test_what_is_noted_of_descriptors_tuples_and_constants(both_ways):
    words = {name: spec.words() for name, (_, _, spec, _) in both_ways.items()}
    assert words["host descriptors"].startswith(
        "a: tensordesc<bf16[64, 64]>, b: tensordesc<bf16[128, 64]>"
    )
    assert words["tuples"] == (
        "pointers: (*bf16/16, *bf16/16), strides: (1, i32), extent: (i32, 1), bias=None, BLOCK=64, SHAPE=(3, 5)"
    )
    assert words["tuples with a bias"].startswith(
        "pointers: (*bf16/16, *bf16/16), strides: (i32, i32/16), extent: (i64/16, i32), bias: *bf16/16"
    )
    assert words["constants"] == (
        "x: *bf16/16, y: *bf16/16, FUNCTION=clamp, KIND=Activation.RELU, DTYPE=fp16, BLOCK=128"
    )
    assert both_ways["host descriptors"][3].dtypes == dict.fromkeys("abc", "torch.bfloat16")
    assert both_ways["maxnreg"][2].options == {"maxnreg": 64}


def test_warps_that_specialization_adds_are_counted(both_ways):
    assert both_ways["warp specialization"][0][1] > both_ways["host descriptors"][0][1] == 4


def test_files_of_helpers_are_noted_and_triton_own_are_not(kernels):
    origin = Origin(FIXTURES)
    with recording(target("sm_90"), origin):
        kernels.constants[(1,)](
            meta(64),
            meta(64),
            kernels.helpers.relu,
            kernels.helpers.Activation.NONE,
            tl.float32,
            64,
        )
    assert sorted(p.name for p in origin.sources) == ["advanced.py", "advanced_helpers.py"]


def test_a_helper_in_another_file_changes_the_key(tmp_path):
    def key(body):
        folder = tmp_path / str(len(body))
        folder.mkdir()
        (folder / "far.py").write_text(
            f"import triton\n@triton.jit\ndef far(x):\n    return {body}\n"
        )
        (folder / "near.py").write_text(
            "import triton, triton.language as tl\nfrom far import far\n"
            "@triton.jit\ndef near(x):\n    tl.store(x, far(tl.load(x)))\n"
        )
        sys.path.insert(0, str(folder))
        try:
            near = load_file(folder / "near.py").near
            with recording(target("sm_90"), folder) as noted:
                near[(1,)](meta(64))
        finally:
            sys.path.remove(str(folder))
            for name in ("near", "far"):
                sys.modules.pop(name)
        return noted[0][0].key

    assert key("x + 1") != key("x + 22")


def test_a_kernel_that_no_import_finds_is_refused(kernels):
    with (
        recording(target("sm_90"), FIXTURES),
        pytest.raises(
            ProblemError, match=r"factory\.<locals>\.made_inside .* define it at the top"
        ),
    ):
        kernels.factory()[(1,)](meta(64))


def test_a_constant_without_a_json_form_is_refused(kernels):
    with (
        recording(target("sm_90"), FIXTURES),
        pytest.raises(ProblemError, match=r"passes .* \(frozenset\) as a constant"),
    ):
        kernels.constants[(1,)](meta(64), meta(64), frozenset((1,)), 1, tl.float32, 64)


def test_debug_of_the_decorator_is_an_option(tmp_path):
    (tmp_path / "checked.py").write_text(
        "import triton, triton.language as tl\n@triton.jit(debug=True)\ndef checked(x):\n    tl.store(x, 1.0)\n"
    )
    kernel = load_file(tmp_path / "checked.py").checked
    with recording(target("sm_90"), tmp_path) as noted:
        kernel[(1,)](meta(64))
    assert noted[0][0].options == {"debug": True}
    sys.modules.pop("checked")


assert triton  # the fixtures' kernels need it first
