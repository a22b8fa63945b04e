"""What a device's records cost in GPU time (held, busy, per arm and workload), and blocks they lost."""

from __future__ import annotations

import math
from collections import defaultdict

from occupancy_probe.gpu import HARMLESS_REASONS
from occupancy_probe.records import Drops, GpuUse, Measurement
from occupancy_probe.validate.collect import DeviceRecords


def gpu_use(records: DeviceRecords) -> GpuUse | None:
    """Sums over measurement, confirmation and doses; None where nothing was measured."""
    timed = [*records.measurements.values(), *records.confirmations.values()]
    doses = list(records.doses.values())
    if not timed:
        return None
    arms: dict[str, float] = defaultdict(float)
    workloads: dict[str, float] = defaultdict(float)
    for m in timed:
        workloads[m.workload] += m.gpu_seconds
        for arm, seconds in m.arm_seconds.items():
            arms[arm] += seconds
    blocks = [_blocks(m) for m in records.measurements.values()]
    blocks += [_blocks(m, again=True) for m in records.confirmations.values()]
    found = {r.device_uuid for m in timed for r in m.replicates if r.device_uuid} | {
        m.device_uuid for m in timed
    }
    return GpuUse(
        held_seconds=math.fsum(
            [*(m.held_seconds for m in timed), *(d.held_seconds for d in doses)]
        ),
        busy_seconds=math.fsum(
            [*(m.busy_seconds for m in timed), *(d.busy_seconds for d in doses)]
        ),
        workloads={w: round(s, 3) for w, s in workloads.items()},
        arms={a: round(s, 3) for a, s in sorted(arms.items(), key=lambda kv: -kv[1])},
        blocks=sum(b.blocks for b in blocks),
        dropped=sum(b.dropped for b in blocks),
        drops=[b for b in blocks if b.dropped],
        uuids=sorted(found),
    )


def _blocks(measurement: Measurement, again: bool = False) -> Drops:
    replicates = measurement.replicates
    processes = {r.process for r in replicates}
    kept = [max(map(len, r.arms.values()), default=0) for r in replicates]
    dropped = sum(r.dropped for r in replicates)
    seen = {t for r in replicates if r.dropped and r.clocks for t in r.clocks.throttle}
    return Drops(
        workload=measurement.workload,
        again=again,
        blocks=sum(kept) + dropped,
        dropped=dropped,
        reasons=sorted(seen - HARMLESS_REASONS),
        empty=len(processes - {r.process for r, n in zip(replicates, kept, strict=True) if n}),
    )
