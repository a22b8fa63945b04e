"""What public A/B modes do, for comparison: one allocation, one capture, single samples as units."""

from __future__ import annotations

import random
from collections.abc import Mapping

import torch

from occupancy_probe.execute.blocks import event, shuffled
from occupancy_probe.execute.replicate import TimedArm, prepared
from occupancy_probe.execute.rotation import Rotation
from occupancy_probe.launch import Inputs


def take_classical(
    arms: Mapping[str, TimedArm],
    instances: list[Inputs],
    rotation: Rotation,
    samples: int,
    rng: random.Random,
) -> dict[str, dict[str, list[float]]]:
    """``samples`` of each arm in µs per launch: ``interleaved`` in random order, and ``sequential``."""
    launched = [instances[i % len(instances)] for i in range(rotation.launches)]
    ready = {name: prepared(arm, launched, "warm") for name, arm in arms.items()}
    mixed = [name for _ in range(samples) for name in shuffled(ready, rng)]
    one_by_one = [name for name in ready for _ in range(samples)]
    found = {}
    for method, order in (("interleaved", mixed), ("sequential", one_by_one)):
        events = []
        for name in order:
            start = event()
            ready[name]()
            events.append((name, start, event()))
        torch.cuda.synchronize()
        found[method] = {
            arm: [
                round(start.elapsed_time(end) * 1e3 / rotation.launches, 4)
                for name, start, end in events
                if name == arm
            ]
            for arm in ready
        }
    return found
