"""Two feasibility matrices of one study, held against each other: what another compiler changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from occupancy_probe.records import Change, Feasibility, Figure

Matrix = Mapping[str, Mapping[str, Feasibility]]
"""Feasibility by target and arm."""

COMPARED = (
    "verdict",
    "registers",
    "shared_bytes",
    "tensor_memory_columns",
    "stack_bytes",
    "spill_store_bytes",
    "spill_load_bytes",
    "ctas_per_sm",
    "warps_per_sm",
    "limiter",
    "same_code_as",
    "code_sha256",
)
"""What is compared, the most telling first; code alone may differ without any figure doing so."""


def compare_matrices(old: Matrix, new: Matrix) -> list[Figure]:
    """One figure per target and arm of either matrix, in the order of ``old``; a pure function.

    *reversed* where the verdict is another, *moved* where any other value is, *not comparable* where
    one side has no record or the config is another.
    """
    figures = []
    for target in dict.fromkeys((*old, *new)):
        before, after = old.get(target, {}), new.get(target, {})
        for arm in dict.fromkeys((*before, *after)):
            figures.append(_figure(arm, target, before.get(arm), after.get(arm)))
    return figures


def verdict_changes(figures: Iterable[Figure]) -> list[str]:
    """One line per arm whose verdict is another, with both sets of versions: what CI fails on."""
    return [
        f"{f.subject} on {f.where}: {change.before} → {change.after}"
        f" ({_words(f.versions_before)} → {_words(f.versions_after)})"
        for f in figures
        for change in f.changes
        if f.outcome == "reversed" and change.what == "verdict"
    ]


def _figure(arm: str, target: str, old: Feasibility | None, new: Feasibility | None) -> Figure:
    outcome: Literal["same", "moved", "reversed", "not comparable"] = "not comparable"
    changes: list[Change] = []
    why = None
    if old is None or new is None:
        why = f"no record {'before' if old is None else 'now'}"
    elif old.config != new.config:
        why = f"config {old.config} is now {new.config}"
    else:
        for name in COMPARED:
            before, after = getattr(old, name), getattr(new, name)
            if before != after:
                changes.append(Change(what=name, before=before, after=after))
        turned = any(c.what == "verdict" for c in changes)
        outcome = "reversed" if turned else "moved" if changes else "same"
        if turned:
            why = "; ".join(r.text for r in (*old.reasons, *new.reasons)) or None
    return Figure(
        kind="feasibility",
        subject=arm,
        where=target,
        outcome=outcome,
        changes=changes,
        why=why,
        versions_before=old.versions if old else {},
        versions_after=new.versions if new else {},
    )


def changes_text(figure: Figure) -> str:
    """Changes in words; that the code is another is said where no figure shows it."""
    changes = [c for c in figure.changes if c.what != "code_sha256"]
    if figure.changes and not changes:
        return "other machine code, the same figures"
    said = (f"{c.what} {_value(c.before)} → {_value(c.after)}" for c in changes)
    return "; ".join([*said, *([figure.why] if figure.why else [])])


def versions_text(figures: Iterable[Figure]) -> str:
    """Both sets of versions, ``triton 3.6.0 ptxas 12.8 → triton 3.7.1 ptxas 12.8``, each once."""
    pairs = dict.fromkeys(
        (_words(f.versions_before), _words(f.versions_after))
        for f in figures
        if f.versions_before and f.versions_after
    )
    return "; ".join(a if a == b else f"{a} → {b}" for a, b in pairs)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    text = "none" if value is None else str(value)
    return text if len(text) <= 160 else f"{text[:157]}…"


def _words(versions: Mapping[str, str]) -> str:
    return " ".join(f"{k} {v}" for k, v in versions.items()) or "versions not recorded"
