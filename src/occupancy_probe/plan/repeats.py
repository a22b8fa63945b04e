"""Measurements of the same plan that a later one replaced: whoever repeats until it fits is seen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from occupancy_probe.records import DeviceVerdict, Plan
from occupancy_probe.repository import Repository, StudyCommit


@dataclass(frozen=True)
class Repeat:
    """An earlier measurement of a device under this plan, and what was decided from it."""

    device_name: str
    measured_at: str
    commit: str
    """The first that holds it; later ones only render it anew."""
    decision: str


def measured_before(
    repository: Repository,
    commits: Iterable[StudyCommit],
    plan: Plan,
    evidence: Path,
    devices: Iterable[DeviceVerdict],
) -> list[Repeat]:
    """What ``commits`` published under ``plan`` of each of ``devices`` before its present samples.

    evidence: the study's folder of evidence, a folder per device in it. Oldest first.
    """
    now = {d.device: d for d in devices}
    found: dict[tuple[str, str], Repeat] = {}
    for made in commits:
        device = now.get(made.trailers.get("Device", ""))
        if (
            device is None
            or made.trailers.get("Plan-Hash") != plan.plan_hash
            or not made.in_history
        ):
            continue
        path = repository.name_of(evidence / device.device / "verdict.json")
        then = _device(repository.text_at(made.commit, path), device.device)
        at = str(then.get("measured_at", ""))
        if at and at < device.measured_at:
            said = str(then.get("decision", "not said"))
            found.setdefault((device.device, at), Repeat(device.device_name, at, made.commit, said))
    return sorted(found.values(), key=lambda r: r.measured_at)


def _device(verdict: str | None, slug: str) -> Mapping[str, object]:
    try:
        devices = json.loads(verdict or "{}").get("devices", [])
    except ValueError:
        return {}
    return next((d for d in devices if d.get("device") == slug), {})
