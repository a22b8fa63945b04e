"""Where the arm that a device adopted is to be used, and what it costs elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from occupancy_probe.records import DeviceVerdict
from occupancy_probe.study import BASELINE, NULL, Study


def threshold(study: Study, device: DeviceVerdict) -> tuple[str, float] | None:
    """Axis and value from which on the arm is adopted; None if it is adopted everywhere, or none is."""
    ruling, axis = device.ruling, study.file.decision.above
    if device.adopted is None or ruling is None or ruling.above is None or axis is None:
        return None
    return axis, ruling.above


def condition(study: Study, device: DeviceVerdict) -> str:
    """``only for concurrency >= 96``; empty where there is none."""
    at = threshold(study, device)
    return f"only for {at[0]} >= {at[1]:g}" if at else ""


def arm_in_force(study: Study, device: DeviceVerdict, axes: Mapping[str, Any]) -> str:
    """The arm that the decision wants at a workload with these axes: the adopted one, or the baseline."""
    at = threshold(study, device)
    if device.adopted is None or (at and not axes.get(at[0], float("-inf")) >= at[1]):
        return BASELINE
    return device.adopted


def loss_elsewhere(study: Study, device: DeviceVerdict) -> tuple[float, str] | None:
    """Largest loss of the adopted arm to the baseline where it is not adopted, and at which workload."""
    axes = {w.name: w.axes for w in study.workloads}
    lost = [
        (r.ratio - 1, r.workload)
        for r in device.results
        if r.arm == device.adopted
        and r.ratio is not None
        and r.ratio > 1
        and arm_in_force(study, device, axes[r.workload]) == BASELINE
    ]
    return max(lost, default=None)


def times(device: DeviceVerdict) -> dict[str, dict[str, float]]:
    """µs by workload and arm, of all that was timed, is right and is code of its own."""
    found: dict[str, dict[str, float]] = {}
    for r in device.results:
        twin = (r.reason or "").startswith("same code as")
        if r.time_us and r.arm != NULL and r.verdict not in ("wrong", "rejected") and not twin:
            found.setdefault(r.workload, {})[r.arm] = r.time_us
    return found
