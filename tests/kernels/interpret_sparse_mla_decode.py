"""Run the kernels of sparse MLA decode in Triton's interpreter and print the errors as JSON.

A program of its own because TRITON_INTERPRET must be set before a kernel is imported. What it
shows is logic only: the interpreter runs programs one by one and its bf16 casts truncate.
"""

import json
import sys
from pathlib import Path

import torch

from occupancy_probe.launch.device import planned_sm_count
from occupancy_probe.launch.interpreter import mend_bf16
from occupancy_probe.launch.load import load_problem

FOLDER = Path(__file__).resolve().parents[2] / "kernels" / "sparse_mla_decode"


def run(parameters: dict, workload: dict, config: dict, sms: int, rotated: bool) -> dict:
    problem = load_problem(FOLDER, "SparseMlaDecode", parameters)
    with planned_sm_count(sms):
        inputs = problem.make_inputs(workload, "cpu", seed=1)
        if rotated:
            inputs = problem.rotate(inputs, workload, seed=2)
    for name in problem.outputs:
        inputs[name].fill_(float("nan"))
    problem.launch(inputs, config)
    expected = problem.reference(inputs)
    out, lse = inputs["out"].double(), inputs["lse"].double()
    finite = expected["lse"].isfinite()
    return {
        "splits": inputs["partial_lse"].shape[1],
        "nan": bool(out.isnan().any() or lse.isnan().any()),
        "partial_nan": bool(inputs["partial_out"].isnan().any()),
        "out": float((out - expected["out"]).norm() / expected["out"].norm().clamp(min=1e-30)),
        "out_size": float(expected["out"].norm()),
        "out_zero": bool((out == 0).all()),
        "lse": float(
            ((lse - expected["lse"])[finite].abs() / (1 + expected["lse"][finite].abs())).amax()
        )
        if finite.any()
        else 0.0,
        "empty_rows": [bool(r) for r in (~finite).all(1)],
        "lse_inf_agrees": bool((lse[~finite] == float("-inf")).all()),
        "empty_rows_zero": bool((out[~finite] == 0).all()),
    }


if __name__ == "__main__":
    mend_bf16()
    torch.set_num_threads(1)
    jobs = json.load(sys.stdin)
    json.dump({name: run(**job) for name, job in jobs.items()}, sys.stdout)
