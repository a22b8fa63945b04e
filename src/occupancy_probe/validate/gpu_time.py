"""What a device's records cost in GPU time: held, busy, per arm and workload."""

from __future__ import annotations

from collections import defaultdict

from occupancy_probe.records import GpuUse
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
    replicates = [r for m in timed for r in m.replicates]
    kept = [max(map(len, r.arms.values()), default=0) for r in replicates]
    dropped = sum(r.dropped for r in replicates)
    found = {r.device_uuid for r in replicates if r.device_uuid} | {m.device_uuid for m in timed}
    return GpuUse(
        held_seconds=sum(m.held_seconds for m in timed) + sum(d.held_seconds for d in doses),
        busy_seconds=sum(m.busy_seconds for m in timed) + sum(d.busy_seconds for d in doses),
        workloads={w: round(s, 3) for w, s in workloads.items()},
        arms={a: round(s, 3) for a, s in sorted(arms.items(), key=lambda kv: -kv[1])},
        blocks=sum(kept) + dropped,
        dropped=dropped,
        uuids=sorted(found),
    )
