"""Turn one device's records into evidence: all checked, then copied under version control as a whole."""

from __future__ import annotations

import filecmp
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from occupancy_probe.exc import RecordError
from occupancy_probe.records import Correctness, Feasibility, Measurement, Plan, Record, read_record
from occupancy_probe.study import BASELINE, NULL

EXTRA_KINDS = ("dose", "driver", "confirmation", "autotune", "serving")
"""Further records of a device, published as they are where there are any."""
LASTING_KINDS = ("autotune", "serving")
"""Those that do not belong to one measurement: a later one without them keeps what is published."""
VERDICT = "verdict.json"
"""What the records say, beside them; written once they are in place."""


def gather(
    results: Path,
    device: str,
    plan: Plan,
    launch_digest: str,
    plan_fault: Callable[[str], str | None] = lambda commit: None,
) -> list[Measurement]:
    """Copy the device's records to ``evidence/<device>/``; returns its measurements.

    Where its samples are published but not here (a clone), what is here is added to them. Nothing
    is copied unless everything is whole and belongs to this plan and this kernel source:
    RecordError has one line per stale, partial, foreign or broken record. Nothing newer is replaced.
    plan_fault: why a plan commit does not count in this history, None if it does. The same records
    again change nothing.
    """
    evidence = results / "evidence" / device
    _recover(evidence)
    if not ((results / "measurement" / device).is_dir() or (evidence / "measurement").is_dir()):
        here, published = (
            sorted(p.name for p in (results / kind).glob("[!.]*/"))
            for kind in ("measurement", "evidence")
        )
        known = [*here, *(f"{name} (published)" for name in published if name not in here)]
        raise RecordError(
            f"{results}: no samples of {device!r} here (there are: {', '.join(known) or 'none'}); correct"
            " the name, measure first, or copy the results folder from the machine that did"
        )
    check = _Check(results, device, plan, launch_digest, plan_fault)
    taken = dict(check.records())
    check.completeness()
    if check.faults:
        raise RecordError("\n".join(check.faults))
    staging = evidence.with_name(f".{device}.new")
    shutil.rmtree(staging, ignore_errors=True)
    for goal, source in taken.items():
        copy = staging / goal
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    if _same(staging, evidence):
        shutil.rmtree(staging)
    else:
        replaced = _set_aside(evidence)
        if evidence.exists():  # a kill from here on is mended by the next call
            evidence.rename(replaced)
        staging.rename(evidence)
        shutil.rmtree(replaced, ignore_errors=True)
    return check.measured


def _set_aside(evidence: Path) -> Path:
    """Where the old evidence is while the new one takes its place."""
    return evidence.with_name(f".{evidence.name}.old")


def _recover(evidence: Path) -> None:
    """Finish or undo an exchange that was killed: only the old evidence may hold the lasting kinds."""
    old = _set_aside(evidence)
    if old.exists() and not evidence.exists():
        old.rename(evidence)
    shutil.rmtree(old, ignore_errors=True)


class _Check:
    """Reads every record that would be published and keeps the faults of all of them."""

    def __init__(
        self,
        results: Path,
        device: str,
        plan: Plan,
        launch: str,
        plan_fault: Callable[[str], str | None],
    ):
        self.results, self.device, self.plan, self.launch = results, device, plan, launch
        self.evidence = results / "evidence" / device
        self.measured_here = (results / "measurement" / device).is_dir()
        self.plan_fault = plan_fault
        self.configs = {a.name: a.config for a in plan.arms}
        self.faults: list[str] = []
        self.fits: dict[str, dict[str, bool]] = {}
        self.right: dict[str, str] = {}
        self.measured: list[Measurement] = []

    def records(self) -> Iterator[tuple[Path, Path]]:
        """What to copy, as (place below the evidence, file here)."""
        root = self.results if self.measured_here else self.evidence
        for path in sorted(root.glob("feasibility/*/[!.]*.json")):
            if (fit := self._read(path, Feasibility)) and not self._arm_fault(path, fit):
                self.fits.setdefault(path.parent.name, {})[fit.arm] = fit.verdict == "fits"
            yield path.relative_to(root), path
        for path in self._of("correctness"):
            if (right := self._read(path, Correctness)) and not self._arm_fault(path, right):
                self.right[right.arm] = right.verdict
            yield Path("correctness", path.name), path
        for path in self._of("measurement"):
            if measured := self._read(path, Measurement):
                self._measurement(path, measured)
            yield Path("measurement", path.name), path
        for kind in EXTRA_KINDS:
            for path in self._of(kind):
                yield from self._extra(Path(kind, path.name), path)
            here = self.results / kind / f"{self.device}.json"
            published = self.evidence / f"{kind}.json"
            taken = self._later(here, published) if self._taken_here(kind, here) else published
            yield from self._extra(Path(f"{kind}.json"), taken)
        yield from self._extra(Path("audit.json"), root / "audit.json")
        folder, name = self.results.parent / "calibration", f"{self.device}.json"
        published = self.evidence / "calibration"
        if not (folder / name).exists() or self._began(published / name) > self._began(
            folder / name
        ):
            folder = published
        for name in (f"{self.device}.json", f"{self.device}-samples.json"):
            if (folder / name).exists():
                yield Path("calibration", name), folder / name

    def _of(self, kind: str) -> list[Path]:
        """The device's files of ``kind``: those here, or those published where none may be here."""
        here = self.results / kind / self.device
        if not self._taken_here(kind, here):
            return sorted((self.evidence / kind).glob("[!.]*.json"))
        return [
            self._later(p, self.evidence / kind / p.name) for p in sorted(here.glob("[!.]*.json"))
        ]

    def _taken_here(self, kind: str, here: Path) -> bool:
        return here.exists() or (self.measured_here and kind not in LASTING_KINDS)

    def _later(self, here: Path, published: Path) -> Path:
        """What is here, unless a record of a lasting kind was published that began later."""
        lasting = bool({published.stem, published.parent.name} & {*LASTING_KINDS})
        return published if lasting and self._began(published) > self._began(here) else here

    def _refuse_older(self, path: Path, goal: Path) -> None:
        """RecordError if ``path`` was made here before what is published in its place."""
        began = self._began(path)
        if self.evidence not in path.parents and "" < began < self._began(self.evidence / goal):
            raise RecordError(
                f"{path}: older ({began}) than what is published of this device; to keep that, move"
                f" {self.results}/*/{self.device} away and say --config device={self.device}; else"
                " measure again"
            )

    def _began(self, path: Path) -> str:
        """When a record of this plan and launch was begun (ISO, UTC); empty where none says so."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            other = self._made_from_other(content)
            return "" if other else str(content.get("started_at") or "")
        except (OSError, ValueError, AttributeError):
            return ""

    def _made_from_other(self, content: Mapping[str, Any]) -> list[str]:
        """What a record was made from that is not so any more."""
        made_from = content.get("depends") or {}
        now = {"plan": self.plan.plan_hash, "launch": self.launch}
        return [k for k, v in now.items() if made_from.get(k, v) != v]

    def completeness(self) -> None:
        """Every target has every arm, every workload its samples, every timed arm its check."""
        arms = [n for n in self.configs if n != NULL]
        for target in self.plan.targets:
            if missing := [n for n in arms if n not in self.fits.get(target, {})]:
                self._fault(f"feasibility/{target}", f"partial: no record of {', '.join(missing)}")
        done = {m.workload for m in self.measured}
        if missing := [w.name for w in self.plan.workloads if w.name not in done]:
            self._fault(
                f"measurement/{self.device}", f"partial: not measured: {', '.join(missing)}"
            )
        timed = {name for m in self.measured for r in m.replicates for name in r.arms}
        unchecked = sorted({BASELINE if n == NULL else n for n in timed} - self.right.keys())
        if unchecked:
            self._fault(
                f"correctness/{self.device}",
                f"partial: timed but not checked: {', '.join(unchecked)}",
            )

    def _measurement(self, path: Path, record: Measurement) -> None:
        processes = len({r.process for r in record.replicates})
        wanted = self.plan.sections.get("measurement") or {}
        planned = int(wanted.get("processes", processes))
        looks = (wanted.get("stop") or {}).get("looks") or []
        made_under = record.depends.get("plan", "none")
        fault = None
        if record.workload != path.stem or record.workload not in {
            w.name for w in self.plan.workloads
        }:
            fault = f"foreign: workload {record.workload!r} is not the plan's {path.stem!r}"
        elif record.device != self.device:
            fault = f"foreign: measured on {record.device!r}"
        elif made_under != self.plan.plan_hash:
            fault = f"stale: measured under plan {made_under[:12]}, now {self.plan.plan_hash[:12]}"
        elif record.plan_commit is None:
            fault = "not registered: measured without a committed plan"
        elif processes < planned and processes not in looks:
            fault = f"partial: {processes} of {planned} processes"
        else:
            fault = self.plan_fault(record.plan_commit)
        self._refuse_older(path, Path("measurement", path.name))
        if fault:
            self._fault(path, fault)
        self.measured.append(record)

    def _arm_fault(self, path: Path, record: Feasibility | Correctness) -> bool:
        config = self.configs.get(record.arm)
        fault = None
        if config is None or record.arm != path.stem:
            fault = f"stale: arm {record.arm!r} is not the plan's {path.stem!r}"
        elif record.config != config:
            fault = f"stale: config {record.config}, now {config}"
        elif isinstance(record, Correctness) and record.device != self.device:
            fault = f"foreign: checked on {record.device!r}"
        if fault:
            self._fault(path, fault)
        return bool(fault)

    def _read(self, path: Path, kind: type[Any]) -> Any:
        try:
            record: Record = read_record(path, kind)
        except RecordError as e:
            self.faults.append(str(e))
            return None
        if record.study != self.plan.study:
            self._fault(path, f"foreign: belongs to study {record.study!r}")
            return None
        if record.depends.get("launch", self.launch) != self.launch:
            self._fault(path, "stale: made from another kernel source, Problem or workloads")
            return None
        return record

    def _extra(self, goal: Path, path: Path) -> Iterator[tuple[Path, Path]]:
        """A record of a kind that this module does not know: only what every record says is checked."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except ValueError as e:
            self._fault(path, f"broken: {e}")
            return
        if not isinstance(content, dict) or "schema" not in content:
            return  # an index, no record
        self._refuse_older(path, goal)
        if content.get("study", self.plan.study) != self.plan.study:
            self._fault(path, f"foreign: belongs to study {content['study']!r}")
        elif content.get("device", self.device) != self.device:
            self._fault(path, f"foreign: made on {content['device']!r}")
        elif other := self._made_from_other(content):
            if self.evidence in path.parents:  # kept from an earlier measurement: its time is over
                return
            self._fault(path, f"stale: made from another {' and '.join(other)}")
        yield goal, path

    def _fault(self, path: Path | str, why: str) -> None:
        shown = path.relative_to(self.results) if isinstance(path, Path) else path
        self.faults.append(
            f"{self.results / shown}: {why}; make it again (`snakemake ab_report` on its machine)"
        )


def _same(new: Path, old: Path) -> bool:
    """Whether two folders hold the same files, byte for byte, the verdict of ``old`` aside."""
    names = {p.relative_to(new) for p in new.rglob("*") if p.is_file()}
    known = {p.relative_to(old) for p in old.rglob("*") if p.is_file()} - {Path(VERDICT)}
    return names == known and all(filecmp.cmp(new / n, old / n, shallow=False) for n in names)
