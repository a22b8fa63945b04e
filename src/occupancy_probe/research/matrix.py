"""All arms of a study on one target: compile what is missing, in parallel and out of process."""

from __future__ import annotations

import multiprocessing
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

from pebble import ProcessExpired, ProcessPool

from occupancy_probe.digest import digest
from occupancy_probe.exc import RecordError
from occupancy_probe.gpu import Target
from occupancy_probe.launch.compile import compiler_versions
from occupancy_probe.records import (
    ArmTrace,
    Feasibility,
    Reason,
    Specialization,
    Trace,
    read_if_fresh,
    read_record,
    write_record,
)
from occupancy_probe.research.feasibility import Compiled, compile_variant, judge_arm
from occupancy_probe.study import BASELINE, NULL, Study

Progress = Callable[[int, int, str], None]

_COMPILE_TIME = "compile time"


def feasibility_matrix(
    study: Study,
    trace: Trace,
    target: Target,
    folder: Path,
    workers: int,
    progress: Progress = lambda done, total, what: None,
) -> dict[str, Feasibility]:
    """Records of every arm on ``target``, written to ``folder/<arm>.json`` as they become known.

    Records that are fresh are kept, so an interrupted run repeats only the compiles in flight.
    """
    versions = dict(compiler_versions(target))
    by_arm: dict[str, list[ArmTrace]] = defaultdict(list)
    for launch in trace.launches:
        if launch.target == target.name:
            by_arm[launch.arm].append(launch)
    records: dict[str, Feasibility] = {}
    wanted: dict[str, set[str]] = {}
    depends: dict[str, dict[str, str]] = {}
    for arm in study.arms:
        if arm.name == NULL:
            continue
        depends[arm.name] = {
            "launch": study.launch_digest,
            "arm": digest(arm.config),
            "target": digest(target.model_dump())[:16],
        }
        known = read_if_fresh(folder / f"{arm.name}.json", Feasibility, depends[arm.name])
        if known is not None and known.versions == versions and not _timed_out(known):
            records[arm.name] = known
        else:
            wanted[arm.name] = {c.specialization for t in by_arm[arm.name] for c in t.calls}
    compiled: dict[str, Compiled] = {}

    def settle() -> None:
        for name, keys in list(wanted.items()):
            if keys <= compiled.keys():
                record = judge_arm(
                    study.name,
                    study.file.kernel.function,
                    (name, study.arm(name).config),
                    target,
                    by_arm[name],
                    trace.specializations,
                    compiled,
                    {"depends": depends[name], "versions": versions},
                )
                records[name] = record
                write_record(folder / f"{name}.json", record)
                del wanted[name]

    settle()
    needed = {k: trace.specializations[k] for keys in wanted.values() for k in sorted(keys)}
    for key, result in _compile_all(
        study.kernel_folder, needed, target, workers, study.file.limits.compile_s
    ):
        compiled[key] = result
        spec = needed[key]
        progress(len(compiled), len(needed), f"{target.name} {spec.kernel}")
        settle()
    return mark_same_code({a.name: records[a.name] for a in study.arms if a.name != NULL}, folder)


def _timed_out(record: Feasibility) -> bool:
    """Rejected for want of time alone: the limit may be another now, or the machine less busy."""
    return any(r.limit == _COMPILE_TIME for r in record.reasons)


def _compile_all(
    folder: Path,
    specs: Mapping[str, Specialization],
    target: Target,
    workers: int,
    limit_s: float,
) -> Iterator[tuple[str, Compiled]]:
    """Compile in worker processes; one that aborts or never ends costs only its own specialization."""
    if not specs:
        return
    context = multiprocessing.get_context("spawn")
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    with ProcessPool(max_workers=min(workers, len(specs)), context=context) as pool:
        futures: dict[Any, str] = {
            pool.schedule(compile_variant, (folder, spec, target), timeout=limit_s): key
            for key, spec in specs.items()
        }
        for future in as_completed(futures):
            try:
                result = future.result()
            except TimeoutError:
                text = f"no answer from the compiler in {limit_s:g} s"
                result = Compiled(None, Reason(limit=_COMPILE_TIME, text=text))
            except ProcessExpired as e:
                text = f"the compiler ended its process (exit status {e.exitcode})"
                result = Compiled(None, Reason(limit="compiler", text=text))
            yield futures[future], result


def mark_same_code(records: dict[str, Feasibility], folder: Path) -> dict[str, Feasibility]:
    """Name, in each record, the first arm with the same machine code (baseline first)."""
    first: dict[str, str] = {}
    marked: dict[str, Feasibility] = {}
    for name, record in records.items():
        twin = None
        if record.code_sha256 is not None:
            twin = first.setdefault(record.code_sha256, name)
        same = twin if twin != name else None
        if record.same_code_as != same:
            record = record.model_copy(update={"same_code_as": same})
            write_record(folder / f"{name}.json", record)
        marked[name] = record
    assert next(iter(records)) == BASELINE
    return marked


def read_matrix(folder: Path) -> dict[str, Feasibility]:
    """The records of one target by arm; a broken one is left out (it is made again when asked for)."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            record = read_record(path, Feasibility)
        except RecordError:
            continue
        found[record.arm] = record
    return found


def summary(target: Target, records: Mapping[str, Feasibility]) -> dict[str, Any]:
    """What a target's matrix says in one object, for machines and for one line on the screen."""
    by_verdict: dict[str, list[str]] = defaultdict(list)
    for name, record in records.items():
        by_verdict[record.verdict].append(name)
    return {
        "target": target.name,
        "arms": {name: digest(r.model_dump(mode="json"))[:16] for name, r in records.items()},
        **{v: by_verdict.get(v, []) for v in ("fits", "rejected", "unsupported")},
        "same_code": {n: r.same_code_as for n, r in records.items() if r.same_code_as},
    }
