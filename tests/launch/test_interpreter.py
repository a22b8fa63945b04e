"""What the interpreter computes from bf16 is right, or would be garbage without the promotion."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
import torch, triton, triton.language as tl
from occupancy_probe.launch.interpreter import promote_bf16_dot
if sys.argv[1] == "promoted":
    promote_bf16_dot()
    promote_bf16_dot()  # twice is once
sys.path.insert(0, sys.argv[2])
from kernel import gemm
torch.manual_seed(0)
found = {}
for dtype in ("bfloat16", "float32", "float16"):
    a, b = (torch.randn(32, 32).to(getattr(torch, dtype)) for _ in range(2))
    c = torch.empty(32, 32)
    gemm[(2, 2)](a, b, c, 32, 32, 32, *a.stride(), *b.stride(), *c.stride(),
                 BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)
    exact = a.double() @ b.double()
    found[dtype] = float((c.double() - exact).norm() / exact.norm())
print(json.dumps(found))
"""


def errors(mode, fixtures):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode, str(fixtures / "gemm")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found():
    from conftest import FIXTURES

    return {mode: errors(mode, FIXTURES) for mode in ("promoted", "plain")}


def test_C4_bf16_dot_is_promoted(found):
    assert found["promoted"]["bfloat16"] < 1e-5
    assert found["promoted"]["float32"] < 1e-5
    assert found["promoted"]["float16"] < 1e-5


def test_C4_bf16_dot_is_garbage_without(found):
    assert found["plain"]["bfloat16"] > 100
    assert found["plain"]["float32"] < 1e-5


ELEMENTWISE = """
import sys
import torch
from occupancy_probe.launch.interpreter import mend_bf16
mend_bf16()
mend_bf16()  # twice is once
sys.path.insert(0, sys.argv[1])
from kernel import elementwise
torch.manual_seed(0)
a, b = (torch.randn(64).bfloat16() for _ in range(2))
out = torch.empty(7, 64, dtype=torch.bfloat16)
elementwise[(1,)](a, b, out, N=64)
expected = torch.stack([a * b, a + b, torch.maximum(a, b), -a, torch.maximum(a, b),
                        torch.tensor(1.7).bfloat16() + a, (a.float() * 1.01).bfloat16()])
print([i for i in range(7) if not torch.equal(out[i], expected[i])])
"""


def test_C4_bf16_arithmetic_rounds_like_torch():
    from conftest import FIXTURES

    done = subprocess.run(
        [sys.executable, "-c", ELEMENTWISE, str(FIXTURES / "bf16")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
