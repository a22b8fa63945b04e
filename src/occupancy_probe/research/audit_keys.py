"""What the autotuner's key makes of the launches: buckets, and what varies unseen inside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from occupancy_probe.launch.autotune import Touch
from occupancy_probe.records import Bucket, KeyReached
from occupancy_probe.study import Workload


def buckets_of(touches: Sequence[Touch]) -> list[Bucket]:
    grouped: dict[tuple[Any, ...], list[Touch]] = {}
    for touch in touches:
        if touch.arguments != ((), {}):
            grouped.setdefault(touch.key, []).append(touch)
    return [
        Bucket(
            key=group[0].values,
            dtypes=_dtypes(group[0]),
            workloads=[t.workload for t in group],
            grids=[_grid(t) for t in group],
            configs=len(group[0].benched),
        )
        for group in grouped.values()
    ]


def reached(touch: Touch) -> KeyReached:
    return KeyReached(workload=touch.workload, key=touch.values, dtypes=_dtypes(touch))


def _dtypes(touch: Touch) -> list[str]:
    return [str(k).removeprefix("torch.") for k in touch.key[len(touch.values) :]]


def _grid(touch: Touch) -> list[int]:
    tried = [touch.launched, *touch.benched]
    return next((b.call.grid for b in tried if b and b.call), [0])


def _groups(touches: Sequence[Touch]) -> list[list[Touch]]:
    grouped: dict[tuple[Any, ...], list[Touch]] = {}
    for touch in touches:
        if touch.launched and touch.launched.call:
            grouped.setdefault(touch.key, []).append(touch)
    return list(grouped.values())


def _scalars(touch: Touch) -> dict[str, Any]:
    call = touch.launched.call if touch.launched else None
    return dict(call.scalars) if call else {}


def blind_arguments(touches: Sequence[Touch]) -> list[str]:
    """Scalar arguments that differ between launches of one bucket."""
    found = {
        name
        for group in _groups(touches)
        for name in _scalars(group[0])
        if any(_scalars(t).get(name) != _scalars(group[0])[name] for t in group)
    }
    return sorted(found)


def grid_blind(workloads: Sequence[Workload], touches: Sequence[Touch]) -> list[str]:
    """Axes, and arguments beside them, whose change alone changes the grid within a bucket.

    Where no two workloads differ in one thing only, all that varies with the grid is named.
    """
    axes = {w.name: w.axes for w in workloads}
    alone: dict[str, None] = {}
    together: dict[str, None] = {}
    for group in _groups(touches):
        named = [{**_scalars(t), **axes.get(t.workload, {})} for t in group]
        for i, one in enumerate(named):
            for j in range(i):
                if _grid(group[i]) == _grid(group[j]):
                    continue
                differing = [a for a in one if one[a] != named[j].get(a)]
                declared = [a for a in differing if a in axes.get(group[i].workload, {})]
                (alone if len(declared or differing) == 1 else together).update(
                    dict.fromkeys(declared or differing)
                )
    return list(alone or together)
