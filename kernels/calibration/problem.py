"""The Problem of the calibration kernel: time is proportional to ``steps``, by construction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from kernel import chase

from occupancy_probe.launch import Inputs, Problem, Tolerance, Traffic, forced

LANES = 32
SECTOR_BYTES = 32


class Chase(Problem):
    """Gathers at random places of a table, each of which needs the one before: latency, nothing else.

    Workload axes: ``entries`` of the table (int32) and ``programs`` of one warp. The config has
    ``steps``: 202 against 200 is 1 % more of the same work, less the launch (about 1 % of the time).
    """

    kernel = chase
    outputs = ("end",)
    tolerance: ClassVar[Mapping[str, Tolerance]] = {"end": Tolerance(absolute=0, relative=0)}

    def __init__(self, steps: int = 200) -> None:
        self.steps = steps
        """Of the config that ``reference`` computes."""

    def make_inputs(self, workload: Mapping[str, Any], device: str, seed: int) -> Inputs:
        lanes = workload["programs"] * LANES
        i32: dict[str, Any] = {"dtype": torch.int32, "device": device}
        inputs = {
            "table": torch.empty(workload["entries"], **i32),
            "start": torch.empty(lanes, **i32),
            "end": torch.empty(lanes, **i32),
        }
        if device != "meta":
            random = torch.Generator(device).manual_seed(seed)
            inputs["table"].random_(0, workload["entries"], generator=random)
            inputs["start"].random_(0, workload["entries"], generator=random)
        return inputs

    def rotate(self, inputs: Inputs, workload: Mapping[str, Any], seed: int) -> Inputs:
        """Other places to start from in the same table."""
        random = torch.Generator(inputs["table"].device).manual_seed(seed)
        start = torch.empty_like(inputs["start"])
        return {**inputs, "start": start.random_(0, workload["entries"], generator=random)}

    def launch(self, inputs: Inputs, config: Mapping[str, Any]) -> None:
        programs = inputs["start"].shape[0] // LANES
        forced(self.kernel, config)[(programs,)](
            inputs["table"], inputs["start"], inputs["end"], LANES=LANES
        )

    def reference(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        at = inputs["start"].long()
        for _ in range(self.steps):
            at = inputs["table"][at].long()
        return {"end": at.double()}

    def traffic(self, workload: Mapping[str, Any]) -> Traffic:
        return Traffic(bytes=workload["programs"] * LANES * SECTOR_BYTES, flop=0)
