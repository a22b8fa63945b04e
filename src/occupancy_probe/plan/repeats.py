"""Measurements of the same plan that a later one replaced: whoever repeats until it fits is seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from occupancy_probe.records import DeviceVerdict, Plan
from occupancy_probe.repository import Repository, StudyCommit

SAMPLED = ("measurement", "confirmation", "dose")
"""Folders of a device's evidence that hold samples."""


@dataclass(frozen=True)
class Repeat:
    """Samples of a device under this plan that are not the present ones, and what they decided."""

    device_name: str
    committed_at: str
    commit: str
    """The first that holds them; later ones only render them anew."""
    decision: str


def measured_before(
    repository: Repository,
    commits: Iterable[StudyCommit],
    plan: Plan,
    evidence: Path,
    devices: Iterable[DeviceVerdict],
) -> list[Repeat]:
    """What ``commits`` (oldest first) published under ``plan`` of ``devices`` with other samples.

    evidence: the study's folder of evidence, a folder per device in it.
    """
    made_under = [c for c in commits if c.trailers.get("Plan-Hash") == plan.plan_hash]
    found = []
    for device in devices:
        folders = [evidence / device.device / kind for kind in SAMPLED]
        files = sorted(path for folder in folders for path in folder.glob("[!.]*.json"))
        present = zip(map(repository.name_of, files), repository.blobs_of(files), strict=True)
        seen = {frozenset(present)}
        for made in made_under:
            if made.trailers.get("Device") != device.device:
                continue
            then = frozenset(
                repository.blobs_at(made.commit, *map(repository.name_of, folders)).items()
            )
            if then and then not in seen:
                seen.add(then)
                said = made.trailers.get("Decision", "not said")
                found.append(Repeat(device.device_name, made.committed_at, made.commit, said))
    return sorted(found, key=lambda r: r.committed_at)
