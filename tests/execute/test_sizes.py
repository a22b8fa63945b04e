"""C1: offsets that wrap in 32 bits are flagged from the workload's sizes, before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import FIXTURES

from occupancy_probe.execute.sizes import study_offsets, wide_offsets
from occupancy_probe.gpu import target


def test_C1_the_product_wraps_in_32_bits_and_not_in_64():
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("wrapping_kernel.py"))],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["-1786249216", "2508718080"]


ROWS, STRIDE = 320, 7_864_320


def big(dtype=torch.uint8):
    return torch.empty(ROWS, STRIDE, dtype=dtype, device="meta")


def test_C1_flagged_from_the_sizes():
    [said] = wide_offsets({"cache": big(), "n": 3}, [{"row": "i32", "cache": "*u8"}])
    assert said.startswith("cache: 2,516,582,400 elements reach beyond 2^31 while row are i32")


@pytest.mark.parametrize(
    ("tensor", "signature", "flagged"),
    [
        (big(), {"row": "i64", "stride": "i64"}, False),
        (big()[:100], {"row": "i32"}, False),
        (big(torch.float32)[:100], {"row": "i32"}, True),  # bytes, though not elements
        (torch.empty(2**31, dtype=torch.uint8, device="meta"), {"n": "i32"}, False),
        (torch.empty(2**31 + 1, dtype=torch.uint8, device="meta"), {"n": "i32"}, True),
        (
            torch.empty_strided((2, 2), (2**31, 1), dtype=torch.uint8, device="meta"),
            {"n": "i32"},
            True,
        ),
        (torch.empty(0, device="meta"), {"n": "i32"}, False),
    ],
)
def test_the_edge(tensor, signature, flagged):
    assert bool(wide_offsets({"x": tensor}, [signature])) is flagged


@pytest.mark.parametrize(("rows", "flagged"), [(1 << 10, False), (1 << 22, True)])
def test_a_studys_launch_says_which_integers_are_narrow(imports, rows, flagged):
    from occupancy_probe.launch.load import load_problem

    problem = load_problem(FIXTURES / "tiny", "ScaleRows", {})
    config = {"BLOCK": 512, "num_warps": 4, "num_stages": 2}
    found = study_offsets(
        problem, {"rows": rows, "n": 500}, config, target("sm_90"), FIXTURES / "tiny"
    )
    assert len(found) == (2 if flagged else 0)
    assert all("n are i32" in text for text in found)
