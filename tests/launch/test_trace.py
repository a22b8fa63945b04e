"""A trace is what Triton's own JIT would compile, and compiles elsewhere to the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl
from conftest import FIXTURES
from triton import knobs

from occupancy_probe.gpu import target
from occupancy_probe.launch import forced
from occupancy_probe.launch.driver import compile_only
from occupancy_probe.launch.load import load_file
from occupancy_probe.launch.trace import recording
from occupancy_probe.records import Specialization

COMPILE = """
import json, sys
from pathlib import Path
from occupancy_probe.gpu import target
from occupancy_probe.launch.compile import compile_specialization
from occupancy_probe.records import Specialization
from occupancy_probe.research.resources import parse_ptxas_log
job = json.load(sys.stdin)
spec = Specialization.model_validate(job["spec"])
for name in job["targets"]:
    made = compile_specialization(Path(job["folder"]), spec, target(name))
    Path(job["out"], name).write_bytes(made.cubin)
    assert parse_ptxas_log(made.ptxas_log).registers > 0
    again = compile_specialization(Path(job["folder"]), spec, target(name))
    assert again.cubin == made.cubin
    assert parse_ptxas_log(again.ptxas_log) == parse_ptxas_log(made.ptxas_log)
print(json.dumps({"torch": "torch" in sys.modules}))
"""


@pytest.fixture(scope="module")
def kernels():
    yield load_file(FIXTURES / "stacks.py")
    sys.modules.pop("stacks")


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def traced(launch, name="sm_90"):
    with recording(target(name), FIXTURES) as noted:
        launch()
    return noted


def add(kernels, n=64, k=7, scale=0.5, stride=16, x=None, dtype=tl.float32, **options):
    x = meta(1024) if x is None else x
    return lambda: kernels.add[(n // 64,)](x, k, scale, stride, meta(1024), 64, dtype, **options)


def event_of(launch, name):
    """What Triton itself says it is about to compile, asked without our trace."""
    seen = []

    def hook(**event):
        seen.append(event["compile"])
        return True

    knobs.runtime.jit_cache_hook = hook
    try:
        with compile_only(target(name)):
            launch()
    finally:
        knobs.runtime.jit_cache_hook = None
    return seen[-1]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"k": 1},
        {"k": 32},
        {"k": 2**31},
        {"k": 2**35},
        {"k": -1},
        {"k": 0},
        {"k": True},
        {"k": None},
        {"stride": 1},
        {"stride": 17},
        {"scale": 1},
        {"scale": 1.0},
        {"dtype": tl.bfloat16},
        {"num_warps": 8, "num_stages": 5},
    ],
)
def test_the_trace_is_what_the_jit_would_compile(kernels, values):
    [(spec, _)] = traced(add(kernels, **values))
    x, options = meta(1024), {k: v for k, v in values.items() if k.startswith("num_")}
    v = {"k": 7, "scale": 0.5, "stride": 16, "dtype": tl.float32} | values
    event = event_of(
        lambda: kernels.add.run(
            x, v["k"], v["scale"], v["stride"], meta(1024), 64, v["dtype"],
            grid=(1,), warmup=True, **options,
        ),
        "sm_90",
    )  # fmt: skip
    assert spec.signature == {k: str(t) for k, t in event["signature"].items()}
    assert {tuple(p) for p, _ in spec.constants} == set(event["constants"])
    assert {tuple(p): a for p, a in spec.attributes} == dict(event["configs"][0])
    assert spec.options == options | {}


def words(kernels, **values):
    [(spec, _)] = traced(add(kernels, **values))
    return spec.words()


def test_divisible_by_16_equal_to_1_and_64_bits_are_variants(kernels):
    assert "k: i32," in words(kernels, k=7)
    assert "k: i32/16," in words(kernels, k=32)
    assert "k=1," in words(kernels, k=1)
    assert "k: i64/16," in words(kernels, k=2**35)
    keys = {traced(add(kernels, k=k))[0][0].key for k in (7, 32, 1, 2**35, 2**35 + 1)}
    assert len(keys) == 5
    assert traced(add(kernels, k=7))[0][0].key == traced(add(kernels, k=9))[0][0].key


def test_scalars_dtypes_and_grid_are_noted(kernels):
    [(_, call)] = traced(add(kernels, n=256, k=9))
    assert call.grid == [4]
    assert call.scalars == {"k": 9, "scale": 0.5, "stride": 16, "BLOCK": 64}
    assert call.dtypes == {"x": "torch.float32", "y": "torch.float32"}


def test_a_callable_grid_sees_the_meta_parameters(kernels):
    def launch():
        grid = lambda meta: (triton.cdiv(1000, meta["BLOCK"]), 2)  # noqa: E731
        kernels.add[grid](meta(1024), 7, 0.5, 16, meta(1024), BLOCK=128, DTYPE=tl.float32)

    assert traced(launch)[0][1].grid == [8, 2]


def test_nothing_is_compiled_and_the_process_is_left_as_it_was(kernels, triton_cache):
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    before = (JITFunction.run, driver._active, knobs.runtime.jit_cache_hook)
    files = set(triton_cache.rglob("*"))
    with pytest.raises(ZeroDivisionError):
        traced(lambda: (add(kernels)(), 1 / 0))
    assert (JITFunction.run, driver._active, knobs.runtime.jit_cache_hook) == before
    assert set(triton_cache.rglob("*")) == files


def test_compiled_elsewhere_without_torch_to_the_same_bytes(kernels, tmp_path, monkeypatch):
    x = meta(1024, dtype=torch.bfloat16)
    [(spec, _)] = traced(add(kernels, x=x, k=2**35 + 1, num_warps=2))
    job = {
        "spec": spec.model_dump(),
        "folder": str(FIXTURES),
        "targets": ["sm_90", "sm_120"],
        "out": str(tmp_path),
    }
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "other-cache"))
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        input=json.dumps(job),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"torch": False}
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "own-cache"))
    made = {}
    for name in job["targets"]:
        with compile_only(target(name)):
            made[name] = kernels.add.warmup(
                x, 2**35 + 1, 0.5, 16, meta(1024), 64, tl.float32, grid=(1,), num_warps=2
            ).asm["cubin"]
        assert (tmp_path / name).read_bytes() == made[name]
    assert made["sm_90"] != made["sm_120"], "two targets must never share a binary"


CONFIG = {"BLOCK": 32, "num_warps": 8, "num_stages": 3}


@pytest.mark.parametrize("stack", ["tuned_over_guessed", "guessed_over_tuned", "tuned_twice"])
@pytest.mark.parametrize("n", [128, 100])
def test_forced_replaces_the_autotuner_and_keeps_heuristics(kernels, stack, n):
    kernel = getattr(kernels, stack)
    [(spec, call)] = traced(lambda: forced(kernel, CONFIG)[(4,)](meta(n), meta(n), n))
    assert spec.kernel == "bare"
    assert spec.options == {"num_warps": 8, "num_stages": 3}
    assert (call.scalars["BLOCK"], call.scalars["EVEN"]) == (32, n == 128 and n % 32 == 0)


def test_forced_on_a_bare_kernel(kernels):
    config = {**CONFIG, "EVEN": True}
    [(spec, call)] = traced(lambda: forced(kernels.bare, config)[(4,)](meta(64), meta(64), 64))
    assert call.scalars["BLOCK"] == 32
    assert spec.options == {"num_warps": 8, "num_stages": 3}


def test_a_specialization_survives_its_file(kernels):
    [(spec, _)] = traced(add(kernels, k=None, dtype=tl.bfloat16))
    back = Specialization.model_validate(json.loads(json.dumps(spec.model_dump())))
    assert back.key == spec.key
