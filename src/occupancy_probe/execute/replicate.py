"""One replicate: fresh allocation, fresh graph captures, all arms interleaved in random blocks."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from occupancy_probe.execute.blocks import (
    Block,
    Launch,
    Spent,
    Sweep,
    event,
    shuffled,
    steady,
    take_blocks,
)
from occupancy_probe.execute.rotation import Rotation
from occupancy_probe.gpu import DeviceState, read_state
from occupancy_probe.launch import Inputs, Problem
from occupancy_probe.launch.padding import Padding
from occupancy_probe.records import Clocks, Replicate


@dataclass(frozen=True)
class Timing:
    """How a replicate is taken: see the ``measurement`` section of a study."""

    blocks: int
    regime: str
    clock_tolerance: float


class TimedArm:
    """An arm that is launched, its CTAs per SM capped where ``shared_bytes`` is given."""

    def __init__(
        self, problem: Problem, config: Mapping[str, Any], shared_bytes: int | None = None
    ) -> None:
        self._problem, self._config = problem, config
        self.padding = Padding(problem.kernel, shared_bytes) if shared_bytes else None

    def launch(self, inputs: Inputs) -> None:
        """One launch of the Problem."""
        with self.padding or nullcontext():
            self._problem.launch(inputs, self._config)


def take_replicate(
    arms: Mapping[str, TimedArm],
    instances: list[Inputs],
    rotation: Rotation,
    sweep: Sweep,
    timing: Timing,
    place: tuple[int, int],
    seed: int,
    uuid: str,
    spent: Spent,
    begin: Callable[[str], None] = lambda arm: None,
) -> Replicate:
    """Samples in µs per launch, one per block and arm.

    instances: input sets in memory of their own, see :func:`fresh`. place: process and allocation
    number. seed: decides order of set-up and order within blocks. uuid: the GPU. begin: told each arm
    before it is launched for the first time.
    """
    rng = random.Random(seed)
    launched = [instances[i % len(instances)] for i in range(rotation.launches)]
    gc.collect()
    gc.disable()  # from Triton 3.8 a collected kernel unloads its module, fatal during a capture
    try:
        ready: dict[str, Launch] = {}
        for arm in shuffled(arms, rng):
            begin(arm)
            ready[arm] = prepared(arms[arm], launched, timing.regime)
        begin("")
        taken = take_blocks(
            lambda: Block(ready, sweep, rng),
            timing.blocks,
            partial(read_state, uuid),
            timing.clock_tolerance,
        )
    finally:
        gc.enable()
    times = [block.times(spent) for block, _ in taken]
    states = [seen for _, seen in taken]
    keep = steady(states, timing.clock_tolerance)
    return Replicate(
        process=place[0],
        allocation=place[1],
        device_uuid=uuid,
        arms={
            a: [
                round(t[a] * 1e3 / rotation.launches, 4)
                for t, k in zip(times, keep, strict=True)
                if k
            ]
            for a in ready
        },
        clocks=_clocks([state for seen in states for state in seen]),
        dropped=keep.count(False),
    )


def make_instances(problem: Problem, axes: Mapping[str, Any], sets: int, seed: int) -> list[Inputs]:
    """``sets`` instances of a workload on the GPU, as the Problem rotates them."""
    first = problem.make_inputs(axes, "cuda", seed)
    return [first, *(problem.rotate(first, axes, seed + i) for i in range(1, sets))]


def fresh(instances: list[Inputs], rng: random.Random, device: str = "cuda") -> list[Inputs]:
    """The same values in newly allocated memory, in random order behind a pad of random size.

    What the instances share among each other, or as views of one buffer, they share afterwards.
    """
    if device == "cuda":
        torch.cuda.empty_cache()
    pad = torch.empty(rng.randrange(1, 1 << 26), dtype=torch.uint8, device=device)
    storages = {
        v.untyped_storage().data_ptr(): v.untyped_storage()
        for inputs in instances
        for v in inputs.values()
        if isinstance(v, torch.Tensor) and v.device.type == torch.device(device).type
    }
    copies = {key: storages[key].clone() for key in shuffled(storages, rng)}
    del pad

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        storage = copies.get(value.untyped_storage().data_ptr())
        if storage is None:
            return value
        bare = torch.empty(0, dtype=value.dtype, device=value.device)
        return bare.set_(storage, value.storage_offset(), value.size(), value.stride())

    return [{name: copied(value) for name, value in inputs.items()} for inputs in instances]


def warm_up(uuid: str, spent: Spent, least_s: float = 0.2, most_s: float = 3.0) -> None:
    """Keep the GPU busy until its SM clock has stopped moving (1 % between looks 50 ms apart)."""
    values = torch.ones(1 << 26, device="cuda")  # no matrix product: cuBLAS takes time to load
    started, last = time.perf_counter(), 0.0
    while (elapsed := time.perf_counter() - started) < most_s:
        with _timed(spent):
            until = time.perf_counter() + 0.05
            while time.perf_counter() < until:
                for _ in range(8):
                    values.sin_()
                torch.cuda.synchronize()
        clock = float(read_state(uuid).sm_clock_mhz or 0)
        if elapsed > least_s and abs(clock - last) <= 0.01 * clock:
            return
        last = clock


class _timed:
    """Adds the GPU's time from entry to exit to ``spent``."""

    def __init__(self, spent: Spent) -> None:
        self._spent = spent

    def __enter__(self) -> None:
        self._start = event()

    def __exit__(self, *error: object) -> None:
        end = event()
        end.synchronize()
        self._spent.busy_s += self._start.elapsed_time(end) / 1e3


def prepared(arm: TimedArm, launched: list[Inputs], regime: str) -> Launch:
    """What one sample of the arm runs, run once already."""
    arm.launch(launched[0])  # loads the binary: not possible during a capture
    torch.cuda.current_stream().synchronize()
    if regime == "eager":

        def eager() -> None:
            for inputs in launched:
                arm.launch(inputs)

        eager()
        return eager
    graph = torch.cuda.CUDAGraph()
    # Not `torch.cuda.graph`, which empties the allocator's cache around every capture.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            for inputs in launched:
                arm.launch(inputs)
        except BaseException:
            with suppress(Exception):  # the launch's own words are what is wanted
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    graph.replay()
    return graph.replay


def _clocks(states: list[DeviceState]) -> Clocks:
    mhz = [float(s.sm_clock_mhz or 0) for s in states]
    return Clocks(
        sm_mhz_low=min(mhz),
        sm_mhz_median=statistics.median(mhz),
        sm_mhz_high=max(mhz),
        temperature_c=max(float(s.temperature_c or 0) for s in states),
        power_w=max(float(s.power_w or 0) for s in states),
        throttle=sorted({r for s in states for r in s.throttle_reasons}),
    )
