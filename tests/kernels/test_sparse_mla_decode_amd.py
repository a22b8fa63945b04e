"""Where there is no PTX the split kernel takes plain Triton; NVIDIA keeps its assembly."""

from __future__ import annotations

from pathlib import Path

import pytest

from occupancy_probe.gpu import target
from occupancy_probe.launch.compile import compile_specialization
from occupancy_probe.launch.device import planned_sm_count
from occupancy_probe.launch.launches import study_problem
from occupancy_probe.launch.trace import recording
from occupancy_probe.research.machine import count, read_amdgcn
from occupancy_probe.research.resources import parse_amdgcn
from occupancy_probe.study import load_study

STUDY = Path(__file__).parents[2] / "studies" / "dsv4_attn_amd.yaml"
PTX = "cvt.rn.f16x2.e4m3x2"


@pytest.fixture
def binary(imports):
    def compiled(target_name):
        study, gpu = load_study(STUDY), target(target_name)
        problem = study_problem(study)
        config = {"BLOCK_T": 16, "num_warps": 4, "num_stages": 1}
        with planned_sm_count(256), recording(gpu, study.kernel_folder) as noted:
            problem.launch(problem.make_inputs({"concurrency": 48}, "meta", 0), config)
        return compile_specialization(study.kernel_folder, noted[0][0], gpu)

    return compiled


def test_gfx950_needs_no_ptx(binary):
    made = binary("gfx950")
    text = made.texts["amdgcn"]
    assert "e4m3x2" not in text
    used, code = parse_amdgcn(text), count(read_amdgcn(text))
    assert 0 < used.registers <= target("gfx950").max_registers_per_thread
    assert used.spill_store_bytes == 0
    assert any(opcode.startswith("v_mfma") for opcode in code.mma)
    assert code.loop is not None
    assert code.loop.mma > 0
    assert made.shared_bytes <= target("gfx950").shared_per_block_bytes


def test_sm_120_keeps_its_assembly(binary):
    assert PTX in binary("sm_120").texts["ptx"]


def test_the_study_is_for_amd_alone():
    study = load_study(STUDY)
    assert {t.backend for t in study.targets} == {"hip"}
    assert all(t.device for t in study.targets)
