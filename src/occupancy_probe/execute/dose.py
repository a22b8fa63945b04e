"""The dose stage: one binary under caps on its CTAs per SM, beside the unpadded baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from occupancy_probe.digest import digest
from occupancy_probe.exc import DeviceError
from occupancy_probe.execute.device import GpuTurn
from occupancy_probe.execute.job import problem_job
from occupancy_probe.execute.measurement import TIME_LIMIT_S, WORKER
from occupancy_probe.execute.rotation import plan_rotation
from occupancy_probe.execute.supervise import supervise
from occupancy_probe.gpu import Target, shared_padding
from occupancy_probe.records import (
    Dose,
    DosePoint,
    Feasibility,
    Plan,
    PlanCommit,
    Replicate,
    read_if_fresh,
    write_record,
)
from occupancy_probe.study import BASELINE, NULL, Study
from occupancy_probe.study.schema import DosePlan

FIRST_PROCESS = 2000
"""Number of the first process: other seeds than the measurement's and its confirmation's."""

Matrix = Mapping[str, Mapping[str, Feasibility]]


def plan_doses(
    arm: str, here: Feasibility, target: Target, elsewhere: Matrix, wanted: DosePlan
) -> tuple[dict[str, DosePoint], list[str]]:
    """The doses of ``arm`` on ``target`` by name, and notes on those that cannot be.

    here: the arm's feasibility on ``target``. elsewhere: the matrix by target, for what is emulated.
    """
    points: dict[str, DosePoint] = {}
    notes: list[str] = []
    most, needed = here.ctas_per_sm or 0, here.shared_bytes or 0
    caps = range(1, most + 1) if wanted.ctas == "auto" else wanted.ctas
    theirs: dict[str, int] = {}
    for name in wanted.emulate:
        record = elsewhere.get(name, {}).get(arm)
        if record is None or record.verdict != "fits" or not record.ctas_per_sm:
            said = "not compiled" if record is None else record.verdict
            notes.append(f"{arm} on {name}: {said}, so there is no residency to emulate")
            continue
        theirs[name] = record.ctas_per_sm
    for ctas in caps:
        if ctas > most:
            notes.append(f"{arm} at {ctas} CTAs: {target.name} holds {most} of it")
            continue
        try:
            padded = shared_padding(target, needed, ctas)
        except ValueError as e:
            notes.append(f"{arm} at {ctas} CTAs: {e}")
            continue
        points[f"{arm}@{ctas}"] = DosePoint(
            ctas=ctas,
            shared_bytes=padded,
            emulates=[t for t, own in theirs.items() if own == ctas],
        )
    for name, own in theirs.items():
        if not any(name in p.emulates for p in points.values()):
            notes.append(f"{arm} on {name}: its {own} CTAs per SM are not among the doses here")
    return points, notes


def measure_doses(
    study: Study,
    plan: Plan,
    commit: PlanCommit,
    arms: Sequence[str],
    matrix: Matrix,
    target: Target,
    folder: Path,
    turn: GpuTurn,
    l2_bytes: int,
    versions: Mapping[str, str],
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    worker: str | None = None,
) -> dict[str, Dose]:
    """Time every dose of ``arms`` (right ones) in common blocks; ``folder/<arm>.json`` per arm.

    Records grow by one process at a time over all arms; a run that was stopped goes on where it was.
    """
    wanted = study.file.dose
    assert wanted is not None
    records = {
        arm: _open(study, plan, commit, arm, matrix, target, folder, turn, versions, list(arms))
        for arm in arms
    }
    if len({r.started_at for r in records.values()}) > 1:  # not of one run: not in common blocks
        spent = dict.fromkeys(("held_seconds", "busy_seconds", "gpu_seconds"), 0.0)
        anew = {"replicates": {}, "started_at": _now(), **spent}
        records = {a: r.model_copy(update=anew) for a, r in records.items()}
    workloads = study.selects(wanted.workloads)
    total = wanted.processes * len(workloads)
    for number in range(wanted.processes):
        process = FIRST_PROCESS + number
        while open_ := [w for w in workloads if process not in _processes(records, w)]:
            job = _job(study, plan, records, process, l2_bytes)
            counted = turn.held_s
            for workload, message in supervise(
                worker or WORKER, job, open_, TIME_LIMIT_S, turn=turn
            ):
                before, counted = counted, turn.held_s
                records = _held(records, counted - before)
                if "failed" in message:
                    raise DeviceError(
                        f"dose {message.get('arm') or ''} failed at {workload}: {message['reason']};"
                        f" samples so far are kept in {folder}; take the arm out of `dose.arms`"
                    )
                records = {
                    arm: _with_replicates(r, workload, message, len(records))
                    for arm, r in records.items()
                }
                for arm, record in records.items():
                    write_record(folder / f"{arm}.json", record)
                done = sum(len(_processes(records, w)) for w in workloads)
                progress(done, total, f"{workload}: process {number + 1} of {wanted.processes}")
            records = _held(records, turn.held_s - counted)
            for arm, record in records.items():
                write_record(folder / f"{arm}.json", record)
    return records


def _held(records: Mapping[str, Dose], held_s: float) -> dict[str, Dose]:
    """With equal parts of the time that the GPU was held meanwhile."""
    part = held_s / len(records)
    return {
        arm: r.model_copy(update={"held_seconds": round(r.held_seconds + part, 4)})
        for arm, r in records.items()
    }


def _processes(records: Mapping[str, Dose], workload: str) -> set[int]:
    """Processes that are in the records of all arms."""
    found = [{r.process for r in d.replicates.get(workload, [])} for d in records.values()]
    return set.intersection(*found)


def _with_replicates(record: Dose, workload: str, message: Mapping[str, Any], arms: int) -> Dose:
    own = {BASELINE, NULL, *record.points}
    new = [
        r.model_copy(update={"arms": {a: s for a, s in r.arms.items() if a in own}})
        for r in map(Replicate.model_validate, message["replicates"])
    ]
    process = {r.process for r in new}
    before = [r for r in record.replicates.get(workload, []) if r.process not in process]
    points = {
        name: p.model_copy(update={"driver_ctas": message["driver_ctas"][name]})
        for name, p in record.points.items()
    }
    ctas = max(message["grids"][name] for name in points) if points else 0
    return record.model_copy(
        update={
            "points": points,
            "grids": {**record.grids, workload: ctas},
            "replicates": {**record.replicates, workload: [*before, *new]},
            "gpu_seconds": round(record.gpu_seconds + message["seconds"] / arms, 3),
            "busy_seconds": round(record.busy_seconds + message["busy_s"] / arms, 4),
        }
    )


def _open(
    study: Study,
    plan: Plan,
    commit: PlanCommit,
    arm: str,
    matrix: Matrix,
    target: Target,
    folder: Path,
    turn: GpuTurn,
    versions: Mapping[str, str],
    arms: list[str],
) -> Dose:
    """The arm's record so far, or a new one without replicates."""
    wanted, here = study.file.dose, matrix[target.name][arm]
    assert wanted is not None
    points, notes = plan_doses(arm, here, target, matrix, wanted)
    depends = {
        "plan": plan.plan_hash,
        "launch": study.launch_digest,
        "doses": digest(
            [arms, {n: p.shared_bytes for n, p in points.items()}, wanted.model_dump()]
        ),
        "commit": commit.commit or "",
    }
    known = read_if_fresh(folder / f"{arm}.json", Dose, depends)
    if known and known.device_uuid == turn.device.uuid and known.versions == dict(versions):
        return known
    config = study.arm(arm).config
    return Dose(
        study=study.name,
        depends=depends,
        versions=dict(versions),
        plan_commit=commit.commit,
        device=turn.device.slug,
        device_name=turn.device.name,
        device_uuid=turn.device.uuid,
        arm=arm,
        config=config,
        num_warps=(here.threads or 0) // target.warp_size or int(config.get("num_warps", 4)),
        points=points,
        notes=notes,
        started_at=_now(),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _job(
    study: Study, plan: Plan, records: Mapping[str, Dose], process: int, l2_bytes: int
) -> dict[str, Any]:
    wanted, measurement = study.file.dose, study.file.measurement
    assert wanted is not None
    base = {"config": study.arm(BASELINE).config}
    arms: dict[str, Any] = {BASELINE: base, NULL: base}
    for record in records.values():
        for name, point in record.points.items():
            arms[name] = {"config": record.config, "shared_bytes": point.shared_bytes}
    sizes = {w.name: w.bytes for w in plan.workloads}
    rotations = {n: plan_rotation(b, l2_bytes, measurement.regime) for n, b in sizes.items()}
    return {
        **problem_job(study),
        "process": process,
        "allocations": wanted.allocations,
        "seed": measurement.seed,
        "timing": {
            "blocks": wanted.blocks,
            "regime": measurement.regime,
            "clock_tolerance": measurement.clock_tolerance,
        },
        "workloads": {
            w.name: {"axes": w.axes, "arms": arms, "rotation": vars(rotations[w.name])}
            for w in study.workloads
        },
    }
