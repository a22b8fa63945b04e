"""Plans that replaced a committed one: said in the commit's message, listed from history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from occupancy_probe.repository import StudyCommit

STAGE = "amendment"
WHY = "Why: "
NO_REASON = "no reason was given"


@dataclass(frozen=True)
class Amendment:
    """One amendment: where it is committed, why it was made, what it changed."""

    commit: str | None
    """None: the commit that holds this very document."""
    committed_at: str
    why: str
    changes: tuple[str, ...]


def amendments_of(commits: Iterable[StudyCommit], study: str) -> list[Amendment]:
    """The amendments of ``study`` that HEAD descends from, oldest first."""
    found = []
    for made in commits:
        if made.study != study or made.stage != STAGE or not made.in_history:
            continue
        lines = made.body.splitlines()
        why = next((x.removeprefix(WHY) for x in lines if x.startswith(WHY)), NO_REASON)
        changes = tuple(x.removeprefix("- ") for x in lines if x.startswith("- "))
        found.append(Amendment(made.commit, made.committed_at, why, changes))
    return found
