"""Published figures against the same made again, and the one word that sums them up. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from occupancy_probe.records import (
    Change,
    Correctness,
    DeviceVerdict,
    Figure,
    Result,
)

Outcome = Literal["same", "moved", "reversed", "not comparable"]
Summary = Literal["reproduced", "reproduced in part", "reversed", "gone"]

TOLERANCE = 1e-9
"""Relative; the same samples give the same ratio up to the last digits of another NumPy or SciPy."""
_OPPOSITE = ({"faster", "slower"},)
_FIGURES = ("verdict", "time_us", "ratio", "low", "high", "p_adjusted", "noise_floor")


def compare_verdicts(
    old: DeviceVerdict, new: DeviceVerdict, by: str, measured_again: bool = False
) -> list[Figure]:
    """Every row and the decision of one device.

    by: who made the new ones, in words. measured_again: the new rows come from fresh samples, so a
    ratio counts as the same while the two intervals overlap and the verdict is the same.
    """
    kind: Literal["timing", "statistics"] = "timing" if measured_again else "statistics"
    where = f"{old.device_name}, {by}"
    known = {(r.arm, r.workload): r for r in new.results}
    versions = {"versions_before": old.versions, "versions_after": new.versions}
    figures = [
        Figure(
            kind=kind,
            subject=f"{row.arm} at {row.workload}",
            where=where,
            **_row(row, known.get((row.arm, row.workload)), measured_again),
            **versions,
        )
        for row in old.results
    ]
    same = old.adopted == new.adopted
    moved: Outcome = (
        "same" if same and (measured_again or old.decision == new.decision) else "moved"
    )
    shown = [Change(what="decision", before=old.decision, after=new.decision)]
    undecided = any(v.decision.startswith("no decision") for v in (old, new))
    outcome: Outcome = moved if same else "not comparable" if undecided else "reversed"
    return [
        *figures,
        Figure(
            kind=kind,
            subject="decision",
            where=where,
            outcome=outcome,
            changes=[] if outcome == "same" else shown,
            why=new.decision if outcome == "not comparable" else None,
            **versions,
        ),
    ]


def compare_correctness(
    old: Mapping[str, Correctness], new: Mapping[str, Correctness], device_name: str
) -> list[Figure]:
    """Per arm: its published check against what the interpreter says of its tile now (logic only)."""
    through = {arm: r for r in new.values() for arm in (r.arm, *r.stands_for)}
    figures = []
    for arm, before in old.items():
        after = through.get(arm)
        changes: list[Change] = []
        outcome: Outcome = "same"
        why = None
        if after is None:
            outcome, why = "not comparable", "the check did not run"
        elif (before.verdict == "right") != (after.verdict == "right"):
            outcome = "reversed"
            changes = [Change(what="verdict", before=before.verdict, after=after.verdict)]
            why = next((c.reason for c in after.checks if c.verdict != "right"), None)
            if before.mode != after.mode:
                changes = []
                outcome, said = "not comparable", f": {why}" if why else ""
                why = f"right on a GPU; the revision's logic check says {after.verdict}{said}"
                if before.verdict != "right":
                    why = f"{before.verdict} on a GPU, which the logic check cannot see"
        figures.append(
            Figure(
                kind="logic",
                subject=arm,
                where=f"{device_name} then, {after.device_name if after else 'nothing'} now",
                outcome=outcome,
                changes=changes,
                why=why,
                versions_before=before.versions,
                versions_after=after.versions if after else {},
            )
        )
    return figures


def sum_up(figures: Sequence[Figure]) -> Summary:
    """The verdict: *gone* if nothing could be compared, *reversed* if any conclusion turned round.

    What needs a GPU and was not measured again for want of one leaves *reproduced* as it is: the
    table names it.
    """
    compared = [f for f in figures if f.outcome != "not comparable"]
    if not compared:
        return "gone"
    if any(f.outcome == "reversed" for f in compared):
        return "reversed"
    missing = [f for f in figures if f.outcome == "not comparable" and f.kind != "timing"]
    if missing or any(f.outcome == "moved" for f in compared):
        return "reproduced in part"
    return "reproduced"


def tally(figures: Iterable[Figure]) -> dict[tuple[str, str], dict[Outcome, int]]:
    """How many figures of every kind and place are the same, moved, reversed, not comparable."""
    counts: dict[tuple[str, str], dict[Outcome, int]] = {}
    for f in figures:
        row = counts.setdefault(
            (f.kind, f.where), {"same": 0, "moved": 0, "reversed": 0, "not comparable": 0}
        )
        row[f.outcome] += 1
    return counts


def _row(old: Result, new: Result | None, measured_again: bool) -> dict[str, object]:
    if new is None:
        return {"outcome": "not comparable", "why": "no such row now"}
    if old.verdict != new.verdict and new.verdict in ("exploratory", "not measured"):
        why = f"{new.verdict} now" + (f": {new.reason}" if new.reason else "")
        return {"outcome": "not comparable", "why": why}
    changes = [
        Change(what=name, before=getattr(old, name), after=getattr(new, name))
        for name in (("verdict", "ratio", "time_us") if measured_again else _FIGURES)
        if not _equal(getattr(old, name), getattr(new, name))
    ]
    if old.verdict != new.verdict:
        turned = {old.verdict, new.verdict} in _OPPOSITE or _fell(old, new)
        return {"outcome": "reversed" if turned else "moved", "changes": changes}
    if measured_again:
        apart = not _overlap(old, new)
        return {"outcome": "moved" if apart else "same", "changes": changes if apart else []}
    return {"outcome": "moved" if changes else "same", "changes": changes}


def _fell(old: Result, new: Result) -> bool:
    """An arm that ran and was right, and is now rejected or wrong, or the other way round."""
    bad = {"rejected", "wrong"}
    known = old.verdict != "not measured"
    return known and (old.verdict in bad) != (new.verdict in bad)


def _overlap(a: Result, b: Result) -> bool:
    ends = (a.low, a.high, b.low, b.high)
    if any(e is None for e in ends):
        return a.ratio == b.ratio or a.ratio is None or b.ratio is None
    return (a.low or 0) <= (b.high or math.inf) and (b.low or 0) <= (a.high or math.inf)


def _equal(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=TOLERANCE) or (math.isnan(a) and math.isnan(b))
    return a == b
