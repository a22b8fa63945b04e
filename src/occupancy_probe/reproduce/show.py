"""Tables for people: a reproduction figure by figure, and the studies with their commits."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from occupancy_probe.records import Figure, Reproduction
from occupancy_probe.repository import StudyCommit
from occupancy_probe.reproduce.compare import tally
from occupancy_probe.reproduce.drift import changes_text, versions_text

PLAIN_WIDTH = 120
"""Columns where the output goes into a file or a pipe."""
SHOWN = 30
"""Figures that are not the same, one by one; the rest is in the record."""
_STYLES = {
    "same": "green",
    "moved": "yellow",
    "reversed": "red",
    "not comparable": "dim",
    "reproduced": "bold green",
    "reproduced in part": "bold yellow",
    "gone": "bold red",
}


def console() -> Console:
    """Standard output, as wide as its terminal."""
    wide = Console(highlight=False)
    return wide if wide.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def show_reproduction(found: Reproduction, record: str, out: Console | None = None) -> None:
    """Counts per kind, everything that is not the same, the versions, the verdict."""
    out = out or console()
    what = f"{found.revision} = {found.commit[:12]}, {found.committed_at[:10]}: {found.subject}"
    out.print(escape(what))
    out.print(
        f"study {escape(found.study)}, {found.workflow} workflow, {found.environment} environment\n"
    )
    counts = Table("figures", "of", "same", "moved", "reversed", "not comparable")
    for (kind, where), row in tally(found.figures).items():
        counts.add_row(kind, escape(where), *(str(row[k]) if row[k] else "·" for k in row))
    out.print(counts)
    _show_changes(out, [f for f in found.figures if f.outcome != "same"], record)
    for kind in ("feasibility", "logic", "timing"):
        if said := versions_text(f for f in found.figures if f.kind == kind):
            out.print(escape(f"versions, {kind}: {said}"))
    for note in found.notes:
        out.print(f"note: {escape(note)}")
    untried = any(f.kind == "timing" and f.outcome == "not comparable" for f in found.figures)
    rest = " (times were not measured again)" if untried else ""
    style = _STYLES.get(found.verdict, "bold red")
    out.print(f"[{style}]{found.commit[:12]}: {found.verdict}[/]{rest}")


def _show_changes(out: Console, figures: Sequence[Figure], record: str) -> None:
    if not figures:
        return
    moved = Table("figure", "of", "outcome", "from → to, or why not")
    order = {"reversed": 0, "not comparable": 1, "moved": 2}
    merged: dict[tuple[str, str, str], list[str]] = {}
    for f in sorted(figures, key=lambda f: (order[f.outcome], _telling(f))):
        key = (f"{f.kind}, {f.where}", f.outcome, changes_text(f))
        merged.setdefault(key, []).append(f.subject)
    for (where, outcome, said), names in list(merged.items())[:SHOWN]:
        who = ", ".join(names) if len(names) < 4 else f"{names[0]} … {names[-1]} ({len(names)})"
        moved.add_row(escape(who), escape(where), f"[{_STYLES[outcome]}]{outcome}[/]", escape(said))
    out.print(moved)
    if len(merged) > SHOWN:
        out.print(f"{len(merged) - SHOWN} more lines of this kind in {escape(record)}")


def _telling(f: Figure) -> int:
    """Residency before other figures, other figures before mere code."""
    what = {c.what for c in f.changes}
    return 0 if what & {"ctas_per_sm", "warps_per_sm"} else 1 if what - {"code_sha256"} else 2


def show_studies(
    rows: Sequence[tuple[str, StudyCommit, str, str]], out: Console | None = None
) -> None:
    """rows: name (``study@n``), commit, what it says of devices and Triton, its verdict."""
    out = out or console()
    table = Table("revision", "commit", "date", "stage", "device, Triton", "verdict")
    for name, made, device, verdict in rows:
        stage = "evidence" if made.stage == "validate" else made.stage or "–"
        where = "" if made.in_history else "\n(not in the history of HEAD)"
        table.add_row(
            escape(name),
            made.commit[:12],
            made.committed_at[:10],
            f"{escape(stage)}{where}",
            escape(device),
            escape(verdict),
        )
    out.print(table)
