"""Whether a measurement was registered: its plan committed, in this history, before its first sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from occupancy_probe.records import Measurement, Plan, PlanCommit


def not_preregistered(
    measurement: Measurement,
    plan: Plan,
    commit: PlanCommit | None,
    is_ancestor: Callable[[str], bool],
    committed_at: Mapping[str, str],
    earlier: Mapping[str, str] | None = None,
) -> str | None:
    """Why this measurement carries no verdict; None if its plan was committed before its samples.

    is_ancestor: whether a commit is HEAD or an ancestor of it. committed_at: times of commits, other
    than ``commit``, that hold this very plan. earlier: by hash, what sets other plans apart from it.
    Times of commits have a resolution of 1 s, so a sample of the same second came after its plan.
    """
    name = measurement.plan_commit
    if name is None:
        return "measured without a plan commit"
    if measurement.depends.get("plan") != plan.plan_hash:
        words = (earlier or {}).get(measurement.depends.get("plan", ""), "another plan")
        return f"measured under {words}"
    when: str | None
    if commit is not None and commit.commit == name:
        if commit.plan_hash != plan.plan_hash:
            return f"the plan was edited after its commit {name[:12]}"
        if not commit.preregistered:
            return commit.note or "the plan commit does not count as a pre-registration"
        when = commit.committed_at
    else:
        when = committed_at.get(name)
    if not is_ancestor(name):
        return (
            f"plan commit {name[:12]} is not in the history of HEAD (rewritten since, or a shallow"
            " clone: git fetch --unshallow)"
        )
    if when is None:
        return f"plan commit {name[:12]} is not known to hold this plan"
    try:
        early = _time(when) <= _time(measurement.started_at)
    except ValueError:
        return f"no valid times: committed {when!r}, first sample {measurement.started_at!r}"
    return None if early else f"plan committed {when}, first sample {measurement.started_at}"


def _time(text: str) -> datetime:
    """An ISO 8601 time; without a zone it is UTC."""
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
