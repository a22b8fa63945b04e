"""What a device's records cost in GPU time (held, busy, and for what), and the blocks they lost."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from occupancy_probe.gpu import HARMLESS_REASONS
from occupancy_probe.records import Dose, Drops, GpuUse, Measurement, Replicate
from occupancy_probe.validate.collect import DeviceRecords


def gpu_use(records: DeviceRecords) -> GpuUse | None:
    """Sums over measurement, confirmation and doses; None where nothing was measured.

    The parts add up: to ``held_seconds`` the workloads, the confirmation, the doses and the
    hand-over, to ``busy_seconds`` the arms, the doses and the warm-up.
    """
    measured, again = list(records.measurements.values()), list(records.confirmations.values())
    timed, doses = [*measured, *again], list(records.doses.values())
    everything: list[Measurement | Dose] = [*timed, *doses]
    if not everything:
        return None
    arms: dict[str, float] = defaultdict(float)
    for m in timed:
        for arm, seconds in m.arm_seconds.items():
            arms[arm] += seconds
    held = math.fsum(r.held_seconds for r in everything)
    handover = held - math.fsum(r.gpu_seconds for r in everything)
    warm_up = math.fsum(m.busy_seconds for m in timed) - math.fsum(arms.values())
    blocks = [
        *(_blocks(m.workload, m.replicates) for m in measured),
        *(_blocks(m.workload, m.replicates, again=True) for m in again),
        *(_blocks(w, found, doses=True) for w, found in _common(doses).items()),
    ]
    seen = [*(r for m in timed for r in m.replicates), *_all(doses)]
    return GpuUse(
        held_seconds=held,
        busy_seconds=math.fsum(r.busy_seconds for r in everything),
        workloads={m.workload: round(m.gpu_seconds, 3) for m in measured},
        again_seconds=round(math.fsum(m.gpu_seconds for m in again), 3),
        dose_seconds=round(math.fsum(d.gpu_seconds for d in doses), 3),
        handover_seconds=round(handover, 3)
        if handover >= 0 and all(r.held_seconds for r in everything)
        else None,
        arms={a: round(s, 3) for a, s in sorted(arms.items(), key=lambda kv: -kv[1])},
        dose_busy_seconds=round(math.fsum(d.busy_seconds for d in doses), 3),
        warm_up_seconds=round(warm_up, 3) if all(m.arm_seconds for m in timed) else None,
        blocks=sum(b.blocks for b in blocks),
        dropped=sum(b.dropped for b in blocks),
        drops=[b for b in blocks if b.dropped],
        uuids=sorted(
            {r.device_uuid for r in everything} | {r.device_uuid for r in seen if r.device_uuid}
        ),
    )


def _all(doses: Iterable[Dose]) -> list[Replicate]:
    return [r for d in doses for found in d.replicates.values() for r in found]


def _common(doses: Iterable[Dose]) -> dict[str, list[Replicate]]:
    """By workload: arms of one run share their blocks, so each is taken from one record alone."""
    found: dict[str, dict[tuple[str, int, int], Replicate]] = defaultdict(dict)
    for d in doses:
        for workload, replicates in d.replicates.items():
            for r in replicates:
                found[workload].setdefault((d.started_at, r.process, r.allocation), r)
    return {workload: list(own.values()) for workload, own in found.items()}


def _blocks(
    workload: str, replicates: Sequence[Replicate], again: bool = False, doses: bool = False
) -> Drops:
    processes = {r.process for r in replicates}
    kept = [max(map(len, r.arms.values()), default=0) for r in replicates]
    dropped = sum(r.dropped for r in replicates)
    seen = {t for r in replicates if r.dropped and r.clocks for t in r.clocks.throttle}
    return Drops(
        workload=workload,
        again=again,
        doses=doses,
        blocks=sum(kept) + dropped,
        dropped=dropped,
        reasons=sorted(seen - HARMLESS_REASONS),
        empty=len(processes - {r.process for r, n in zip(replicates, kept, strict=True) if n}),
    )
