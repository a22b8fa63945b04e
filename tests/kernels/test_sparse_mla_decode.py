"""The sparse MLA decode kernel and its Problem: layout, reference, logic, compilation, and GPU runs."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from occupancy_probe.exc import ProblemError
from occupancy_probe.gpu import target
from occupancy_probe.launch.compile import compile_specialization
from occupancy_probe.launch.device import planned_sm_count
from occupancy_probe.launch.load import load_problem
from occupancy_probe.launch.trace import recording

FOLDER = Path(__file__).resolve().parents[2] / "kernels" / "sparse_mla_decode"
SMALL = {"concurrency": 2, "topk": 30, "window": 5, "context": 128}
SPLIT_KERNEL = "_mma_sparse_decode_split_kernel"


pytestmark = pytest.mark.usefixtures("imports")


def make(**parameters: Any) -> Any:
    return load_problem(FOLDER, "SparseMlaDecode", parameters)


# -- layout -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("page_size", "stride"), [(64, 37_440), (256, 149_760), (2, 1_728)])
def test_a_page_is_padded_to_a_multiple_of_576_bytes(page_size: int, stride: int) -> None:
    assert make(page_size=page_size).page_stride == stride


@pytest.mark.parametrize(
    ("tensor_parallel", "heads", "block_h", "head_blocks", "guard_rows"),
    [(4, 16, 16, 1, 0), (2, 32, 32, 1, 0), (8, 8, 16, 1, 8), (1, 64, 32, 2, 0), (64, 1, 16, 1, 15)],
)
def test_the_head_block_follows_from_the_heads_per_gpu(
    tensor_parallel: int, heads: int, block_h: int, head_blocks: int, guard_rows: int
) -> None:
    facts = make(tensor_parallel=tensor_parallel).facts({"concurrency": 1}, {})
    assert facts["heads_per_gpu"] == heads
    assert facts["block_h"] == block_h
    assert facts["head_blocks"] == head_blocks
    assert facts["guard_rows"] == guard_rows


def test_the_head_block_cannot_be_given() -> None:
    with pytest.raises(ProblemError, match="block_h"):
        make(block_h=32)


@pytest.mark.parametrize(
    ("parameters", "workload", "message"),
    [
        ({"tensor_parallel": 3}, {}, "give a divisor"),
        ({}, {"concurrency": 1, "case": "hole"}, "unknown case 'hole'; known: all_invalid"),
        ({}, {"concurrency": 1, "batch": 2}, "unknown workload axis 'batch'"),
        ({}, {"topk": 4}, "needs the axis 'concurrency'"),
        ({"context": 8}, {"concurrency": 1, "topk": 9, "window": 0}, "exceeds the context"),
        ({}, {"concurrency": 1, "case": "far_pages"}, "needs a GPU"),
    ],
)
def test_errors_say_what_to_do(parameters: dict, workload: dict, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        make(**parameters).make_inputs(workload, "cpu", 0)


# -- bytes --------------------------------------------------------------------------------------------


def e4m3(byte: int) -> float:
    sign = -1.0 if byte & 0x80 else 1.0
    exponent, mantissa = byte >> 3 & 0xF, byte & 7
    if exponent == 0xF and mantissa == 7:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def test_dequantisation_agrees_with_the_formats_written_out() -> None:
    """Page size 2, so that the second page's slot 1 lies behind two scale parts and their padding."""
    problem = make(page_size=2)
    cache = torch.full((2, 1_728), 0xFF, dtype=torch.uint8)
    page, slot = 1, 1
    nope = [i % 256 if i % 128 != 127 else 0 for i in range(448)]  # every finite e4m3, both signs
    exponents = [1, 100, 126, 127, 128, 140, 254]
    rope = [(-1) ** i * (i + 1) / 64 for i in range(64)]
    data = bytes(nope) + b"".join(struct.pack("<f", v)[2:] for v in rope)
    cache[page, slot * 576 : slot * 576 + 576] = torch.tensor(list(data), dtype=torch.uint8)
    start = 2 * 576 + slot * 8
    cache[page, start : start + 7] = torch.tensor(exponents, dtype=torch.uint8)

    got = problem.dequantise(cache, torch.tensor([page * 2 + slot]))[0]

    expected = [e4m3(b) * 2.0 ** (exponents[i // 64] - 127) for i, b in enumerate(nope)] + rope
    assert got.dtype == torch.float64
    assert got.tolist() == expected


def test_the_reference_agrees_with_attention_written_out() -> None:
    problem = make(model_heads=2, tensor_parallel=1, context=16)
    inputs = problem.make_inputs(
        {"concurrency": 2, "topk": 5, "window": 2, "case": "holes"}, "cpu", 3
    )
    expected = problem.reference(inputs)
    for b in range(2):
        rows = [i for i in inputs["indices"][b, : inputs["lengths"][b]].tolist() if i >= 0]
        tokens = problem.dequantise(inputs["cache"], torch.tensor(rows))
        for h in range(2):
            weights = [float(inputs["q"][b, h].double() @ t * 512**-0.5) for t in tokens]
            exps = torch.tensor(weights, dtype=torch.float64).exp()
            out = (exps[:, None] * tokens).sum(0) / (exps.sum() + inputs["sink"][h].double().exp())
            torch.testing.assert_close(expected["out"][b, h], out, rtol=1e-12, atol=1e-14)
            torch.testing.assert_close(expected["lse"][b, h], exps.sum().log())


# -- inputs -------------------------------------------------------------------------------------------


def test_only_selected_slots_hold_finite_bytes() -> None:
    problem = make()
    inputs = problem.make_inputs(SMALL, "cpu", 1)
    selected = inputs["indices"][inputs["indices"] >= 0].unique().long()
    slots = torch.arange(inputs["cache"].shape[0] * 64)
    finite = problem.dequantise(inputs["cache"], slots).isfinite()
    assert finite[selected].all()
    others = torch.ones(len(slots), dtype=torch.bool)
    others[selected] = False
    assert not finite[others].any()
    used = 64 * 584
    assert (inputs["cache"][:, used:] == 0xFF).all()
    assert (problem._scales(inputs["cache"])[..., 7] == 0xFF).all()


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again, other = (make().make_inputs(SMALL, "cpu", seed) for seed in (1, 1, 2))
    for name in ("q", "cache", "indices", "lengths", "sink"):
        assert torch.equal(first[name], again[name])
    assert not torch.equal(first["indices"], other["indices"])


def test_rotation_selects_other_slots_and_leaves_filled_ones_alone() -> None:
    problem = make()
    inputs = problem.make_inputs(SMALL, "cpu", 1)
    before = {k: v.clone() for k, v in problem.reference(inputs).items()}
    rotated = problem.rotate(inputs, SMALL, 2)
    assert rotated["cache"].data_ptr() != inputs["cache"].data_ptr()  # else L2 would still hold it
    assert rotated["partial_out"] is inputs["partial_out"]
    assert not torch.equal(rotated["indices"], inputs["indices"])
    assert problem.reference(rotated)["out"].isfinite().all()
    for name, value in problem.reference(inputs).items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize(("concurrency", "splits"), [(1, 20), (16, 7), (64, 4), (96, 5)])
def test_the_split_count_fills_whole_waves(concurrency: int, splits: int) -> None:
    with planned_sm_count(132):
        inputs = make().make_inputs({"concurrency": concurrency}, "meta", 0)
    assert inputs["partial_lse"].shape == (concurrency, splits, 16)
    assert inputs["indices"].shape == (concurrency, 640)


def test_traffic_counts_bytes_and_operations() -> None:
    traffic = make().traffic({"concurrency": 64})
    tokens = 64 * 640
    assert traffic.flop == tokens * 32_768
    assert traffic.bytes == tokens * 588 + 64 * (2 * 16 * 512 * 2 + 4 + 4 * 16)
    assert traffic.sm_clocks == tokens * 70


def test_facts_follow_the_config() -> None:
    facts = make().facts({"concurrency": 1}, {"BLOCK_T": 32, "num_warps": 8, "num_stages": 2})
    assert facts["accumulator_values_per_thread"] == 32
    assert facts["tile_bytes"] == 32_768
    assert facts["candidates"] == 640


# -- logic, in the interpreter ------------------------------------------------------------------------

TILES = {"BLOCK_T": 16, "num_warps": 4, "num_stages": 1}
THREE_SPLITS = {"concurrency": 2, "topk": 80, "window": 10, "context": 128}
LOGIC: dict[str, dict[str, Any]] = {
    "plain": {"workload": THREE_SPLITS},
    "rotated": {"workload": THREE_SPLITS, "rotated": True},
    "tile_of_64": {"workload": THREE_SPLITS, "config": {**TILES, "BLOCK_T": 64}},
    "pages_of_2": {"workload": {**THREE_SPLITS, "concurrency": 1}, "parameters": {"page_size": 2}},
    "pages_of_256": {
        "workload": {**THREE_SPLITS, "concurrency": 1},
        "parameters": {"page_size": 256},
    },
    "eight_heads": {"workload": SMALL, "parameters": {"tensor_parallel": 8}},
    "thirty_two_heads": {"workload": SMALL, "parameters": {"tensor_parallel": 2}},
    "two_head_blocks": {"workload": SMALL, "parameters": {"tensor_parallel": 1}},
    **{f"topk_{n}": {"workload": {**SMALL, "topk": n, "window": 0}} for n in (1, 15, 16, 17)},
    **{
        case: {"workload": {**THREE_SPLITS, "case": case}}
        for case in (
            "all_invalid",
            "duplicates",
            "equal_logits",
            "holes",
            "large_logits",
            "last_slot",
            "one_split_invalid",
            "ragged",
            "sink_inf",
            "sink_minus_inf",
            "zero_length",
        )
    },
}


@pytest.fixture(scope="module")
def logic() -> dict[str, dict[str, Any]]:
    """All of LOGIC in one process of its own; the interpreter is chosen at import."""
    defaults = {"parameters": {}, "config": TILES, "sms": 6, "rotated": False}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interpret_sparse_mla_decode.py"))],
        input=json.dumps({name: {**defaults, **job} for name, job in LOGIC.items()}),
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", LOGIC)
def test_the_kernels_compute_the_reference(name: str, logic: dict[str, dict[str, Any]]) -> None:
    """bf16 casts truncate in the interpreter: twice the rounding error of hardware, and more biased."""
    result = logic[name]
    assert not result["nan"]
    assert not result["partial_nan"]
    assert result["out"] < 1.5e-2
    assert result["lse"] < 1e-5
    assert result["lse_inf_agrees"]
    assert result["empty_rows_zero"]


def test_more_than_one_split_is_merged(logic: dict[str, dict[str, Any]]) -> None:
    assert logic["plain"]["splits"] == 3


def test_an_empty_row_gives_zero_and_minus_infinity(logic: dict[str, dict[str, Any]]) -> None:
    assert logic["all_invalid"]["empty_rows"] == [True, True]
    assert logic["all_invalid"]["out_zero"]
    assert logic["zero_length"]["empty_rows"] == [True, False]


# -- compilation --------------------------------------------------------------------------------------


def compiled(target_name: str, config: dict[str, int], **parameters: Any) -> Any:
    """The split kernel as the study's own launch specializes it."""
    problem, gpu = make(**parameters), target(target_name)
    with planned_sm_count(132):
        inputs = problem.make_inputs({"concurrency": 64}, "meta", 0)
    with recording(gpu, FOLDER) as noted:
        problem.launch(inputs, config)
    (split, _), (merge, _) = noted
    assert split.kernel == SPLIT_KERNEL
    assert merge.kernel == "_sparse_decode_combine_kernel"
    return compile_specialization(FOLDER, split, gpu)


@pytest.mark.parametrize("target_name", ["sm_90", "sm_120"])
def test_stages_are_real_and_overflow_shared_memory_only_on_sm_120(target_name: str) -> None:
    """Two stages fit both targets; 225,280 B fit the 232,448 of sm_90, not the 101,376 of sm_120."""
    two = compiled(target_name, {"BLOCK_T": 32, "num_warps": 4, "num_stages": 2})
    five = compiled(target_name, {"BLOCK_T": 64, "num_warps": 8, "num_stages": 5})
    assert two.shared_bytes < 101_376 < five.shared_bytes < 232_448
    assert "0 bytes spill stores" in two.ptxas_log


def test_the_tile_is_stored_once_for_both_dots() -> None:
    """[32, 512] in bf16, the query and less than 4 KB of exchange: no second copy of 32 KB."""
    one = compiled("sm_90", {"BLOCK_T": 32, "num_warps": 4, "num_stages": 1})
    assert 32_768 + 16_384 <= one.shared_bytes < 32_768 + 16_384 + 4_096


def test_the_autotuner_has_the_public_configs_and_their_key() -> None:
    tuner = make().kernel
    assert tuner.keys == ["topk_rounded"]
    found = [(c.kwargs["BLOCK_T"], c.num_warps, c.num_stages) for c in tuner.configs]
    assert found == [(16, 4, 2), (16, 8, 2), (32, 8, 2)]
    assert tuner.fn.__name__ == SPLIT_KERNEL


# -- on a GPU -----------------------------------------------------------------------------------------

CONFIGS = [(16, 4, 2), (32, 4, 1), (32, 4, 3), (32, 8, 2), (64, 4, 2), (64, 8, 5)]
PROBLEMS = [
    {},
    {"tensor_parallel": 8},
    {"tensor_parallel": 2},
    {"page_size": 256},
    {"page_size": 2},
]


def assert_right(problem: Any, inputs: dict[str, Any], config: tuple[int, int, int]) -> None:
    for name in problem.outputs:
        inputs[name].fill_(float("nan"))
    block_t, warps, stages = config
    problem.launch(inputs, {"BLOCK_T": block_t, "num_warps": warps, "num_stages": stages})
    for name, expected in problem.reference(inputs).items():
        gate, got = problem.tolerance[name], inputs[name].double()
        finite = expected.isfinite()
        assert torch.equal(got[~finite], expected[~finite])
        got, expected = got[finite], expected[finite]
        error = got - expected
        assert (error.abs() <= gate.absolute + gate.relative * expected.abs()).all()
        if gate.norm is not None and expected.norm() > 0:
            assert error.norm() <= gate.norm * expected.norm()
            assert 1 - got @ expected / (got.norm() * expected.norm()) <= gate.cosine


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
class TestOnGpu:
    @pytest.mark.parametrize("config", CONFIGS, ids=str)
    @pytest.mark.parametrize(
        "case",
        [None, "far_pages", *(c for c in LOGIC if LOGIC[c]["workload"].get("case"))],
    )
    def test_every_case_passes_the_gates(self, case: str | None, config: tuple) -> None:
        problem = make()
        inputs = problem.make_inputs({"concurrency": 5, "case": case}, "cuda", 3)
        assert_right(problem, inputs, config)

    @pytest.mark.parametrize("parameters", PROBLEMS, ids=str)
    def test_every_layout_passes_the_gates(self, parameters: dict) -> None:
        problem = make(**parameters)
        inputs = problem.make_inputs({"concurrency": 5, "case": "holes"}, "cuda", 3)
        assert_right(problem, inputs, (32, 4, 2))

    @pytest.mark.parametrize("topk", [1, 15, 16, 17])
    def test_few_candidates_pass_the_gates(self, topk: int) -> None:
        problem = make()
        inputs = problem.make_inputs({"concurrency": 3, "topk": topk, "window": 0}, "cuda", 3)
        assert_right(problem, inputs, (32, 4, 2))

    def test_twenty_launches_are_bit_equal_at_the_production_grid(self) -> None:
        problem = make()
        inputs = problem.make_inputs({"concurrency": 96}, "cuda", 3)
        assert_right(problem, inputs, (32, 4, 2))
        first = {name: inputs[name].clone() for name in problem.outputs}
        for _ in range(20):
            problem.launch(inputs, {"BLOCK_T": 32, "num_warps": 4, "num_stages": 2})
            assert all(torch.equal(inputs[name], value) for name, value in first.items())
