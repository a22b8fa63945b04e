"""Turn one device's records into evidence: copied under version control, committed with the document."""

from __future__ import annotations

import shutil
from pathlib import Path

from occupancy_probe.exc import RecordError
from occupancy_probe.records import Correctness, Feasibility, Measurement, Plan, read_record


def gather(results: Path, device: str, plan: Plan, launch_digest: str) -> list[Path]:
    """Copy the device's records to ``evidence/<device>/``; returns the files, old ones removed.

    Everything is checked before anything is copied: RecordError names what is broken, made under
    another plan, or from another kernel source.
    """
    taken: dict[Path, Path] = {}
    evidence = results / "evidence" / device
    for path in sorted(results.glob("feasibility/*/*.json")):
        if read_record(path, Feasibility).depends["launch"] != launch_digest:
            raise _stale(path)
        taken[path] = evidence / path.relative_to(results)
    for path in sorted(results.glob(f"correctness/{device}/*.json")):
        if read_record(path, Correctness).depends["launch"] != launch_digest:
            raise _stale(path)
        taken[path] = evidence / "correctness" / path.name
    measured = sorted(results.glob(f"measurement/{device}/*.json"))
    for path in measured:
        record = read_record(path, Measurement)
        if record.depends["plan"] != plan.plan_hash:
            raise _stale(path)
        if record.plan_commit is None:
            raise RecordError(
                f"{path}: measured without a committed plan; commit it and measure again"
            )
        taken[path] = evidence / "measurement" / path.name
    missing = {w.name for w in plan.workloads} - {p.stem for p in measured}
    if missing:
        raise RecordError(f"{results}: not measured on {device}: {', '.join(sorted(missing))}")
    staging = evidence.with_name(f".{device}.new")
    shutil.rmtree(staging, ignore_errors=True)
    for source, goal in taken.items():
        copy = staging / goal.relative_to(evidence)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    shutil.rmtree(evidence, ignore_errors=True)
    staging.rename(evidence)
    return sorted(taken.values())


def _stale(path: Path) -> RecordError:
    return RecordError(f"{path}: made from another plan or kernel; run `snakemake ab_report` first")
