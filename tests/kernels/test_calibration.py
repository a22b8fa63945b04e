"""The calibration kernel follows its chain exactly, and its work is proportional to its steps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from occupancy_probe.execute.calibrate import STEPS, arm_configs

FOLDER = Path(__file__).parents[2] / "kernels/calibration"
SCRIPT = """
import sys
from pathlib import Path
from occupancy_probe.launch.load import load_problem
problem = load_problem(Path(sys.argv[1]), "Chase", {"steps": 5})
inputs = problem.make_inputs({"entries": 1000, "programs": 2}, "cpu", 3)
other = problem.rotate(inputs, {"entries": 1000, "programs": 2}, 4)
assert other["table"] is inputs["table"] and not other["start"].equal(inputs["start"])
for one in (inputs, other):
    problem.launch(one, {"steps": 5, "num_warps": 1})
    assert one["end"].double().equal(problem.reference(one)["end"])
problem.launch(inputs, {"steps": 6, "num_warps": 1})
assert not inputs["end"].double().equal(problem.reference(inputs)["end"])
"""


def test_the_kernel_in_the_interpreter_against_its_reference():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(FOLDER)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_known_differences_are_exactly_one_and_half_a_percent_of_the_steps():
    found = arm_configs(("a", "null", "twin", "one", "half"))
    steps = {name: config["steps"] for name, config in found.items()}
    assert steps["a"] == steps["null"] == steps["twin"] == STEPS
    assert steps["one"] * 100 == STEPS * 101
    assert steps["half"] * 1000 == STEPS * 1005
