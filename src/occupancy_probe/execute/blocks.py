"""Blocks of a replicate: all arms once in random order, the device watched, unsteady ones taken again."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch

from occupancy_probe.gpu import HARMLESS_REASONS, DeviceState

_LEAD_CYCLES = 60_000
"""About 30 µs for which the GPU spins before a block, so that the queue is filled behind it: else the
first sample of a block would contain the time in which the CPU launches it."""

MOST = 3
"""Blocks taken in all, as a multiple of those that are wanted steady."""
REST_S, MOST_REST_S = 0.2, 0.8
"""Pause before the next block once one was unsteady, doubled while they are: the power limit looks at
an average."""
WATCH_S = 0.02
"""Between two looks at the device while a block runs."""

Launch = Callable[[], Any]


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


class Block:
    """Every arm once in random order, queued on the GPU."""

    def __init__(self, ready: Mapping[str, Launch], sweep: Sweep, rng: random.Random) -> None:
        torch.cuda._sleep(_LEAD_CYCLES)
        self._events = []
        for arm in shuffled(ready, rng):
            start = before = event()
            if sweep:
                sweep()
                start = event()
            ready[arm]()
            self._events.append((arm, before, start, event()))

    def ended(self) -> bool:
        done: bool = self._events[-1][3].query()
        return done

    def times(self, spent: Spent) -> dict[str, float]:
        """Milliseconds of each arm, sweeps not counted; they are in ``spent``."""
        for arm, before, _, end in self._events:
            spent.add(arm, before.elapsed_time(end))
        return {arm: start.elapsed_time(end) for arm, _, start, end in self._events}


class _Queued(Protocol):
    def ended(self) -> bool: ...


BlockT = TypeVar("BlockT", bound=_Queued)


def take_blocks(
    queue: Callable[[], BlockT],
    wanted: int,
    read: Callable[[], DeviceState],
    tolerance: float,
    rest_s: float = REST_S,
) -> list[tuple[BlockT, list[DeviceState]]]:
    """``wanted`` steady blocks and the unsteady ones among them, each with the states seen meanwhile.

    The next block is queued while one runs, so that the GPU does not wait. From the first unsteady
    one on, each runs by itself and the GPU rests before the next: a long block at the power limit
    needs that. What is unsteady is taken again, up to ``MOST`` times ``wanted`` blocks in all.
    """
    taken: list[tuple[BlockT, list[DeviceState]]] = []
    running: BlockT | None = None
    calm = True
    while True:
        flying = running is not None
        kept = sum(steady([states for _, states in taken], tolerance))
        more = kept + flying < wanted and len(taken) + flying < MOST * wanted
        if not more and not flying:
            return taken
        if not flying and not calm:
            time.sleep(rest_s)
        queued = queue() if more and (calm or not flying) else None
        if running is not None:
            taken.append((running, _watched(running, read)))
            if not steady([states for _, states in taken], tolerance)[-1]:
                calm, rest_s = False, rest_s if calm else min(2 * rest_s, MOST_REST_S)
        running = queued


def _watched(block: _Queued, read: Callable[[], DeviceState]) -> list[DeviceState]:
    """States of the device while ``block`` runs, not in a pause after it."""
    states, last = [read()], time.monotonic()
    while not block.ended():
        if time.monotonic() - last < WATCH_S:
            time.sleep(0.0002)
        else:
            states.append(read())
            last = time.monotonic()
    return states


def steady(blocks: Sequence[Sequence[DeviceState]], tolerance: float) -> list[bool]:
    """Which blocks count: in no state a throttle reason, or an SM clock off the median by ``tolerance``."""
    every = [s for states in blocks for s in states]
    # A throttled clock says nothing of what a steady one would be.
    middle = statistics.median([s.sm_clock_mhz or 0 for s in every if not _throttled(s)] or [0])
    return [
        not any(
            _throttled(s) or abs((s.sm_clock_mhz or 0) - middle) > tolerance * middle
            for s in states
        )
        for states in blocks
    ]


def _throttled(state: DeviceState) -> bool:
    return bool(set(state.throttle_reasons) - HARMLESS_REASONS)


def event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def shuffled(items: Iterable[Any], rng: random.Random) -> list[Any]:
    order = list(items)
    rng.shuffle(order)
    return order
