"""The measurement stage: process replicates over all workloads, samples saved as they arrive."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from occupancy_probe.digest import digest
from occupancy_probe.exc import DeviceError
from occupancy_probe.execute.supervise import supervise
from occupancy_probe.gpu import PresentDevice
from occupancy_probe.records import (
    Measurement,
    Plan,
    PlanCommit,
    Replicate,
    read_if_fresh,
    write_record,
)
from occupancy_probe.study import BASELINE, NULL, Study

TIME_LIMIT_S = 300.0
"""For one workload's replicates in one process, without a word between arms."""


MAX_INPUT_SETS = 1024


def input_set_count(bytes_per_launch: int, l2_bytes: int, regime: str) -> int:
    """Instances to rotate over so that none is still cached when it comes round: ≥ 4 × L2."""
    if regime == "warm":
        return 1
    return max(2, min(MAX_INPUT_SETS, math.ceil(4 * l2_bytes / max(1, bytes_per_launch))))


def measure(
    study: Study,
    plan: Plan,
    commit: PlanCommit,
    arms: list[str],
    folder: Path,
    device: PresentDevice,
    l2_bytes: int,
    versions: Mapping[str, str],
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> dict[str, Measurement]:
    """Time ``arms`` (right ones, distinct code) against the baseline on every workload.

    Records in ``folder/<workload>.json`` grow by one process at a time; a run that was stopped goes
    on where it was. DeviceError when the baseline itself cannot be timed.
    """
    if BASELINE not in arms:
        raise DeviceError(
            "the baseline is not right on this device; nothing can be compared with it"
        )
    configs = {a: study.arm(a).config for a in (BASELINE, NULL, *arms)}
    records = {
        w.name: _open(study, plan, commit, configs, folder, device, l2_bytes, versions, w.name)
        for w in study.workloads
    }
    wanted = study.file.measurement
    total = wanted.processes * len(records)
    for process in range(wanted.processes):
        while open_ := [n for n, r in records.items() if process not in _processes(r)]:
            job = _job(study, configs, records, process, device)
            for workload, message in supervise(
                "occupancy_probe.execute.measure_worker", job, open_, TIME_LIMIT_S
            ):
                if "failed" in message:
                    _disqualify(records, configs, workload, message, folder)
                    break
                record = _with_replicates(records[workload], message)
                records[workload] = record
                write_record(folder / f"{workload}.json", record)
                done = sum(len(_processes(r)) for r in records.values())
                progress(done, total, f"{workload}: process {process + 1} of {wanted.processes}")
    return records


def _processes(record: Measurement) -> set[int]:
    return {r.process for r in record.replicates}


def _with_replicates(record: Measurement, message: Mapping[str, Any]) -> Measurement:
    new = [Replicate.model_validate(r) for r in message["replicates"]]
    return record.model_copy(
        update={
            "replicates": [*record.replicates, *new],
            "gpu_seconds": round(record.gpu_seconds + message["seconds"], 3),
        }
    )


def _disqualify(
    records: dict[str, Measurement],
    configs: dict[str, Any],
    workload: str,
    message: Mapping[str, Any],
    folder: Path,
) -> None:
    """Take the arm at fault out of what is still to be timed; everything else goes on."""
    arm, reason = message.get("arm"), f"{workload}: {message['reason']}"
    if not arm or arm in (BASELINE, NULL):
        raise DeviceError(
            f"timing failed at {reason}; samples so far are kept in {folder}; run again to go on"
        )
    del configs[arm]
    for name, record in records.items():
        known = {**record.disqualified, arm: reason}
        records[name] = record.model_copy(update={"disqualified": known})
        write_record(folder / f"{name}.json", records[name])


def _open(
    study: Study,
    plan: Plan,
    commit: PlanCommit,
    configs: Mapping[str, Any],
    folder: Path,
    device: PresentDevice,
    l2_bytes: int,
    versions: Mapping[str, str],
    workload: str,
) -> Measurement:
    """The workload's record so far, or a new one without replicates."""
    depends = {
        "plan": plan.plan_hash,
        "launch": study.launch_digest,
        "arms": digest(sorted(configs)),
        "commit": commit.commit or "",
    }
    known = read_if_fresh(folder / f"{workload}.json", Measurement, depends)
    if known is not None and known.device_uuid == device.uuid and known.versions == dict(versions):
        return known
    point = next(w for w in plan.workloads if w.name == workload)
    return Measurement(
        study=study.name,
        depends=depends,
        versions=dict(versions),
        plan_commit=commit.commit,
        device=device.slug,
        device_name=device.name,
        device_uuid=device.uuid,
        workload=workload,
        regime=study.file.measurement.regime,
        input_sets=input_set_count(point.bytes, l2_bytes, study.file.measurement.regime),
        replicates=[],
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        gpu_seconds=0.0,
    )


def _job(
    study: Study,
    configs: Mapping[str, Any],
    records: Mapping[str, Measurement],
    process: int,
    device: PresentDevice,
) -> dict[str, Any]:
    plan = study.file.measurement
    return {
        "folder": str(study.kernel_folder),
        "problem": study.file.kernel.problem,
        "parameters": study.file.kernel.parameters,
        "process": process,
        "allocations": plan.allocations,
        "seed": plan.seed,
        "uuid": device.uuid,
        "timing": {
            "blocks": plan.blocks,
            "regime": plan.regime,
            "clock_tolerance": plan.clock_tolerance,
        },
        "workloads": {
            w.name: {"axes": w.axes, "arms": configs, "sets": records[w.name].input_sets}
            for w in study.workloads
        },
    }
