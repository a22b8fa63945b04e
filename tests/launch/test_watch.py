"""Everything is compiled before the GPU is held, and what is not is an error that names it."""

from __future__ import annotations

import pytest
import torch
from conftest import FIXTURES, own_imports

from occupancy_probe.gpu import target
from occupancy_probe.launch import unwrap
from occupancy_probe.launch.driver import compile_only
from occupancy_probe.launch.load import load_problem
from occupancy_probe.launch.watch import CompiledWhileHeld, compile_launches, nothing_compiles

AXES = {"rows": 4, "n": 500}
CONFIG = {"BLOCK": 512, "num_warps": 2, "num_stages": 2}


def compile_like_a_launch(config):
    """What a launch on the GPU compiles or finds, up to loading it; the module is imported anew."""
    with own_imports(), compile_only(target("sm_90")):
        kernel = unwrap(load_problem(FIXTURES / "tiny", "ScaleRows", {}).kernel)
        x = torch.zeros(4, 500, device="meta")
        return kernel.run(x, torch.empty_like(x), 2.5, 500, grid=(4,), warmup=True, **config)


def test_what_was_compiled_before_is_found_while_the_gpu_is_held():
    with own_imports():
        problem = load_problem(FIXTURES / "tiny", "ScaleRows", {})
        compile_launches(problem, AXES, CONFIG, target("sm_90"), 132)
    with nothing_compiles(lambda: "r4, arm w2"):
        assert compile_like_a_launch(CONFIG) is not None


def test_a_compile_while_the_gpu_is_held_names_arm_and_kernel():
    with (
        nothing_compiles(lambda: "r4, arm w16"),
        pytest.raises(CompiledWhileHeld, match="r4, arm w16: scale_rows was compiled while"),
    ):
        compile_like_a_launch({**CONFIG, "num_warps": 16})


def test_outside_compiling_is_free_again():
    from triton import knobs

    with nothing_compiles(lambda: ""):
        assert knobs.compilation.listener is not None
    assert knobs.compilation.listener is None
