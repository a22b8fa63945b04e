"""What arms become on their targets: real compiles, the table's limits, the compiler's words."""

from __future__ import annotations

import pytest
from conftest import FIXTURES, copy_fixture

from occupancy_probe.gpu import target
from occupancy_probe.gpu.targets import targets
from occupancy_probe.launch.launches import trace_study
from occupancy_probe.records import Feasibility, Reason, read_record, write_record
from occupancy_probe.research import workers
from occupancy_probe.research.code import digest_codes
from occupancy_probe.research.matrix import feasibility_matrices, read_matrix, summary
from occupancy_probe.study import load_study
from research.conftest import compile_matrix

FP8, BF16 = FIXTURES / "gemm_fp8.yaml", FIXTURES / "gemm_bf16.yaml"
LIMITS, HOSTILE = FIXTURES / "tiny_limits.yaml", FIXTURES / "hostile.yaml"


def stamps(folder):
    return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.glob("*.json")}


def test_F1_fp8_gemm_overflows_sm_120(matrix_of):
    matrix = matrix_of(FP8, "sm_120")
    assert target("sm_120").shared_per_block_bytes == 101_376
    record = matrix["s4"]
    assert (record.verdict, record.shared_bytes) == ("rejected", 147_456)
    [reason] = record.reasons
    assert (reason.limit, reason.required, reason.allowed) == ("shared memory", 147_456, 101_376)
    assert "147,456 B > 101,376 B" in reason.text
    assert "sm_120" in reason.text
    assert (matrix["baseline"].verdict, matrix["baseline"].shared_bytes) == ("fits", 98_304)


@pytest.mark.parametrize("name", ["sm_90", "sm_100"])
def test_F1_fp8_gemm_fits_elsewhere_with_other_byte_counts(matrix_of, name):
    matrix = matrix_of(FP8, name)
    assert matrix["s4"].verdict == matrix["baseline"].verdict == "fits"
    assert matrix["s4"].shared_bytes not in (147_456, None)
    assert matrix["s4"].shared_bytes <= target(name).shared_per_block_bytes
    assert matrix["s4"].shared_bytes > matrix["baseline"].shared_bytes


def test_F1_only_sm_100_uses_tensor_memory(matrix_of):
    assert matrix_of(FP8, "sm_100")["baseline"].tensor_memory_columns == 256
    assert matrix_of(FP8, "sm_120")["baseline"].tensor_memory_columns == 0


def test_F2_alignment_makes_two_variants_and_the_worst_decides(matrix_of):
    record = matrix_of(BF16, "sm_120")["baseline"]
    assert (record.verdict, record.shared_bytes) == ("rejected", 131_072)
    by_workload = {v.workloads[0]: v for v in record.variants}
    assert by_workload.keys() == {"aligned", "odd"}
    assert by_workload["aligned"].shared_bytes == 131_072
    assert by_workload["odd"].shared_bytes == 32_768
    assert "stride_am: i32/16" in by_workload["aligned"].specialization
    assert "stride_am: i32," in by_workload["odd"].specialization
    assert len(record.reasons) == 1
    assert matrix_of(BF16, "sm_120")["s2"].verdict == "fits"


@pytest.mark.parametrize("name", ["sm_90", "sm_120"])
def test_F4_stages_without_a_dot_are_phantoms(matrix_of, name):
    matrix = matrix_of(LIMITS, name)
    stages = [matrix["baseline"], *(matrix[f"num_stages-{n}"] for n in (1, 3, 4))]
    assert len({r.code_sha256 for r in stages}) == 1
    assert stages[0].same_code_as is None
    assert [r.same_code_as for r in stages[1:]] == ["baseline"] * 3
    assert matrix["num_warps-8"].same_code_as is None
    assert matrix["num_warps-8"].code_sha256 != stages[0].code_sha256


def test_F4_on_every_target(tmp_path):
    names = list(targets())
    path = copy_fixture("tiny_limits", tmp_path / "study")
    text = path.read_text().replace("[sm_90, sm_120]", f"[{', '.join(names)}]")
    path.write_text(text.replace("  - {vary: {num_warps: [6, 8, 64]}, why: limits}\n", ""))
    study, all_targets = load_study(path), [target(n) for n in names]
    found = feasibility_matrices(study, trace_study(study), all_targets, tmp_path, workers=2)
    assert len(found) == 12
    for name, records in found.items():
        same = {arm: r.same_code_as for arm, r in records.items()}
        phantoms = {f"num_stages-{n}": "baseline" for n in (1, 3, 4)}
        assert same == {"baseline": None, **phantoms}, name


def test_F6_2048_threads(matrix_of):
    record = matrix_of(LIMITS, "sm_90")["num_warps-64"]
    assert record.verdict == "rejected"
    [reason] = record.reasons
    assert (reason.limit, reason.required, reason.allowed) == ("threads", 2048, 1024)
    assert "2,048 threads > 1,024" in reason.text


def test_F6_no_power_of_two(matrix_of):
    record = matrix_of(LIMITS, "sm_90")["num_warps-6"]
    assert record.verdict == "rejected"
    assert [r.text for r in record.reasons] == ["num_warps 6 is not a power of two"]
    assert record.code_sha256 is None


def test_F6_the_rest_of_the_matrix_is_unaffected(matrix_of):
    found = summary(target("sm_90"), matrix_of(LIMITS, "sm_90").records)
    assert found["rejected"] == ["num_warps-6", "num_warps-64"]
    assert len(found["fits"]) == 5
    assert list(found["same_code"].values()) == ["baseline"] * 3


def test_F7_a_dtype_that_the_target_does_not_have_is_no_arms_fault(matrix_of):
    for record in matrix_of(FP8, "sm_80").records.values():
        assert record.verdict == "unsupported"
        assert "fp8e4nv not supported in this architecture" in record.reasons[0].text


def test_F12_a_hostile_compile_costs_its_own_arm(matrix_of):
    matrix = matrix_of(HOSTILE, "sm_90")
    said = {name: [r.text for r in record.reasons] for name, record in matrix.records.items()}
    assert said == {
        "baseline": [],
        "aborts": ["the compiler ended its process (exit status -6)"],
        "hangs": ["no answer from the compiler in 10 s"],
        "exits": ["SystemExit: the compiler has had enough"],
        "raises": ["CompilationError: mood 4 is not for sale"],
        "after": [],
    }
    assert [n for n, r in matrix.records.items() if r.verdict == "fits"] == ["baseline", "after"]
    for name, record in matrix.records.items():
        assert read_record(matrix.folder / f"{name}.json", Feasibility) == record


def test_figures_of_a_fitting_arm(matrix_of):
    record = matrix_of(LIMITS, "sm_90")["num_warps-8"]
    assert record.threads == 256
    assert 0 < record.registers <= 255
    assert record.warps_per_sm == record.ctas_per_sm * 8
    assert record.occupancy == record.warps_per_sm / 64
    assert record.limiter
    assert record.spill_store_bytes == record.spill_load_bytes == 0
    assert record.versions.keys() == {"triton", "ptxas"}
    assert [v.workloads for v in record.variants] == [["r4", "r64"]]


def test_fresh_records_are_kept(matrix_of, trace_of):
    matrix = matrix_of(LIMITS, "sm_120")
    before = stamps(matrix.folder)
    assert len(before) == 7
    again = compile_matrix(LIMITS, "sm_120", matrix.folder, trace_of(LIMITS))
    assert again == matrix.records
    assert stamps(matrix.folder) == before


def test_one_changed_arm_and_one_broken_record_are_made_again_alone(tmp_path):
    path, folder = copy_fixture("tiny", tmp_path / "study"), tmp_path / "sm_90"
    first = compile_matrix(path, "sm_90", folder, trace_study(load_study(path)))
    before = stamps(folder)
    assert set(before) == {f"{n}.json" for n in first}
    text = path.read_text().replace("num_warps: [1, 8]", "num_warps: [1, 2]")
    path.write_text(text)
    broken = folder / "num_warps-1.json"
    broken.write_text(broken.read_text()[:100])
    found = compile_matrix(path, "sm_90", folder, trace_study(load_study(path)))
    assert list(found) == ["baseline", "num_warps-1", "num_warps-2", "num_stages-3"]
    after = stamps(folder)
    kept = {n for n in before if after[n] == before[n]}
    assert kept == {"baseline.json", "num_stages-3.json", "num_warps-8.json"}
    assert found["num_warps-1"].code_sha256 == first["num_warps-1"].code_sha256


def test_an_arm_that_once_ran_out_of_time_is_tried_again(tmp_path):
    path, folder = copy_fixture("tiny", tmp_path / "study"), tmp_path / "sm_90"
    trace = trace_study(load_study(path))
    first = compile_matrix(path, "sm_90", folder, trace)
    late = Reason(limit="compile time", text="no answer from the compiler in 1 s")
    write_record(
        folder / "num_warps-8.json",
        first["num_warps-8"].model_copy(update={"verdict": "rejected", "reasons": [late]}),
    )
    found = compile_matrix(path, "sm_90", folder, trace)
    assert found["num_warps-8"].verdict == "fits"
    assert found["num_warps-8"].reasons == []


def test_another_kernel_source_makes_every_record_again(tmp_path):
    path, folder = copy_fixture("tiny", tmp_path / "study"), tmp_path / "sm_90"
    path.write_text(
        path.read_text().replace("num_warps: [1, 8], num_stages: [3]", "num_warps: [8]")
    )
    compile_matrix(path, "sm_90", folder, trace_study(load_study(path)))
    before = stamps(folder)
    kernel = tmp_path / "study" / "tiny" / "kernel.py"
    kernel.write_text(kernel.read_text() + "\n# a remark\n")
    compile_matrix(path, "sm_90", folder, trace_study(load_study(path)))
    assert not set(stamps(folder).items()) & set(before.items())


def test_H5_a_broken_record_is_left_out_of_the_matrix(matrix_of, tmp_path):
    matrix = matrix_of(LIMITS, "sm_90")
    for path in matrix.folder.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert read_matrix(tmp_path) == {n: matrix[n] for n in sorted(matrix.records)}
    (tmp_path / "baseline.json").write_text("{")
    assert read_matrix(tmp_path).keys() == matrix.records.keys() - {"baseline"}


def test_a_record_that_other_code_of_ours_made_is_made_again(tmp_path):
    path, folder = copy_fixture("tiny", tmp_path / "study"), tmp_path / "sm_90"
    trace = trace_study(load_study(path))
    first = compile_matrix(path, "sm_90", folder, trace)["baseline"]
    old = first.model_copy(update={"ctas_per_sm": 1, "depends": {**first.depends, "code": "old"}})
    write_record(folder / "baseline.json", old)
    again = compile_matrix(path, "sm_90", folder, trace)["baseline"]
    assert again.ctas_per_sm == first.ctas_per_sm > 1
    assert again.depends == first.depends


def refuse_eight_warps(materials, of):
    if any(m.num_warps == 8 for m in materials):
        raise ValueError("no such listing")
    return digest_codes(materials, of)


def test_a_listing_that_cannot_be_read_costs_its_own_arm_its_digest(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "digest_codes", refuse_eight_warps)
    path = copy_fixture("tiny", tmp_path / "study")
    found = compile_matrix(path, "sm_90", tmp_path / "sm_90", trace_study(load_study(path)))
    assert [n for n, r in found.items() if r.code is None] == ["num_warps-8"]
    [said] = found["num_warps-8"].warnings
    assert "machine code cannot be read: ValueError: no such listing" in said
    assert found["num_warps-8"].verdict == "fits"
