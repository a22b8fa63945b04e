"""One replicate: fresh allocation, fresh graph captures, all arms interleaved in random blocks."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from occupancy_probe.execute.rotation import Rotation
from occupancy_probe.gpu import HARMLESS_REASONS, DeviceState, read_state
from occupancy_probe.launch import Inputs, Problem
from occupancy_probe.launch.padding import Padding
from occupancy_probe.records import Clocks, Replicate

_LEAD_CYCLES = 60_000
"""About 30 µs for which the GPU spins before a block, so that the queue is filled behind it: else the
first sample of a block would contain the time in which the CPU launches it."""

Launch = Callable[[], Any]


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


@dataclass
class Spent:
    """GPU seconds of samples.

    busy_s: seconds between CUDA events right before and right after work that was queued on the GPU:
    samples, the sweeps between them and the clock warm-up. Making inputs, captures and first
    launches count as idle, though the GPU works for a part of them: a lower bound.
    arms: per arm, its share of the samples.
    """

    busy_s: float = 0.0
    arms: dict[str, float] = field(default_factory=dict)

    def add(self, arm: str, milliseconds: float) -> None:
        self.busy_s += milliseconds / 1e3
        self.arms[arm] = self.arms.get(arm, 0.0) + milliseconds / 1e3


class Sweep:
    """Reads a buffer between samples, so that the inputs of the next one are not in the L2 cache."""

    def __init__(self, size: int) -> None:
        self._values = torch.zeros(size // 4, device="cuda") if size else None
        self._sum = torch.zeros((), device="cuda")

    def __bool__(self) -> bool:
        return self._values is not None

    def __call__(self) -> None:
        assert self._values is not None
        torch.sum(self._values, dim=0, out=self._sum)


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
        samples, states = _blocks(ready, rotation.launches, sweep, timing, rng, uuid, spent)
    finally:
        gc.enable()
    keep = steady(states, timing.clock_tolerance)
    return Replicate(
        process=place[0],
        allocation=place[1],
        device_uuid=uuid,
        arms={
            a: [round(v, 4) for v, k in zip(s, keep, strict=True) if k] for a, s in samples.items()
        },
        clocks=_clocks(states),
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


def event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


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


def _blocks(
    ready: dict[str, Launch],
    launches: int,
    sweep: Sweep,
    timing: Timing,
    rng: random.Random,
    uuid: str,
    spent: Spent,
) -> tuple[dict[str, list[float]], list[DeviceState]]:
    """All blocks; the next one is queued while one runs, so that the GPU does not wait."""
    samples: dict[str, list[float]] = {arm: [] for arm in ready}
    states: list[DeviceState] = []
    running: list[tuple[str, Any, Any, Any]] = []
    for block in range(timing.blocks + 1):
        queued = _queue(ready, sweep, rng) if block < timing.blocks else []
        if running:
            states.append(read_state(uuid))  # while the block runs, not in a pause after it
            running[-1][3].synchronize()
            for arm, before, start, end in running:
                samples[arm].append(start.elapsed_time(end) * 1e3 / launches)
                spent.add(arm, before.elapsed_time(end))
        running = queued
    return samples, states


def _queue(
    ready: dict[str, Launch], sweep: Sweep, rng: random.Random
) -> list[tuple[str, Any, Any, Any]]:
    """Every arm once in random order: its name, events before the sweep, before and after it."""
    torch.cuda._sleep(_LEAD_CYCLES)
    events = []
    for arm in shuffled(ready, rng):
        start = before = event()
        if sweep:
            sweep()
            start = event()
        ready[arm]()
        events.append((arm, before, start, event()))
    return events


def shuffled(items: Iterable[Any], rng: random.Random) -> list[Any]:
    order = list(items)
    rng.shuffle(order)
    return order


def steady(states: list[DeviceState], tolerance: float) -> list[bool]:
    """Which blocks count: no throttle reason, SM clock within ``tolerance`` of the median."""
    middle = statistics.median(s.sm_clock_mhz or 0 for s in states)
    return [
        not (set(s.throttle_reasons) - HARMLESS_REASONS)
        and abs((s.sm_clock_mhz or 0) - middle) <= tolerance * middle
        for s in states
    ]


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
