"""The correctness stage: every arm on a device, or every distinct tile in the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from occupancy_probe.digest import digest, digest_sources
from occupancy_probe.exc import DeviceError
from occupancy_probe.execute.device import GpuTurn
from occupancy_probe.execute.job import problem_job
from occupancy_probe.execute.precompile import precompile
from occupancy_probe.execute.supervise import supervise
from occupancy_probe.launch_options import LAUNCH_OPTIONS
from occupancy_probe.records import Check, Correctness, read_if_fresh, write_record
from occupancy_probe.study import NULL, Arm, Study, Workload

REPEATS = 20
"""Launches on the same input that must be equal bit by bit, on the largest measured workload."""

INTERPRETER = "interpreter"
"""Device name of the logic checks."""


def check_arms(
    study: Study,
    arms: Iterable[str],
    folder: Path,
    device: str,
    device_name: str,
    versions: Mapping[str, str],
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    turn: GpuTurn | None = None,
    largest: str | None = None,
) -> dict[str, Correctness]:
    """Check ``arms`` on the GPU of ``turn``, or on the interpreter; one record each in ``folder``.

    largest: the workload on which ``REPEATS`` launches must give the same bits.
    Fresh records are kept. An arm that is wrong, crashes or does not answer is a record too. On a GPU
    everything is compiled before it is held; DeviceError if something is compiled while it is.
    """
    logic = device == INTERPRETER
    named = [study.arm(n) for n in arms if n != NULL]
    groups = _by_tile(named) if logic else {a.name: [a.name] for a in named}
    workloads = study.logic if logic else (*study.workloads, *study.checks)
    records: dict[str, Correctness] = {}
    depends = {name: _depends(study, study.arm(name), workloads) for name in groups}
    for name in groups:
        known = read_if_fresh(folder / f"{name}.json", Correctness, depends[name])
        if (
            known is not None
            and known.stands_for == groups[name][1:]
            and known.versions == versions
        ):
            records[name] = known
    todo = [name for name in groups if name not in records]
    limit = study.file.checks.time_limit_s
    job = {
        **problem_job(study),
        "device": "cpu" if logic else "cuda",
        "seed": study.file.checks.seed,
        "workloads": {w.name: w.axes for w in workloads},
        "arms": {name: study.arm(name).config for name in todo},
        "target": turn.device.target if turn else None,
        "largest": largest,
        "repeats": REPEATS,
    }
    if turn and todo:
        compile_s = study.file.limits.compile_s * len(workloads)
        precompile(
            problem_job(study), job["workloads"], job["arms"], turn.device, compile_s, progress
        )
    environment = {"TRITON_INTERPRET": "1" if logic else "0"}
    module = "occupancy_probe.execute.check_worker"
    told = supervise(module, job, todo, limit, environment, turn)
    for done, (name, message) in enumerate(told, 1):
        if message.get("fatal"):
            raise DeviceError(f"correctness failed at {message['reason']}")
        checks = [Check.model_validate(c) for c in message.get("checks", [])] or [
            Check(workload="*", verdict=message["kind"], reason=message["reason"])
        ]
        worst = next((c.verdict for c in checks if c.verdict != "right"), "right")
        record = Correctness(
            study=study.name,
            depends=depends[name],
            versions=dict(versions),
            arm=name,
            config=study.arm(name).config,
            device=device,
            device_name=device_name,
            device_uuid=turn.device.uuid if turn else None,
            mode="logic" if logic else "gpu",
            verdict=worst,
            checks=checks,
            stands_for=groups[name][1:],
        )
        write_record(folder / f"{name}.json", record)
        records[name] = record
        progress(done, len(todo), f"{name}: {worst}")
    return {name: records[name] for name in groups}


def largest_workload(bytes_of: Mapping[str, int]) -> str | None:
    """The workload that moves the most bytes: the production grid at its largest."""
    return max(bytes_of, key=lambda name: bytes_of[name], default=None)


def _by_tile(arms: list[Arm]) -> dict[str, list[str]]:
    """Arms that are one and the same to the interpreter, under the first one's name."""
    groups: dict[str, list[str]] = {}
    for arm in arms:
        key = digest({k: v for k, v in arm.config.items() if k not in LAUNCH_OPTIONS})
        groups.setdefault(key, []).append(arm.name)
    return {names[0]: names for names in groups.values()}


def _depends(study: Study, arm: Arm, workloads: Iterable[Workload]) -> dict[str, str]:
    checked: list[Any] = [[w.axes for w in workloads], study.file.checks.seed]
    return {
        "launch": study.launch_digest,
        "arm": digest(arm.config),
        "checks": digest(checked),
        "code": digest_sources(
            "execute/check.py",
            "execute/compare.py",
            "execute/buffers.py",
            "launch/interpreter.py",
        ),
    }
