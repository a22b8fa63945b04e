"""A past revision, figure by figure: what it published, made again and held against it."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from occupancy_probe.exc import ProbeError, RecordError
from occupancy_probe.records import (
    Change,
    Correctness,
    DeviceVerdict,
    Feasibility,
    Figure,
    Plan,
    Record,
    Reproduction,
    Verdict,
    read_record,
    write_record,
)
from occupancy_probe.repository import Repository
from occupancy_probe.reproduce.compare import compare_correctness, compare_verdicts, sum_up
from occupancy_probe.reproduce.drift import compare_matrices
from occupancy_probe.reproduce.rerun import locked_python, own_tree, run_workflow
from occupancy_probe.reproduce.revision import Revision

R = TypeVar("R", bound=Record)
SHOWN_LINES = 5
"""Of a document that reads otherwise now."""
INTERPRETER = "interpreter"


@dataclass(frozen=True)
class Today:
    """What today's code has to say; passed in, since stages do not know each other."""

    judge: Callable[[Path, Path], Verdict]
    """From a study file and its results in a work tree: the verdict on the evidence alone."""
    differences: Callable[[Plan, Plan], Sequence[str]]
    snakefile: Path
    """The workflow for revisions that bring none."""


def reproduce(
    repository: Repository,
    revision: Revision,
    root: Path,
    today: Today,
    environment: Literal["present", "locked"] = "present",
) -> Reproduction:
    """Run the revision's workflow in a work tree below ``root`` and compare all that it published.

    Nothing else of the repository changes. The record is also written to
    ``root/<commit>/reproduction.json``, beside the log of the run.
    """
    folder = root / revision.short
    log = folder / "workflow.log"
    record, asked_at = folder / "reproduction.json", time.time()
    with own_tree(repository, revision.commit, root) as (tree, waited):
        if waited and (just := _found_by_another(record, environment, asked_at)):
            return just
        log.unlink(missing_ok=True)
        python = Path(sys.executable)
        if environment == "locked":
            python = locked_python(tree, folder, log)
        before = _Published(tree, revision)
        todays, fault = before.judged_by(today)  # notes what it leaves out
        notes = [*revision.notes, *before.notes]
        if fault:
            notes.append(f"today's code cannot judge this evidence: {fault}")
        failed: str | None = "its study file is not in the repository, so its workflow cannot run"
        if revision.study_file:
            snakefile = tree / "Snakefile" if revision.has_workflow else today.snakefile
            failed = run_workflow(
                python, tree, snakefile, revision.study_file, revision.results, log
            )
        if failed:
            notes.append(f"the workflow did not come to its end: {failed} (log: {log})")
        figures = list(_Comparison(before, _Remade(tree, revision), todays, failed, today).all())
        found = Reproduction(
            study=revision.study,
            revision=revision.asked,
            commit=revision.commit,
            subject=revision.subject,
            committed_at=revision.committed_at,
            environment=environment,
            workflow="its own" if revision.has_workflow else "today's",
            figures=figures,
            verdict=sum_up(figures),
            notes=list(dict.fromkeys(notes)),
        )
        write_record(record, found)
    return found


def _found_by_another(path: Path, environment: str, since: float) -> Reproduction | None:
    """What the run that was waited for has written since, if it was of the same kind."""
    try:
        found = read_record(path, Reproduction)
        fresh = path.stat().st_mtime >= since
    except (RecordError, OSError):
        return None
    return found if fresh and found.environment == environment else None


class _Published:
    """What the revision holds, read before its workflow touches anything."""

    def __init__(self, tree: Path, revision: Revision):
        self.tree, self.revision, self.results = tree, revision, tree / revision.results
        self.notes: list[str] = []
        self.plan = self._one(self.results / "plan.json", Plan)
        self.document = ""
        if self.plan is not None:
            path = self.results / f"{self.plan.document}.md"
            self.document = path.read_text(encoding="utf-8") if path.is_file() else ""
        folders = {d: self.results / "evidence" / d for d in revision.devices}
        self.matrices = {d: self._matrix(f) for d, f in folders.items()}
        self.correctness = {
            d: self._arms(f / "correctness", Correctness) for d, f in folders.items()
        }
        verdicts = {d: self._one(f / "verdict.json", Verdict) for d, f in folders.items()}
        self.verdicts = {
            d: v.devices[0] for d, v in verdicts.items() if v is not None and v.devices
        }

    def judged_by(self, today: Today) -> tuple[dict[str, DeviceVerdict], str | None]:
        """By device: today's statistics of the raw samples; or why they cannot be had."""
        if self.revision.study_file is None or not self.revision.devices:
            return {}, None
        try:
            verdict = today.judge(self.tree / self.revision.study_file, self.results)
        except ProbeError as e:
            return {}, str(e).replace(f"{self.tree}/", "").splitlines()[0]
        self.notes += [n for n in verdict.notes if n.startswith("evidence/")]
        return {d.device: d for d in verdict.devices if d.results}, None

    def _matrix(self, folder: Path) -> dict[str, dict[str, Feasibility]]:
        targets = sorted((folder / "feasibility").glob("*/"))
        return {t.name: self._arms(t, Feasibility) for t in targets if t.is_dir()}

    def _arms(self, folder: Path, kind: type[R]) -> dict[str, R]:
        found = {}
        for path in sorted(folder.glob("[!.]*.json")):
            if (record := self._one(path, kind)) is not None:
                found[path.stem] = record
        return found

    def _one(self, path: Path, kind: type[R]) -> R | None:
        try:
            return read_record(path, kind) if path.exists() else None
        except RecordError as e:
            self.notes.append(str(e).replace(f"{self.tree}/", ""))
            return None


class _Remade(_Published):
    """The same after the workflow ran: figures of this environment."""

    def __init__(self, tree: Path, revision: Revision):
        super().__init__(tree, revision)
        self.matrix = self._matrix(self.results)
        self.logic = self._arms(self.results / "correctness" / INTERPRETER, Correctness)
        verdict = self._one(self.results / "verdict.json", Verdict)
        self.devices = {d.device: d for d in verdict.devices} if verdict else {}


class _Comparison:
    """All figures, in the order in which a study is made."""

    def __init__(
        self,
        then: _Published,
        now: _Remade,
        todays: dict[str, DeviceVerdict],
        failed: str | None,
        today: Today,
    ):
        self.then, self.now, self.todays = then, now, todays
        self.failed, self.today = failed, today

    def all(self) -> Iterator[Figure]:
        yield from self._plan()
        for device in self.then.revision.devices:
            for f in compare_matrices(self.then.matrices[device], self._targets(device)):
                yield f.model_copy(update={"where": f"{f.where}, {device}"})
            yield from self._logic(device)
            yield from self._statistics(device)
        yield from self._document()

    def _plan(self) -> Iterator[Figure]:
        old, new = self.then.plan, self.now.plan
        ran = (self.now.results / "plan_commit.json").exists()
        if old is None or new is None or not ran:
            why = "no readable plan in this revision" if old is None else self.failed
            yield _single("plan", "plan", "frozen again", "not comparable", why=why)
            return
        changes = [
            Change(what="plan", before=f"{old.plan_hash[:12]}", after=line)
            for line in self.today.differences(old, new)
        ]
        yield _single("plan", "plan", "frozen again", "moved" if changes else "same", changes)

    def _targets(self, device: str) -> dict[str, dict[str, Feasibility]]:
        """What was made now, for the targets that were published."""
        return {t: self.now.matrix.get(t, {}) for t in self.then.matrices[device]}

    def _logic(self, device: str) -> Iterator[Figure]:
        records = self.then.correctness[device]
        name = next((r.device_name for r in records.values()), device)
        here = self._checked_here(device)
        yield from compare_correctness(records, here or self.now.logic, name)

    def _checked_here(self, device: str) -> dict[str, Correctness]:
        """Checks on this very device, where it is here."""
        return self.now._arms(self.now.results / "correctness" / device, Correctness)

    def _statistics(self, device: str) -> Iterator[Figure]:
        published = self.then.verdicts.get(device)
        own, todays = self.now.devices.get(device), self.todays.get(device)
        again = own is not None and own.source == "measured here"
        old = published or (todays if again else own)
        if not again and published and own:
            yield from compare_verdicts(published, own, "by its own code")
        if old and todays and old is not todays:
            label = "by today's code" if published else "its own code → today's"
            yield from compare_verdicts(old, todays, label)
        if old is None or (published is None and not again and todays is None):
            why = self.failed or "no usable samples in this revision"
            yield _single("statistics", "all rows", device, "not comparable", why=why)
        if again and old and own:
            yield from compare_verdicts(old, own, "measured again", measured_again=True)
        elif old is not None:
            why = f"no {old.device_name} here"
            yield _single("timing", "all rows", old.device_name, "not comparable", why=why)

    def _document(self) -> Iterator[Figure]:
        """The filled document is a function of the evidence: rendered again it must read the same."""
        devices = self.now.devices.values()
        if not devices or not self.then.document or not self.then.revision.devices:
            return
        where = f"{self.then.plan.document}.md, rendered again" if self.then.plan else "document"
        why: str | None
        if any(d.source == "measured here" for d in devices):
            return  # it rightly shows what was measured here now
        if self.then.revision.notes and any("shallow" in n for n in self.then.revision.notes):
            why = "a shallow clone leaves the document as it is: git fetch --unshallow"
        else:
            why = self.failed
        if why:
            yield _single("document", "filled table", where, "not comparable", why=why)
            return
        lines = [
            line
            for line in difflib.unified_diff(
                self.then.document.splitlines(), self.now.document.splitlines(), n=0, lineterm=""
            )
            if not line.startswith(("---", "+++", "@@"))
        ]
        gone = [x[1:] for x in lines if x.startswith("-")]
        come = [x[1:] for x in lines if x.startswith("+")]
        pairs = [*zip(gone, come, strict=False)][:SHOWN_LINES]
        changes = [Change(what="line", before=a, after=b) for a, b in pairs]
        outcome: Literal["same", "moved"] = "moved" if lines else "same"
        yield _single("document", "filled table", where, outcome, changes)


def _single(
    kind: Any, subject: str, where: str, outcome: Any, changes: Any = (), why: str | None = None
) -> Figure:
    return Figure(
        kind=kind, subject=subject, where=where, outcome=outcome, changes=list(changes), why=why
    )
