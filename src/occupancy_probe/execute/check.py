"""One arm on one workload: poison, launch, compare with float64; on a GPU also replay and repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from occupancy_probe.execute.buffers import Guarded, fingerprint, guard_outputs
from occupancy_probe.execute.compare import fault, output_error
from occupancy_probe.launch import Inputs, Problem
from occupancy_probe.records import Check, OutputError

Results = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Prepared:
    """A workload ready to check arms on: guarded inputs, and the reference computed once."""

    name: str
    guarded: Guarded
    reference: Results
    other: Values | None = None
    """Another seed's values; None in the interpreter, where no graph is captured."""
    repeats: int = 0
    """Launches on the same input whose bits must be equal."""
    warnings: list[str] = field(default_factory=list)
    fingerprint: dict[str, int] = field(default_factory=dict)
    """Checksums of the inputs, which every arm must leave as they are."""

    def spoiled(self, problem: Problem) -> list[str]:
        """Inputs that no longer hold what they were prepared with."""
        now = fingerprint(self.guarded.inputs, problem.outputs)
        return [name for name, value in self.fingerprint.items() if now[name] != value]


@dataclass(frozen=True)
class Values:
    """What the same tensors may hold instead, and what must come out then."""

    own: Results
    other: Results
    """By input name; tensors that differ between the seeds."""
    reference: Results

    @contextmanager
    def inside(self, inputs: Inputs) -> Iterator[None]:
        """The tensors of ``inputs`` hold the other values, in place, and afterwards their own."""
        for name, value in self.other.items():
            inputs[name].copy_(value)
        try:
            yield
        finally:
            for name, value in self.own.items():
                inputs[name].copy_(value)


def prepare(
    problem: Problem,
    name: str,
    axes: Mapping[str, Any],
    device: str,
    seed: int,
    repeats: int = 0,
    warnings: list[str] | None = None,
) -> Prepared:
    """Allocate a workload on ``device`` and compute its float64 reference.

    repeats: launches whose bits are to be compared. On "cuda" another seed's values are kept too.
    """
    guarded = guard_outputs(problem.make_inputs(axes, device, seed), problem.outputs)
    guarded.poison()
    other = _values(problem, guarded, axes, device, seed + 1) if device == "cuda" else None
    reference = problem.reference(guarded.inputs)
    sums = fingerprint(guarded.inputs, problem.outputs)
    return Prepared(name, guarded, reference, other, repeats, warnings or [], sums)


def _values(
    problem: Problem, guarded: Guarded, axes: Mapping[str, Any], device: str, seed: int
) -> Values | None:
    """Values of ``seed`` for the tensors of ``guarded``; None where they do not fit or do not differ."""
    inputs, second = guarded.inputs, problem.make_inputs(axes, device, seed)
    own: Results = {}
    other: Results = {}
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor) or name in problem.outputs:
            continue
        new = second.get(name)
        if not isinstance(new, torch.Tensor) or (new.shape, new.dtype) != (
            value.shape,
            value.dtype,
        ):
            return None
        if not torch.equal(_bytes(value), _bytes(new)):
            own[name], other[name] = value.clone(), new
    if not other:
        return None
    values = Values(own, other, {})
    with values.inside(inputs):
        return Values(own, other, problem.reference(inputs))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All bits, so that NaNs compare."""
    return tensor.contiguous().view(-1).view(torch.uint8)


def check(problem: Problem, prepared: Prepared, config: Mapping[str, Any]) -> Check:
    """Judge ``config`` on the prepared workload; raises what the launch raises."""
    guarded = prepared.guarded
    on_gpu = any(b.is_cuda for b in guarded.buffers.values())
    _launch(problem, guarded, config, on_gpu)
    rows = guarded.guard_rows_overwritten()
    eager = _results(prepared)
    errors, reason = _judge(problem, prepared, prepared.reference)
    if rows:
        reason = reason or f"{rows} guard rows outside the outputs overwritten"
    same = follows = None
    repeats = prepared.repeats if on_gpu and reason is None else 0
    if repeats:
        reason = _repeat(problem, prepared, config, eager)
    if on_gpu and reason is None:
        same, follows, reason = _replay(problem, prepared, config, eager)
    if spoiled := prepared.spoiled(problem):
        reason = f"overwrites its input {', '.join(spoiled)}"
    return Check(
        workload=prepared.name,
        verdict="right" if reason is None else "wrong",
        outputs=errors,
        guard_rows_overwritten=rows,
        replay_equals_eager=same,
        replay_follows_inputs=follows,
        repeats=repeats,
        reason=reason,
        warnings=prepared.warnings,
    )


def _launch(problem: Problem, guarded: Guarded, config: Mapping[str, Any], on_gpu: bool) -> None:
    guarded.poison()
    problem.launch(guarded.inputs, config)
    if on_gpu:
        torch.cuda.synchronize()


def _results(prepared: Prepared) -> Results:
    return {name: prepared.guarded.inputs[name].clone() for name in prepared.reference}


def _judge(
    problem: Problem, prepared: Prepared, reference: Results
) -> tuple[dict[str, OutputError], str | None]:
    """Errors of what the outputs hold now, and the first gate that they do not pass."""
    errors, reason = {}, None
    for name, expected in reference.items():
        tolerance, got = problem.tolerance[name], prepared.guarded.inputs[name]
        missing = prepared.guarded.not_written(name)
        errors[name] = output_error(got, expected, tolerance, missing)
        if found := fault(errors[name], tolerance):
            reason = reason or f"{name}: {found}"
    return errors, reason


def _equal(results: Results, prepared: Prepared) -> bool:
    inputs = prepared.guarded.inputs
    return all(torch.equal(_bytes(inputs[n]), _bytes(v)) for n, v in results.items())


def _replay(
    problem: Problem, prepared: Prepared, config: Mapping[str, Any], eager: Results
) -> tuple[bool, bool | None, str | None]:
    """Whether a replay equals the eager launch, whether it follows its inputs, and what is wrong."""
    guarded = prepared.guarded
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        problem.launch(guarded.inputs, config)
    guarded.poison()
    graph.replay()
    torch.cuda.synchronize()
    if not _equal(eager, prepared):
        _launch(problem, guarded, config, on_gpu=True)
        if not _equal(eager, prepared):
            return False, None, "not deterministic: a second launch gives other bits"
        return False, None, "a replayed CUDA graph gives other bits than the eager launch"
    if prepared.other is None:
        return True, None, None
    with prepared.other.inside(guarded.inputs):
        guarded.poison()
        graph.replay()
        torch.cuda.synchronize()
        _, wrong = _judge(problem, prepared, prepared.other.reference)
        if wrong is None:
            return True, True, None
        _launch(problem, guarded, config, on_gpu=True)
        _, eager_wrong = _judge(problem, prepared, prepared.other.reference)
    if eager_wrong:
        return True, None, f"with other values in the same tensors: {eager_wrong}"
    return (
        True,
        False,
        f"replay: a captured graph does not follow its inputs (a value was baked in): {wrong}",
    )


def _repeat(
    problem: Problem, prepared: Prepared, config: Mapping[str, Any], first: Results
) -> str | None:
    """Why the bits of repeated launches are not all the same; None if they are."""
    for again in range(2, prepared.repeats + 1):
        _launch(problem, prepared.guarded, config, on_gpu=True)
        if not _equal(first, prepared):
            return f"not deterministic: launch {again} of the same input gives other bits"
    return None
