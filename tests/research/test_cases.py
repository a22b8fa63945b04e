"""Cases from practice on real compiles: tensor memory, depth, the dot's minimum, neighbours, spills."""

from __future__ import annotations

import pytest
from conftest import FIXTURES, copy_fixture

from occupancy_probe.gpu import target
from occupancy_probe.launch.launches import trace_study
from occupancy_probe.records import ArmTrace, Call, Specialization
from occupancy_probe.research.feasibility import Compiled, judge_arm
from occupancy_probe.research.matrix import one_line, summary
from occupancy_probe.study import load_study
from research.conftest import compile_matrix

ACCUMULATORS, GATHER = FIXTURES / "accumulators.yaml", FIXTURES / "gather.yaml"
FP8, LIMITS = FIXTURES / "gemm_fp8.yaml", FIXTURES / "tiny_limits.yaml"


def test_F3_the_third_accumulator_overflows_tensor_memory(matrix_of):
    matrix = matrix_of(ACCUMULATORS, "sm_100")
    arms = [matrix["baseline"], matrix["COUNT-2"], matrix["COUNT-3"]]
    assert [r.tensor_memory_columns for r in arms] == [256, 512, 768]
    assert [r.verdict for r in arms] == ["fits", "fits", "rejected"]
    over, trap = arms[2].reasons
    assert (over.limit, over.required, over.allowed) == ("tensor memory", 768, 512)
    assert "only a trap" in trap.text
    assert arms[2].registers < 16 < arms[1].registers
    assert arms[2].code is None
    assert arms[2].changed == arms[2].coverage == []
    assert arms[1].code.mma["UTCHMMA"] == 2 * arms[0].code.mma["UTCHMMA"]


def test_F5_a_gather_is_one_tile_ahead_at_2_3_and_4_stages_and_two_at_5(matrix_of):
    matrix = matrix_of(GATHER, "sm_120")
    stages = [matrix["baseline"], *(matrix[f"num_stages-{n}"] for n in (3, 4, 5))]
    assert [r.code.prefetch_depth for r in stages] == [1, 1, 1, 2]
    assert stages[1].code_sha256 == stages[2].code_sha256
    assert stages[2].same_code_as == "num_stages-3"
    assert stages[2].changed == ["num_stages 3 → 4: no change in code"]
    assert stages[3].changed[0] == "num_stages 2 → 5: prefetch depth 1 → 2"
    tile = 32 * 128 * 2
    assert stages[3].code.in_flight_bytes - stages[0].code.in_flight_bytes >= tile
    assert matrix["num_stages-1"].code.prefetch_depth == 0


def test_what_the_machine_code_does(matrix_of):
    code = matrix_of(GATHER, "sm_120")["baseline"].code
    assert code.async_copies.keys() == {"LDGSTS"}
    assert code.barriers["BAR"] > 0
    [opcode] = code.mma
    assert opcode.startswith("HMMA.16816")
    assert code.loop_mma == code.mma[opcode] == 16  # one warp's share of two dots of 16x128x32
    assert code.loop_flop == 2 * 2 * 16 * 128 * 32
    assert code.loop_instructions < code.instructions
    assert code.instructions_per_kflop == pytest.approx(
        code.loop_instructions * 4 / code.loop_flop * 1e3, abs=1e-3
    )


def test_work_of_an_unrolled_loop_is_counted_by_its_matrix_multiplications(matrix_of):
    one, unrolled = (matrix_of(GATHER, "sm_120")[n].code for n in ("baseline", "num_stages-1"))
    assert unrolled.loop_mma / one.loop_mma == unrolled.loop_flop / one.loop_flop


def test_F7_the_target_says_once_what_it_does_not_support(matrix_of):
    found = summary(target("sm_80"), matrix_of(FP8, "sm_80").records)
    assert found["unsupported"] == ["baseline", "s4"]
    assert found["rejected"] == []
    because = found["unsupported_because"]
    assert because.startswith("type fp8e4nv not supported in this architecture")
    assert one_line(found) == f"sm_80: supports none of the arms: {because}"


def test_F8_below_the_dots_minimum_the_rule_and_the_version_are_named(matrix_of):
    import triton

    matrix = matrix_of(GATHER, "sm_120")
    assert matrix["BLOCK_T-16"].verdict == "fits"
    record = matrix["BLOCK_T-8"]
    assert record.verdict == "rejected"
    [reason] = record.reasons
    assert "K ≥ 16" in reason.text
    assert f"Triton {triton.__version__}" in reason.text
    assert [(n.change, n.verdict) for n in record.neighbours] == [("BLOCK_T 8 → 16", "fits")]


def test_F9_neighbours_of_a_rejected_arm_are_compiled(matrix_of):
    record = matrix_of(FP8, "sm_120")["s4"]
    fitting = {n.change: n for n in record.neighbours if n.verdict == "fits"}
    assert fitting["num_stages 4 → 3"].shared_bytes == 98_304
    assert fitting.keys() >= {"num_stages 4 → 3", "BLOCK_N 256 → 128", "BLOCK_K 128 → 64"}
    half_m = next(n for n in record.neighbours if n.change == "BLOCK_M 128 → 64")
    assert (half_m.verdict, half_m.shared_bytes) == ("rejected", 122_880)
    assert "122,880 B > 101,376 B" in half_m.reason
    allowed = target("sm_120").shared_per_block_bytes
    assert all(n.shared_bytes <= allowed and n.ctas_per_sm >= 1 for n in fitting.values())
    assert matrix_of(FP8, "sm_120")["baseline"].neighbours is None


def test_F9_warps_have_neighbours_too(matrix_of):
    matrix = matrix_of(LIMITS, "sm_90")
    said = {
        name: [(n.change, n.verdict) for n in matrix[name].neighbours]
        for name in ("num_warps-6", "num_warps-64")
    }
    assert said == {
        "num_warps-6": [("num_warps 6 → 4", "fits"), ("num_warps 6 → 8", "fits")],
        "num_warps-64": [("num_warps 64 → 32", "fits")],
    }


def test_neighbours_that_cannot_be_traced_cost_no_record_and_are_tried_again(tmp_path, monkeypatch):
    from occupancy_probe.research.workers import Workers

    def gone(*_):
        raise OSError("no Problem today")

    path, folder = copy_fixture("tiny_limits", tmp_path / "study"), tmp_path / "out"
    trace = trace_study(load_study(path))
    with monkeypatch.context() as broken:
        broken.setattr(Workers, "call", gone)
        record = compile_matrix(path, "sm_90", folder, trace)["num_warps-64"]
    assert (record.verdict, record.neighbours) == ("rejected", None)
    assert record.warnings == ["neighbours could not be tried: OSError: no Problem today"]
    record = compile_matrix(path, "sm_90", folder, trace)["num_warps-64"]
    assert [n.change for n in record.neighbours] == ["num_warps 64 → 32"]
    assert record.warnings == []


def judged(grids, ctas_per_sm, num_warps=4):
    spec = Specialization(
        file="k.py", kernel="k", signature={}, constants=[], attributes=[], options={}
    )
    figures = {
        "shared_bytes": 0, "tensor_memory_columns": 0, "threads": 32 * num_warps, "registers": 64,
        "stack_bytes": 0, "spill_store_bytes": 0, "spill_load_bytes": 0,
        "ctas_per_sm": ctas_per_sm, "warps_per_sm": ctas_per_sm * num_warps, "occupancy": 0.1,
        "limiter": ["registers"], "code_sha256": "c", "compile_seconds": 0.0,
    }  # fmt: skip
    traces = [
        ArmTrace(
            target="sm_120", arm="a", workload=w, calls=[Call(specialization="x", grid=list(g))]
        )
        for w, g in grids.items()
    ]
    return judge_arm(
        "s", "k", ("a", {}), target("sm_120"), traces, {"x": spec}, {"x": Compiled(figures)},
        {"depends": {}, "versions": {}},
    )  # fmt: skip


def test_F10_occupancy_cannot_matter_on_8_ctas_and_192_make_a_second_wave():
    small, large = judged({"c8": (8,), "c48": (48, 1, 4)}, 1).coverage
    assert (small.device, small.ctas, large.ctas) == ("RTX PRO 6000 Blackwell", 8, 192)
    assert (large.waves > 1, round(large.fill, 2)) == (True, 0.51)
    two = judged({"c8": (8,), "c48": (48, 1, 4)}, 2).coverage
    assert [c.resident_ctas_per_sm for c in two] == [1, 2]
    assert [c.grid_limited for c in two] == [True, False]


def test_F11_a_spill_warns_with_its_bytes_and_never_rejects(matrix_of):
    record = matrix_of(GATHER, "sm_120")["spills"]
    assert record.verdict == "fits"
    assert record.spill_store_bytes > 0
    [warning] = record.warnings
    assert f"{record.spill_store_bytes:,} B of stores" in warning
    assert matrix_of(GATHER, "sm_120")["baseline"].warnings == []
    assert "spills" in summary(target("sm_120"), matrix_of(GATHER, "sm_120").records)["spills"]


def test_F11_a_budget_rejects_and_tells_what_fits(tmp_path):
    path, folder = copy_fixture("gather", tmp_path / "study"), tmp_path / "out"
    text = path.read_text().replace("{vary: {num_stages: [1, 3, 4, 5]}, why: depth}", "")
    text = "\n".join(
        line for line in text.splitlines() if line.strip() != "-" and "BLOCK_T: [16" not in line
    )
    path.write_text(text + "\nlimits: {spill_bytes: 8}\n")
    found = compile_matrix(path, "sm_120", folder, trace_study(load_study(path)))
    record = found["spills"]
    [reason] = record.reasons
    assert (record.verdict, reason.limit, reason.allowed) == ("rejected", "spilled bytes", 8)
    assert reason.required == record.spill_store_bytes
    assert found["baseline"].verdict == "fits"
    assert "maxnreg 32 → 64" in {n.change for n in record.neighbours if n.verdict == "fits"}


def test_amd_figures_come_from_llvm_and_its_own_count_of_waves_agrees(matrix_of):
    matrix = matrix_of(GATHER, "gfx942")
    record = matrix["baseline"]
    assert record.verdict == "fits"
    assert record.registers == record.vgprs + record.agprs
    assert record.sgprs > 0
    assert record.versions.keys() == {"triton"}
    assert record.code.mma.keys() == {"v_mfma_f32_16x16x16_bf16"}
    assert record.warps_per_sm == record.ctas_per_sm * 4
    assert record.coverage[0].device == "MI300X"


def test_amd_occupancy_is_llvms_own(tmp_path, imports):
    """LLVM prints the waves per SIMD that registers allow; ours is four SIMDs of them."""
    import re

    from occupancy_probe.gpu import occupancy
    from occupancy_probe.launch.compile import compile_specialization
    from occupancy_probe.research.resources import parse_amdgcn

    study, gpu = load_study(GATHER), target("gfx942")
    trace = trace_study(study)
    for arm in ("baseline", "BLOCK_T-8"):
        [launch] = [t for t in trace.launches if (t.arm, t.target) == (arm, "gfx942")]
        spec = trace.specializations[launch.calls[0].specialization]
        text = compile_specialization(study.kernel_folder, spec, gpu).texts["amdgcn"]
        said = re.search(r"^; Occupancy: (\d+)", text, re.MULTILINE)
        assert said is not None
        ours = occupancy(gpu, parse_amdgcn(text).registers, 1, 0)
        assert min(ours.by["registers"], ours.by["warps"]) == 4 * int(said[1])
