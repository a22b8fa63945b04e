"""One arm on one workload: poison, launch, compare with float64; on a GPU also replay = eager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from occupancy_probe.execute.buffers import Guarded, guard_outputs
from occupancy_probe.execute.compare import fault, output_error
from occupancy_probe.launch import Problem
from occupancy_probe.records import Check


@dataclass(frozen=True)
class Prepared:
    """A workload ready to check arms on: guarded inputs, and the reference computed once."""

    name: str
    guarded: Guarded
    reference: dict[str, torch.Tensor]


def prepare(
    problem: Problem, name: str, axes: Mapping[str, Any], device: str, seed: int
) -> Prepared:
    """Allocate a workload on ``device`` and compute its float64 reference."""
    guarded = guard_outputs(problem.make_inputs(axes, device, seed), problem.outputs)
    guarded.poison()
    return Prepared(name, guarded, problem.reference(guarded.inputs))


def check(problem: Problem, prepared: Prepared, config: Mapping[str, Any]) -> Check:
    """Judge ``config`` on the prepared workload; raises what the launch raises."""
    guarded = prepared.guarded
    on_gpu = any(b.is_cuda for b in guarded.buffers.values())
    _launch(problem, guarded, config, on_gpu)
    rows = guarded.guard_rows_overwritten()
    eager = {name: guarded.inputs[name].clone() for name in prepared.reference}
    errors, reason = {}, None
    for name, reference in prepared.reference.items():
        tolerance = problem.tolerance[name]
        errors[name] = output_error(eager[name], reference, tolerance, guarded.not_written(name))
        if found := fault(errors[name], tolerance):
            reason = reason or f"{name}: {found}"
    if rows:
        reason = reason or f"{rows} guard rows outside the outputs overwritten"
    same = None
    if on_gpu and reason is None:
        same = _replay_equals(problem, guarded, config, eager)
        if not same:
            reason = "a replayed CUDA graph gives other bits than the eager launch"
    return Check(
        workload=prepared.name,
        verdict="right" if reason is None else "wrong",
        outputs=errors,
        guard_rows_overwritten=rows,
        replay_equals_eager=same,
        reason=reason,
    )


def _launch(problem: Problem, guarded: Guarded, config: Mapping[str, Any], on_gpu: bool) -> None:
    guarded.poison()
    problem.launch(guarded.inputs, config)
    if on_gpu:
        torch.cuda.synchronize()


def _replay_equals(
    problem: Problem, guarded: Guarded, config: Mapping[str, Any], eager: dict[str, torch.Tensor]
) -> bool:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        problem.launch(guarded.inputs, config)
    guarded.poison()
    graph.replay()
    torch.cuda.synchronize()
    return all(
        torch.equal(guarded.inputs[n].view(torch.uint8), v.view(torch.uint8))
        for n, v in eager.items()
    )
