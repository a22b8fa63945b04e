"""A study's outcome: as this machine sees it, and as everybody sees it who has the evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from occupancy_probe.digest import digest
from occupancy_probe.exc import RepositoryError, StudyError
from occupancy_probe.plan.document import render_document
from occupancy_probe.records import Verdict, write_text
from occupancy_probe.repository import Repository
from occupancy_probe.study import BASELINE, Study
from occupancy_probe.validate.collect import Collected, collect
from occupancy_probe.validate.verdict import judge


@dataclass(frozen=True)
class Outcome:
    """The records that count, and what the rule says of them."""

    collected: Collected
    verdict: Verdict


def here(study: Study, results: Path) -> Outcome:
    """From this machine's records and the evidence; StudyError when no arm is left to compare."""
    collected = collect(results, study.launch_digest)
    _require_arms(study, collected)
    return Outcome(collected, judge(study, collected, _ancestry()))


def published(study: Study, results: Path) -> Outcome:
    """From the evidence alone: the same on every machine that has the same commits."""
    collected = collect(results, study.launch_digest, published_only=True)
    return Outcome(collected, judge(study, collected, _ancestry()))


def fill_document(study: Study, results: Path, templates: Path, found: Outcome) -> Path:
    """Bring the plan document up to date and return its path.

    It shows what was measured here if anything was, else the evidence, so that a clone that
    measures nothing leaves it as it was published. RepositoryError rather than overwriting an edit.
    """
    path = results / f"{study.file.document}.md"
    shown = found
    if not any(d.source == "measured here" for d in found.verdict.devices):
        shown = published(study, results)
        if not shown.verdict.devices or _lacks_history():
            return path
    matrix = shown.collected.feasibility
    text = render_document(shown.collected.plan, templates, shown.verdict, matrix)
    stamp = results / "document.digest"
    current = path.read_text(encoding="utf-8") if path.exists() else ""
    if current == text:
        return path
    ours = stamp.exists() and stamp.read_text(encoding="utf-8") == digest(current)
    if current and not ours and not _committed(path, current):
        raise RepositoryError(
            f"{path}: edited by hand and not committed; the table is filled from records, so commit"
            f" your text or `git checkout -- {path}`"
        )
    write_text(path, text)
    write_text(stamp, digest(text))
    return path


def _require_arms(study: Study, collected: Collected) -> None:
    """At least one arm beside the baseline must fit somewhere."""
    left = {
        r.arm
        for arms in collected.feasibility.values()
        for r in arms.values()
        if r.verdict == "fits"
    }
    if left - {BASELINE}:
        return
    reasons = {
        f"{r.target}: {reason.text}"
        for arms in collected.feasibility.values()
        for r in arms.values()
        for reason in r.reasons
    }
    raise StudyError(
        f"{study.path}: arms: none fits on {', '.join(study.file.targets)}"
        f" ({'; '.join(sorted(reasons)[:3])}); declare smaller tiles or fewer stages"
    )


def _ancestry() -> Callable[[str], bool]:
    try:
        return Repository.around(Path.cwd()).is_ancestor
    except RepositoryError:
        return lambda commit: False


def _lacks_history() -> bool:
    try:
        return Repository.around(Path.cwd()).shallow
    except RepositoryError:
        return True


def _committed(path: Path, current: str) -> bool:
    try:
        return Repository.around(Path.cwd()).committed_text(path) == current
    except RepositoryError:
        return False
