"""Run a toy decode step in Triton's interpreter and print the errors as JSON: logic only.

A program of its own because TRITON_INTERPRET must be set before a kernel is imported.
"""

import json
import sys
from pathlib import Path

import torch

from occupancy_probe.launch.device import planned_sm_count
from occupancy_probe.launch.interpreter import mend_bf16
from occupancy_probe.launch.load import load_problem

FOLDER = Path(__file__).resolve().parents[2] / "kernels" / "decode_step"


def run(workload: dict, config: dict, seed: int = 1, skip: str = "") -> dict:
    """skip: leave a part out of the launch, which the comparison must notice."""
    problem = load_problem(FOLDER, "DecodeStep", {})
    with planned_sm_count(4):
        inputs = problem.make_inputs(workload, "cpu", seed)
    inputs["hidden"].fill_(float("nan"))
    if skip == "attention":
        problem.attention.launch = lambda layer, config: layer["out"].zero_()
    if skip == "experts":
        tiles = inputs["0/tile_expert"]
        tiles[tiles == inputs["sizes"].experts] = -1  # the shared one
        inputs["expert_out"].zero_()
    problem.launch(inputs, config)
    expected = problem.reference(inputs)["hidden"]
    got = inputs["hidden"].double()
    tolerance = problem.tolerance["hidden"]
    return {
        "norm": float((got - expected).norm() / expected.norm()),
        "cosine": 1 - float(torch.cosine_similarity(got.flatten(), expected.flatten(), 0)),
        "gate": float(
            (
                (got - expected).abs() / (tolerance.absolute + tolerance.relative * expected.abs())
            ).max()
        ),
        "bits": got.flatten()[:64].tolist(),
        "size": float(expected.norm() / expected.numel() ** 0.5),
        "attention_size": [
            float(inputs[f"{kind}/out"].double().pow(2).mean().sqrt()) for kind in inputs["kinds"]
        ],
    }


if __name__ == "__main__":
    mend_bf16()
    torch.set_num_threads(1)
    jobs = json.load(sys.stdin)
    json.dump({name: run(**job) for name, job in jobs.items()}, sys.stdout)
