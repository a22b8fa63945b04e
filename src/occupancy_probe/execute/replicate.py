"""One replicate: fresh allocation, fresh graph captures, all arms interleaved in random blocks."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from occupancy_probe.gpu import DeviceState, read_state
from occupancy_probe.launch import Inputs, Problem
from occupancy_probe.records import Clocks, Replicate

_IDLE_REASONS = {"gpu idle", "idle", "applications clocks setting"}


@dataclass(frozen=True)
class Timing:
    """How a replicate is taken: see the ``measurement`` section of a study."""

    blocks: int
    regime: str
    clock_tolerance: float


def take_replicate(
    problem: Problem,
    axes: Mapping[str, Any],
    arms: Mapping[str, Mapping[str, Any]],
    sets: int,
    timing: Timing,
    place: tuple[int, int],
    seed: int,
    uuid: str,
    begin: Callable[[str], None] = lambda arm: None,
) -> Replicate:
    """Samples in µs per launch, one per block and arm.

    arms: name → config. sets: instances to rotate over. place: process and allocation number. seed:
    decides values, order of set-up and order within blocks. uuid: the GPU. begin: told each arm
    before it is launched for the first time.
    """
    rng = random.Random(seed)
    torch.cuda.empty_cache()
    pad = torch.empty(rng.randrange(1, 1 << 26), dtype=torch.uint8, device="cuda")
    first = problem.make_inputs(axes, "cuda", seed)
    instances = [first, *(problem.rotate(first, axes, seed + i) for i in range(1, sets))]
    gc.collect()
    gc.disable()  # from Triton 3.8 a collected kernel unloads its module, fatal during a capture
    try:
        graphs: dict[str, torch.cuda.CUDAGraph] = {}
        for arm in _shuffled(list(arms), rng):
            begin(arm)
            graphs[arm] = _capture(problem, instances, arms[arm])
        begin("")
        samples, states = _blocks(graphs, sets, timing, rng, uuid)
    finally:
        gc.enable()
    keep = _steady(states, timing.clock_tolerance)
    del pad
    return Replicate(
        process=place[0],
        allocation=place[1],
        arms={
            a: [round(v, 4) for v, k in zip(s, keep, strict=True) if k] for a, s in samples.items()
        },
        clocks=_clocks(states),
        dropped=keep.count(False),
    )


def warm_up(uuid: str, least_s: float = 0.3, most_s: float = 3.0) -> None:
    """Keep the GPU busy until its SM clock has stopped moving (1 % between looks 50 ms apart)."""
    busy = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    started, last = time.perf_counter(), 0.0
    while (elapsed := time.perf_counter() - started) < most_s:
        until = time.perf_counter() + 0.05
        while time.perf_counter() < until:
            busy @ busy
            torch.cuda.synchronize()
        clock = float(read_state(uuid).sm_clock_mhz or 0)
        if elapsed > least_s and abs(clock - last) <= 0.01 * clock:
            return
        last = clock


def _capture(
    problem: Problem, instances: list[Inputs], config: Mapping[str, Any]
) -> torch.cuda.CUDAGraph:
    """A graph with one launch per instance; run eagerly once first so that nothing compiles inside."""
    problem.launch(instances[0], config)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for instance in instances:
            problem.launch(instance, config)
    graph.replay()
    torch.cuda.synchronize()
    return graph


def _blocks(
    graphs: dict[str, torch.cuda.CUDAGraph],
    sets: int,
    timing: Timing,
    rng: random.Random,
    uuid: str,
) -> tuple[dict[str, list[float]], list[DeviceState]]:
    samples: dict[str, list[float]] = {arm: [] for arm in graphs}
    states = []
    for _ in range(timing.blocks):
        events = {}
        for arm in _shuffled(list(graphs), rng):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graphs[arm].replay()
            end.record()
            events[arm] = (start, end)
        states.append(read_state(uuid))  # while the block runs, not in the pause after it
        torch.cuda.synchronize()
        for arm, (start, end) in events.items():
            samples[arm].append(start.elapsed_time(end) * 1e3 / sets)
    return samples, states


def _shuffled(items: list[str], rng: random.Random) -> list[str]:
    rng.shuffle(items)
    return items


def _steady(states: list[DeviceState], tolerance: float) -> list[bool]:
    """Which blocks count: no throttle reason, SM clock within ``tolerance`` of the median."""
    middle = statistics.median(s.sm_clock_mhz or 0 for s in states)
    return [
        not (set(s.throttle_reasons) - _IDLE_REASONS)
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
