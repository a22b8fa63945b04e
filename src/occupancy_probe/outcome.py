"""A study's outcome: as this machine sees it, and as everybody sees it who has the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_probe.digest import digest
from occupancy_probe.exc import RecordError, RepositoryError, StudyError
from occupancy_probe.plan.amendments import Amendment, amendments_of
from occupancy_probe.plan.commit import UNCOMMITTED, plan_in
from occupancy_probe.plan.difference import differences
from occupancy_probe.plan.document import render_document
from occupancy_probe.plan.repeats import Repeat, measured_before
from occupancy_probe.records import (
    Figure,
    Measurement,
    Plan,
    Record,
    Verdict,
    read_record,
    write_text,
)
from occupancy_probe.repository import Repository, StudyCommit
from occupancy_probe.reproduce.drift import changes_text, compare_matrices, versions_text
from occupancy_probe.study import BASELINE, Study, load_study
from occupancy_probe.validate.collect import (
    Collected,
    DeviceRecords,
    EarlierPlans,
    collect,
    published_matrices,
)
from occupancy_probe.validate.system import StepStudy
from occupancy_probe.validate.verdict import judge


@dataclass(frozen=True)
class Outcome:
    """The records that count, and what the rule says of them."""

    collected: Collected
    verdict: Verdict


def here(study: Study, results: Path) -> Outcome:
    """From this machine's records and the evidence; StudyError when no arm is left to compare."""
    found = _outcome(study, results, published_only=False)
    _require_arms(study, found.collected)
    return found


def published(study: Study, results: Path) -> Outcome:
    """From the evidence alone: the same on every machine that has the same commits."""
    return _outcome(study, results, published_only=True)


def judged_again(study_file: Path, results: Path) -> Verdict:
    """Today's statistics on the evidence of another work tree; its records vouch for their kernel.

    The digest of a kernel may be formed otherwise today, so records count as made from the kernel
    that they name, if all name the same; anything else is the business of the revision's own code.
    """
    made_from: set[str] = set()
    for path in sorted((results / "evidence").glob("[!.]*/measurement/[!.]*.json")):
        try:
            made_from.add(read_record(path, Measurement).depends.get("launch", ""))
        except RecordError:
            continue
    study = load_study(study_file)
    launch = made_from.pop() if len(made_from) == 1 else study.launch_digest
    return _outcome(study, results, published_only=True, launch=launch).verdict


def of_device(found: Outcome, device: str) -> Verdict:
    """What the evidence of one device says, as it is published beside its samples."""
    devices = [d for d in found.verdict.devices if d.device == device]
    return found.verdict.model_copy(update={"devices": devices, "notes": []})


def plan_fault(results: Path, plan: Plan) -> Callable[[str], str | None]:
    """A function that says why a plan commit does not count for ``plan`` here, None if it does."""
    history = _History.around(results)

    def fault(commit: str) -> str | None:
        if not history.is_ancestor(commit):
            return f"foreign: plan commit {commit[:12]} is not in the history of HEAD"
        found = history.plan_at(commit)
        if found is None or found.plan_hash != plan.plan_hash:
            return f"foreign: plan commit {commit[:12]} does not hold this plan"
        return None

    return fault


def published_drift(study: Study, results: Path) -> dict[str, list[Figure]]:
    """By device: its published feasibility against the local one, for targets that both have."""
    local, published = published_matrices(results, study.launch_digest)
    found = {}
    for device, matrix in published.items():
        common = [t for t in matrix if t in local]
        found[device] = compare_matrices(
            {t: matrix[t] for t in common}, {t: local[t] for t in common}
        )
    return found


def history_view(study: Study, results: Path) -> dict[str, Any]:
    """What the report says of the study's past: amendments, and drift per device and target."""
    rows = []
    for device, figures in published_drift(study, results).items():
        for target in dict.fromkeys(f.where for f in figures):
            here = [f for f in figures if f.where == target]
            moved = [f for f in here if f.outcome in ("moved", "reversed")]
            counts = Counter(f.outcome for f in here)
            rows.append(
                {
                    "device": device,
                    "target": target,
                    "counts": ", ".join(f"{n} {outcome}" for outcome, n in counts.items()),
                    "versions": versions_text(here),
                    "reversed": counts["reversed"],
                    "moved": [(f.subject, f.outcome, changes_text(f)) for f in moved],
                }
            )
    return {"amendments": amendments_here(study.name), "drift": rows}


def repeats_here(plan: Plan, results: Path, verdict: Verdict) -> list[Repeat]:
    """Earlier measurements under ``plan`` in the history of HEAD; none without a repository."""
    try:
        repository = Repository.around(Path.cwd())
        commits = [c for c in _commits_here() if c.study == plan.study]
        return measured_before(repository, commits, plan, results / "evidence", verdict.devices)
    except (RepositoryError, ValueError):  # none around, or the results lie outside of it
        return []


def amendments_here(study: str) -> list[Amendment]:
    """Amendments of the study's plan in the history of HEAD, oldest first; none without a repository."""
    return amendments_of(_commits_here(), study)


def _commits_here() -> list[StudyCommit]:
    """The studies' commits that HEAD descends from, oldest first; none without a repository."""
    try:
        return Repository.around(Path.cwd()).study_commits(everywhere=False)
    except RepositoryError:
        return []


def commit_to_check_out(study: Study, plan_commit: str | None) -> str | None:
    """The last commit that holds the plan and the evidence of ``study`` and of the step study that it
    names; None without a repository or before any evidence of this plan."""
    names = {study.name, *([load_study(study.step_path).name] if study.step_path else [])}
    made = _commits_here()
    after = [i for i, c in enumerate(made) if c.commit == plan_commit]
    evidence = [c for c in made[after[-1] if after else len(made) :] if c.stage == "validate"]
    return next((c.commit for c in reversed(evidence) if c.study in names), None)


def is_published(study: Study, results: Path, shown: Collected) -> bool:
    """Whether committed evidence holds all samples of ``shown``, and of the step study beside it."""
    try:
        repository = Repository.around(Path.cwd())
    except RepositoryError:
        return False
    everything = [(results, _collected(study, results, True), shown)]
    if (step := _step_of(study, results)) is not None:
        everything.append((step[1], _collected(*step, True), _collected(*step, False)))
    for folder, held, here in everything:
        timed = {n: s for n, d in here.devices.items() if (s := _samples(d))}
        known = {n: _samples(d) for n, d in held.devices.items()}
        if any(known.get(n, {}).get(k) != r for n, s in timed.items() for k, r in s.items()):
            return False
        if repository.dirty([folder / "evidence" / n for n in timed]):
            return False
    return True


def _samples(device: DeviceRecords) -> dict[tuple[str, str], Record]:
    """Everything that was timed on the device, by kind and workload."""
    kinds: dict[str, Mapping[str, Record]] = {
        "measurement": device.measurements,
        "confirmation": device.confirmations,
        "serving": device.servings,
    }
    return {(kind, w): r for kind, found in kinds.items() for w, r in found.items()}


def _collected(
    study: Study, results: Path, published_only: bool, launch: str | None = None
) -> Collected:
    known = EarlierPlans(_History.around(results).plan_of, differences)
    return collect(results, launch or study.launch_digest, published_only, known)


def _outcome(
    study: Study, results: Path, published_only: bool, launch: str | None = None
) -> Outcome:
    history = _History.around(results)
    collected = _collected(study, results, published_only, launch)
    measured = [m for d in collected.devices.values() for m in d.measurements.values()]
    times = {
        m.plan_commit: when
        for m in measured
        if m.plan_commit and (when := history.holds(m.plan_commit, collected.plan))
    }
    step = _step(study, results, published_only)
    return Outcome(collected, judge(study, collected, history.is_ancestor, times, step))


def _step(study: Study, results: Path, published_only: bool) -> StepStudy | None:
    """The study of the whole step that ``study`` names, judged by its own records beside ours."""
    found = _step_of(study, results)
    if found is None:
        return None
    devices = _outcome(*found, published_only).verdict.devices
    return StepStudy(found[0], {d.device: d for d in devices})


def _step_of(study: Study, results: Path) -> tuple[Study, Path] | None:
    """The study of the whole step and its results, if ``study`` names one and it has been planned."""
    if study.step_path is None:
        return None
    step = load_study(study.step_path)
    folder = results.parent / step.name
    return (step, folder) if step.step_path is None and (folder / "plan.json").is_file() else None


@dataclass(frozen=True)
class _History:
    """What git says of the plans of one study; without a repository nothing is known."""

    repository: Repository | None
    plan_file: str

    @classmethod
    def around(cls, results: Path) -> _History:
        try:
            repository = Repository.around(results)
            return cls(repository, repository.name_of(results / "plan.json"))
        except (RepositoryError, ValueError):
            return cls(None, "")

    def is_ancestor(self, commit: str) -> bool:
        return self.repository is not None and self.repository.is_ancestor(commit)

    def plan_at(self, commit: str) -> Plan | None:
        return plan_in(self.repository.text_at(commit, self.plan_file)) if self.repository else None

    def plan_of(self, measurement: Measurement) -> Plan | None:
        """The plan that the measurement names, if its plan commit is in history and holds it."""
        commit = measurement.plan_commit
        found = self.plan_at(commit) if commit and self.is_ancestor(commit) else None
        named = found is not None and found.plan_hash == measurement.depends.get("plan")
        return found if named else None

    def holds(self, commit: str, plan: Plan) -> str | None:
        """Time of ``commit`` if it holds ``plan`` and was no override, else None."""
        found = self.plan_at(commit)
        if self.repository is None or found is None or found.plan_hash != plan.plan_hash:
            return None
        if UNCOMMITTED in self.repository.trailers(commit):
            return None
        return self.repository.commit_time(commit)


def fill_document(study: Study, results: Path, templates: Path, found: Outcome) -> list[Path]:
    """Bring the plan document and the charts that it links up to date; their paths, it first.

    It shows what was measured here if anything was, else the evidence, so that a clone that
    measures nothing leaves it as it was published. RepositoryError rather than overwriting an edit.
    """
    from occupancy_probe.validate.document_charts import document_charts  # matplotlib is slow

    path = results / f"{study.file.document}.md"
    shown = found
    if not any(d.source == "measured here" for d in found.verdict.devices):
        shown = published(study, results)
        if not _of_this_plan(shown.collected) or _lacks_history():
            return [path]
    text = render_document(
        shown.collected.plan,
        templates,
        shown.verdict,
        shown.collected.feasibility,
        amendments_here(study.name),
        shown.verdict.expected,
        repeats_here(shown.collected.plan, results, shown.verdict),
    )
    stamp = results / "document.digest"
    current = _text_of(path)
    ours = stamp.exists() and stamp.read_text(encoding="utf-8") == digest(current)
    if current not in ("", text) and not ours and not _committed(path, current):
        raise RepositoryError(
            f"{path}: edited by hand and not committed; the table is filled from records, so commit"
            f" your text or `git checkout -- {path}`"
        )
    charts = document_charts(shown.collected.plan, shown.verdict)
    for name, svg in charts.items():  # first: no document links a file that is not there
        if _text_of(results / name) != svg:
            write_text(results / name, svg)
    if current != text:
        write_text(path, text)
        write_text(stamp, digest(text))
    return [path, *(results / name for name in charts)]


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _of_this_plan(collected: Collected) -> bool:
    """Whether anything was measured under the present plan: only that belongs into its document."""
    now = collected.plan.plan_hash
    measured = (m for d in collected.devices.values() for m in d.measurements.values())
    return any(m.depends.get("plan") == now for m in measured)


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
