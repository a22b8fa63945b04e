"""The measurement stage: process replicates over all workloads, samples saved as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from occupancy_probe.digest import digest
from occupancy_probe.exc import DeviceError, RecordError
from occupancy_probe.execute.device import GpuTurn
from occupancy_probe.execute.job import problem_job
from occupancy_probe.execute.rotation import plan_rotation
from occupancy_probe.execute.supervise import supervise
from occupancy_probe.gpu import PresentDevice
from occupancy_probe.records import (
    Measurement,
    Plan,
    PlanCommit,
    Replicate,
    read_if_fresh,
    read_record,
    write_record,
)
from occupancy_probe.study import BASELINE, NULL, Study

TIME_LIMIT_S = 300.0
"""For one workload's replicates in one process, without a word between arms."""

WORKER = "occupancy_probe.execute.measure_worker"

CONFIRM_PROCESSES = 1000
"""Number of the first process of a confirmation: other seeds than any measurement's."""

Records = dict[str, Measurement]


def measure(
    study: Study,
    plan: Plan,
    commit: PlanCommit,
    arms: Sequence[str],
    folder: Path,
    turn: GpuTurn,
    l2_bytes: int,
    versions: Mapping[str, str],
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    enough: Callable[[Records], bool] = lambda records: False,
    first_process: int = 0,
    workloads: Sequence[str] | None = None,
    worker: str | None = None,
) -> Records:
    """Time ``arms`` (right ones, distinct code) against the baseline on ``workloads``, or on all.

    Records in ``folder/<workload>.json`` grow by one process at a time; a run that was stopped goes
    on where it was. enough: asked at the plan's looks whether every comparison is decided.
    first_process: number of the first one, part of all seeds. DeviceError when the baseline itself
    cannot be timed, or when something is compiled while the GPU is held.
    """
    if BASELINE not in arms:
        raise DeviceError(
            "the baseline is not right on this device; nothing can be compared with it"
        )
    configs = {a: study.arm(a).config for a in (BASELINE, NULL, *arms)}
    records = {
        w.name: _open(study, plan, commit, configs, folder, turn.device, l2_bytes, versions, w.name)
        for w in study.workloads
        if workloads is None or w.name in workloads
    }
    for record in records.values():
        for fallen in record.disqualified:
            configs.pop(fallen, None)
    wanted = study.file.measurement
    total = wanted.processes * len(records)
    for number in range(wanted.processes):
        if number in wanted.stop.looks and _whole(records, number) and enough(records):
            break
        process = first_process + number
        while open_ := [n for n, r in records.items() if process not in processes_of(r)]:
            job = _job(study, configs, records, process)
            counted = turn.held_s
            for workload, message in supervise(
                worker or WORKER, job, open_, TIME_LIMIT_S, turn=turn
            ):
                before, counted = counted, turn.held_s
                records[workload] = _held(records[workload], counted - before)
                if "failed" in message:
                    write_record(folder / f"{workload}.json", records[workload])
                    _disqualify(records, configs, workload, message, folder)
                    break
                records[workload] = _with_replicates(records[workload], message)
                write_record(folder / f"{workload}.json", records[workload])
                done = sum(len(processes_of(r)) for r in records.values())
                progress(done, total, f"{workload}: process {number + 1} of {wanted.processes}")
            records[workload] = _held(records[workload], turn.held_s - counted)
            write_record(folder / f"{workload}.json", records[workload])
    return records


def processes_of(record: Measurement) -> set[int]:
    """Numbers of the processes that have given this record replicates."""
    return {r.process for r in record.replicates}


def _whole(records: Records, processes: int) -> bool:
    return all(len(processes_of(r)) >= processes for r in records.values())


def _with_replicates(record: Measurement, message: Mapping[str, Any]) -> Measurement:
    new = [Replicate.model_validate(r) for r in message["replicates"]]
    arms = dict(record.arm_seconds)
    for arm, seconds in message["arm_seconds"].items():
        arms[arm] = round(arms.get(arm, 0.0) + seconds, 4)
    return record.model_copy(
        update={
            "replicates": [*record.replicates, *new],
            "gpu_seconds": round(record.gpu_seconds + message["seconds"], 3),
            "busy_seconds": round(record.busy_seconds + message["busy_s"], 4),
            "arm_seconds": arms,
        }
    )


def _held(record: Measurement, held_s: float) -> Measurement:
    """With the time that the GPU was held for it: from the message before it, or the turn's begin."""
    known = round(record.held_seconds + held_s, 4)
    return record.model_copy(update={"held_seconds": known})


def _disqualify(
    records: Records,
    configs: dict[str, Any],
    workload: str,
    message: Mapping[str, Any],
    folder: Path,
) -> None:
    """Take the arm at fault out of what is still to be timed; everything else goes on."""
    arm, reason = message.get("arm"), f"{workload}: {message['reason']}"
    if message.get("fatal") or not arm or arm in (BASELINE, NULL):
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
    rotation = plan_rotation(point.bytes, l2_bytes, study.file.measurement.regime)
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
        input_sets=rotation.sets,
        launches_per_sample=rotation.launches,
        swept_bytes=rotation.swept_bytes,
        replicates=[],
        configs={a: dict(c) for a, c in configs.items()},
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        gpu_seconds=0.0,
    )


def previous_uuid(folder: Path) -> str | None:
    """The GPU that the records of ``folder`` are from: a run that was stopped goes on there."""
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            return read_record(path, Measurement).device_uuid
        except RecordError:
            continue
    return None


def _job(
    study: Study, configs: Mapping[str, Any], records: Records, process: int
) -> dict[str, Any]:
    plan = study.file.measurement
    return {
        **problem_job(study),
        "process": process,
        "allocations": plan.allocations,
        "seed": plan.seed,
        "timing": {
            "blocks": plan.blocks,
            "regime": plan.regime,
            "clock_tolerance": plan.clock_tolerance,
        },
        "workloads": {
            w.name: {
                "axes": w.axes,
                "arms": {arm: {"config": config} for arm, config in configs.items()},
                "rotation": {
                    "sets": records[w.name].input_sets,
                    "launches": records[w.name].launches_per_sample,
                    "swept_bytes": records[w.name].swept_bytes,
                },
            }
            for w in study.workloads
            if w.name in records
        },
    }
