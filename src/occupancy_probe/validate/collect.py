"""What there is for a study under ``results/<study>/``: read, sorted by device, stale parts named.

The one module of this package that reads files. Nothing here is an error but a missing plan: a
record that is truncated, of another schema, or made from something else is named in ``notes`` and
left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from occupancy_probe.exc import RecordError
from occupancy_probe.records import (
    Audit,
    AutotuneRuns,
    Calibration,
    Correctness,
    Dose,
    Feasibility,
    Measurement,
    Plan,
    PlanCommit,
    Record,
    Serving,
    read_record,
)
from occupancy_probe.study import BASELINE, NULL
from occupancy_probe.templating import plain

R = TypeVar("R", bound=Record)
Matrix = dict[str, dict[str, Feasibility]]
"""Feasibility by target and arm."""
INTERPRETER = "interpreter"
"""The device slug of Triton's interpreter: logic only, never a measurement."""


@dataclass(frozen=True)
class DeviceRecords:
    """Everything about one device, from one source."""

    device: str
    device_name: str
    source: Literal["measured here", "published evidence"]
    feasibility: Matrix
    """The evidence's own where it has the target, else the local one."""
    correctness: dict[str, Correctness]
    """By arm."""
    measurements: dict[str, Measurement]
    """By workload."""
    confirmations: dict[str, Measurement] = field(default_factory=dict)
    """By workload: the baseline and the arm that was picked, on fresh replicates."""
    doses: dict[str, Dose] = field(default_factory=dict)
    """By arm."""
    calibration: Calibration | None = None
    """What the harness claims and sees on this device."""
    autotune_runs: AutotuneRuns | None = None
    """Real autotune runs in fresh processes."""
    servings: dict[str, Serving] = field(default_factory=dict)
    """By workload: tokens per second of a real server."""

    def evidence(self, workload: str) -> str:
        """Path of the workload's samples, relative to the study's results."""
        if self.source == "published evidence":
            return f"evidence/{self.device}/measurement/{workload}.json"
        return f"measurement/{self.device}/{workload}.json"

    def unfit(self, arm: str, target: str) -> tuple[Literal["rejected", "wrong"], str] | None:
        """Verdict and reason of an arm that cannot run on ``target`` or is not right here.

        The null arm is the baseline once more and shares its records.
        """
        name = BASELINE if arm == NULL else arm
        feasible = self.feasibility.get(target, {}).get(name)
        if feasible is not None and feasible.verdict != "fits":
            said = "; ".join(r.text for r in feasible.reasons)
            return "rejected", said or f"{feasible.verdict} on {target}"
        checked = self.correctness.get(name)
        if checked is not None and checked.verdict != "right":
            return "wrong", _wrong(checked)
        fallen = (
            m.disqualified[name] for m in self.measurements.values() if name in m.disqualified
        )
        return next((("wrong", f"while being timed: {why}") for why in fallen), None)


@dataclass(frozen=True)
class Collected:
    """All usable records of a study, and notes on those that are not."""

    plan: Plan
    plan_commit: PlanCommit | None
    feasibility: Matrix
    """What was compiled here; targets that were not are taken from the evidence."""
    devices: dict[str, DeviceRecords]
    """By device slug, in alphabetical order."""
    logic: dict[str, Correctness] = field(default_factory=dict)
    """What the interpreter showed, by arm."""
    notes: list[str] = field(default_factory=list)
    earlier: dict[str, str] = field(default_factory=dict)
    """Other plans that something was measured under, by hash: which one, and what sets it apart."""
    audit: Audit | None = None
    """Of the autotuner around the kernel."""


@dataclass(frozen=True)
class EarlierPlans:
    """What history says of plans before this one; without it they are unknown."""

    find: Callable[[Measurement], Plan | None] = lambda measurement: None
    """The plan that a measurement was made under, if its plan commit holds it."""
    differences: Callable[[Plan, Plan], Sequence[str]] = lambda old, new: ()
    """What was changed since, in lines."""


def collect(
    results: Path,
    launch_digest: str,
    published_only: bool = False,
    earlier: EarlierPlans | None = None,
) -> Collected:
    """Read ``results`` (one study's folder); RecordError only if the plan itself is unreadable.

    A measurement made under an earlier plan is kept for the arms whose config and launches are the
    same now (it is exploratory, see :mod:`.preregistration`); everything else of another make is
    stale: named in ``notes`` and kept out.

    launch_digest: the study's present one; records of another kernel source are stale. Local
    records of a device replace its published evidence as soon as it has local measurements.
    published_only: leave out what was made here, so that everybody with the evidence sees the same.
    """
    plan = read_record(results / "plan.json", Plan)
    reader = _Reader(results, plan, launch_digest, earlier or EarlierPlans())
    commit_path = results / "plan_commit.json"
    commit = reader.read(commit_path, PlanCommit) if commit_path.exists() else None
    matrix = {} if published_only else reader.matrix(results)
    compiled_here = dict(matrix)
    devices: dict[str, DeviceRecords] = {}
    published = _folders(results / "evidence")
    local = {*_folders(results / "correctness"), *_folders(results / "measurement")}
    for slug in sorted(({*published} if published_only else {*published, *local}) - {INTERPRETER}):
        here = None
        if not published_only:
            here = reader.device(slug, results, "measured here", compiled_here)
        if slug in published and not (
            here and any(m.replicates for m in here.measurements.values())
        ):
            folder = results / "evidence" / slug
            theirs = reader.matrix(folder)
            matrix = {**theirs, **matrix}
            here = reader.device(slug, folder, "published evidence", {**compiled_here, **theirs})
        if here and (here.measurements or here.correctness):
            devices[slug] = here
    logic: dict[str, Correctness] = {}
    if not published_only:
        logic = reader.correctness(results / "correctness" / INTERPRETER, INTERPRETER, "logic")
    audit = reader.audit(published_only)
    return Collected(plan, commit, matrix, devices, logic, reader.notes, reader.earlier, audit)


def published_matrices(results: Path, launch_digest: str) -> tuple[Matrix, dict[str, Matrix]]:
    """The local feasibility matrix, and the published ones by device; stale records are left out."""
    reader = _Reader(
        results, read_record(results / "plan.json", Plan), launch_digest, EarlierPlans()
    )
    devices = _folders(results / "evidence")
    return reader.matrix(results), {d: reader.matrix(results / "evidence" / d) for d in devices}


class _Reader:
    """Reads records and keeps the notes on those it refuses."""

    def __init__(self, results: Path, plan: Plan, launch_digest: str, history: EarlierPlans):
        self.results, self.plan, self.launch = results, plan, launch_digest
        self.history = history
        self.earlier: dict[str, str] = {}
        self.configs = {arm.name: arm.config for arm in plan.arms}
        self.configs.setdefault(NULL, self.configs.get(BASELINE, {}))
        self.workloads = {w.name for w in plan.workloads}
        self.notes: list[str] = []

    def read(self, path: Path, kind: type[R]) -> R | None:
        """The record, or None with a note that names the file and the fault."""
        try:
            record = read_record(path, kind)
        except RecordError as e:
            self.notes.append(str(e).replace(f"{self.results}/", "") + "; ignored")
            return None
        if record.study != self.plan.study:
            self._refused(path, f"belongs to study {record.study!r}")
            return None
        return record

    def matrix(self, root: Path) -> Matrix:
        """Feasibility under ``root``, by target and arm; targets without a usable record are absent."""
        found: Matrix = {}
        for target in _folders(root / "feasibility"):
            for path, record in self._whole(root / "feasibility" / target, Feasibility):
                fault = self._arm_fault(record, path) or _differs("target", record.target, target)
                if not self._refused(path, fault):
                    found.setdefault(target, {})[record.arm] = record
        return found

    def correctness(self, folder: Path, device: str, mode: str) -> dict[str, Correctness]:
        """Correctness by arm; a record of another mode (the interpreter's) proves something else."""
        found = {}
        for path, record in self._whole(folder, Correctness):
            fault = self._arm_fault(record, path) or _differs("device", record.device, device)
            if not self._refused(path, fault or _differs("mode", record.mode, mode)):
                found[record.arm] = record
        return found

    def measurements(self, folder: Path, device: str) -> dict[str, Measurement]:
        """Samples by workload, taken under this very plan or, in part, under an earlier one."""
        found = {}
        for path, whole in self._whole(folder, Measurement):
            record, fault = whole, self._measurement_fault(whole, path)
            if fault is None and whole.depends.get("plan") != self.plan.plan_hash:
                record, fault = self._of_earlier_plan(whole, path)
            if not self._refused(path, fault or _differs("device", record.device, device)):
                found[record.workload] = record
        return found

    def device(
        self,
        slug: str,
        root: Path,
        source: Literal["measured here", "published evidence"],
        matrix: Matrix,
    ) -> DeviceRecords:
        """Records of one device: in folders of its name locally, directly below its evidence."""
        inner = slug if source == "measured here" else "."
        right = self.correctness(root / "correctness" / inner, slug, "gpu")
        measured = self.measurements(root / "measurement" / inner, slug)
        named: list[Measurement | Correctness] = [*measured.values(), *right.values()]
        name = named[0].device_name if named else slug
        again = self.measurements(root / "confirmation" / inner, slug)
        doses = self.doses(root / "dose" / inner, slug)
        places = (root / "calibration", self.results.parent / "calibration")
        calibrations = (self.calibration(p / f"{slug}.json") for p in places)
        calibration = next((c for c in calibrations if c), None)
        runs = self.autotune_runs(root, slug)
        return DeviceRecords(
            slug, name, source, matrix, right, measured, again, doses, calibration, runs,
            self.servings(root / "serving" / inner, slug),
        )  # fmt: skip

    def servings(self, folder: Path, device: str) -> dict[str, Serving]:
        """Real servers' figures by workload, taken under this very plan."""
        found = {}
        for path, record in self._whole(folder, Serving):
            fault = _differs("device", record.device, device)
            if record.depends.get("plan") != self.plan.plan_hash:
                fault = fault or "stale: measured under another plan"
            if not self._refused(path, fault):
                found[record.workload] = record
        return found

    def autotune_runs(self, root: Path, device: str) -> AutotuneRuns | None:
        """Real autotune runs: in a file of the device's name locally, beside its evidence."""
        path = (
            root / "autotune.json" if root.name == device else root / "autotune" / f"{device}.json"
        )
        record = self.read(path, AutotuneRuns) if path.exists() else None
        if record is None or self._refused(path, self._launch_fault(record)):
            return None
        return record

    def audit(self, published_only: bool) -> Audit | None:
        """The audit made here; else, or if only what is published counts, the evidence's."""
        published = sorted(self.results.glob("evidence/[!.]*/audit.json"))
        for path in published if published_only else [self.results / "audit.json", *published]:
            record = self.read(path, Audit) if path.exists() else None
            if record is not None and not self._refused(path, self._launch_fault(record)):
                return record
        return None

    def doses(self, folder: Path, device: str) -> dict[str, Dose]:
        """Doses by arm, taken under this very plan."""
        found = {}
        for path, record in self._whole(folder, Dose):
            fault = _differs("arm", record.arm, path.stem) or _differs(
                "device", record.device, device
            )
            if record.depends.get("plan") != self.plan.plan_hash:
                fault = fault or "stale: measured under another plan"
            if not self._refused(path, fault or self._launch_fault(record)):
                found[record.arm] = record
        return found

    def calibration(self, path: Path) -> Calibration | None:
        """The harness' own error rate on a device; of no study, so nothing in it can be stale."""
        try:
            return read_record(path, Calibration) if path.exists() else None
        except RecordError as e:
            self.notes.append(f"{e}; ignored")
            return None

    def _whole(self, folder: Path, kind: type[R]) -> Iterator[tuple[Path, R]]:
        for path in sorted(folder.glob("[!.]*.json")):
            record = self.read(path, kind)
            if record is not None:
                yield path, record

    def _arm_fault(self, record: Feasibility | Correctness, path: Path) -> str | None:
        if record.arm not in self.configs:
            return f"stale: the plan has no arm {record.arm!r}"
        if record.config != self.configs[record.arm]:
            return f"stale: config {record.config} is now {self.configs[record.arm]}"
        return _differs("arm", record.arm, path.stem) or self._launch_fault(record)

    def _measurement_fault(self, record: Measurement, path: Path) -> str | None:
        if record.workload not in self.workloads:
            return f"stale: the plan has no workload {record.workload!r}"
        if wrong_name := _differs("workload", record.workload, path.stem):
            return wrong_name
        return self._launch_fault(record)

    def _of_earlier_plan(self, record: Measurement, path: Path) -> tuple[Measurement, str | None]:
        """The arms of a record that the plan still has as they were; a fault where there are none."""
        made_from = record.depends.get("plan", "none")
        plan = self.history.find(record)
        then = {a.name: a.config for a in plan.arms} if plan else dict(record.configs)
        if not then or "launch" not in record.depends:
            return record, (
                f"stale: measured under plan {made_from[:12]}, not this plan"
                f" {self.plan.plan_hash[:12]}; not pre-registered"
            )
        then.setdefault(NULL, then.get(BASELINE, {}))
        timed = dict.fromkeys(name for r in record.replicates for name in r.arms)
        stale = [n for n in timed if n not in then or self.configs.get(n) != then[n]]
        if BASELINE in stale:
            return record, f"stale: the baseline is now {self.configs[BASELINE]}"
        for name in stale:
            now = self.configs.get(name, "not in the plan")
            self._refused(path, f"stale: arm {name} was {then.get(name, 'unknown')}, now {now}")
        if made_from not in self.earlier:
            since = list(self.history.differences(plan, self.plan)) if plan else []
            where = f" of commit {(record.plan_commit or '')[:12]}" if plan else ""
            said = "; ".join(since) or "what differs is not known"
            self.earlier[made_from] = (
                f"the earlier plan {made_from[:12]}{where}; since then: {said}"
            )
        replicates = [
            r.model_copy(update={"arms": {n: s for n, s in r.arms.items() if n not in stale}})
            for r in record.replicates
        ]
        return record.model_copy(update={"replicates": replicates}), None

    def _launch_fault(self, record: Record) -> str | None:
        made_from = record.depends.get("launch", "none")
        if made_from == self.launch:
            return None
        return (
            f"stale: made from kernel source, Problem or workloads {made_from[:12]},"
            f" now {self.launch[:12]}"
        )

    def _refused(self, path: Path, why: str | None) -> bool:
        if why:
            self.notes.append(f"{path.relative_to(self.results)}: {why}; kept out")
        return bool(why)


def _differs(what: str, said: str, expected: str) -> str | None:
    """A record that lies where another belongs."""
    return None if said == expected else f"says {what} {said!r}, expected {expected!r}"


def _wrong(record: Correctness) -> str:
    """The first check that failed, in its own words or by its numbers."""
    check = next((c for c in record.checks if c.verdict != "right"), None)
    if check is None:
        return record.verdict
    if check.reason:
        return f"{check.workload}: {check.reason}"
    if check.guard_rows_overwritten:
        return f"{check.workload}: {check.guard_rows_overwritten} guard rows overwritten"
    off = [
        f"{n} {plain(o.gate_used)} × its gate" for n, o in check.outputs.items() if o.gate_used > 1
    ]
    return f"{check.workload}: {', '.join(off) or check.verdict}"


def code_twin(arms: Mapping[str, Feasibility], arm: str) -> str | None:
    """The first arm with the same machine code as ``arm`` on one target, None if it is its own."""
    seen = {arm}
    twin = arm
    while (record := arms.get(twin)) and record.same_code_as and record.same_code_as not in seen:
        twin = record.same_code_as
        seen.add(twin)
    return twin if twin != arm else None


def _folders(root: Path) -> list[str]:
    """Names of the sub-folders of ``root``, none if it does not exist; a dot marks an unfinished copy."""
    return sorted(p.name for p in root.glob("[!.]*") if p.is_dir())
