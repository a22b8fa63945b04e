"""The autotuner's cases on other Tritons: TRITON_ENVIRONMENTS names folders that hold one, by ':'."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDERS = [f for f in os.environ.get("TRITON_ENVIRONMENTS", "").split(os.pathsep) if f]
TESTS = Path(__file__).parents[1]
CASES = (
    "research/test_audit.py",
    "launch/test_autotune.py",
    "launch/test_ttir.py",
    "launch/test_force.py",
)

pytestmark = pytest.mark.skipif(not FOLDERS, reason="TRITON_ENVIRONMENTS names no other Triton")

DEAD_NAME = """
import triton
print(triton.__version__)
@triton.autotune(configs=[triton.Config({}), triton.Config({}, num_warps=8)], key=["n", "batch"])
@triton.jit
def f(n):
    pass
print("accepted")
"""


def under(folder, *command):
    environment = {**os.environ, "PYTHONPATH": folder, "TRITON_ENVIRONMENTS": ""}
    return subprocess.run(
        [sys.executable, *command],
        env=environment,
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_A5_a_dead_name_is_ignored_up_to_3_8_and_an_error_from_3_9(folder, tmp_path):
    program = tmp_path / "dead.py"
    program.write_text(DEAD_NAME)
    done = under(folder, str(program))
    version = tuple(map(int, done.stdout.split()[0].split(".")[:2]))
    if version >= (3, 9):
        assert "ValueError: key contains names that are not kernel arguments: batch" in done.stderr
    else:
        assert done.stdout.split()[1] == "accepted"


@pytest.mark.parametrize("folder", FOLDERS)
def test_A1_to_A9_hold_there_too(folder):
    done = under(folder, "-m", "pytest", "-q", "-m", "not gpu", *(str(TESTS / c) for c in CASES))
    assert done.returncode == 0, done.stdout[-3000:]
