"""All arms of a study on one target: compile what is missing, in parallel and out of process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from occupancy_probe.digest import digest
from occupancy_probe.exc import RecordError
from occupancy_probe.gpu import Target
from occupancy_probe.launch.compile import compiler_versions
from occupancy_probe.matrix import unsupported_because
from occupancy_probe.records import (
    ArmTrace,
    Feasibility,
    Trace,
    read_if_fresh,
    read_record,
    write_record,
)
from occupancy_probe.research.code import changes
from occupancy_probe.research.feasibility import Compiled, judge_arm
from occupancy_probe.research.neighbours import every_config, find_neighbours, trace_configs
from occupancy_probe.research.workers import COMPILE_TIME, Workers
from occupancy_probe.study import BASELINE, NULL, Study

Progress = Callable[[int, int, str], None]


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
        keys = {c.specialization for t in by_arm[arm.name] for c in t.calls}
        # The keys hold Triton's hash of the kernel and of every helper, wherever its file lies.
        depends[arm.name] = _depends(study, target, arm.config) | {
            "variants": digest(sorted(keys))[:16]
        }
        known = read_if_fresh(folder / f"{arm.name}.json", Feasibility, depends[arm.name])
        if known is not None and known.versions == versions and not _timed_out(known):
            records[arm.name] = known
        else:
            wanted[arm.name] = keys
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
                    study.file.limits.spill_bytes,
                )
                records[name] = record
                write_record(folder / f"{name}.json", record)
                del wanted[name]

    settle()
    needed = {k: trace.specializations[k] for keys in wanted.values() for k in sorted(keys)}
    with Workers(study.kernel_folder, target, workers, study.file.limits.compile_s) as pool:
        for key, result in pool.compile_all(needed):
            compiled[key] = result
            progress(len(compiled), len(needed), f"{target.name} {needed[key].kernel}")
            settle()
        found = {a.name: records[a.name] for a in study.arms if a.name != NULL}
        found = _add_neighbours(study, target, found, pool, versions)
    return compare_arms(found, folder)


def _depends(study: Study, target: Target, config: Mapping[str, Any]) -> dict[str, str]:
    found = {
        "launch": study.launch_digest,
        "arm": digest(config),
        "target": digest(target.model_dump())[:16],
    }
    if study.file.limits.spill_bytes is not None:
        found["spill_bytes"] = str(study.file.limits.spill_bytes)
    return found


def _timed_out(record: Feasibility) -> bool:
    """Rejected for want of time alone: the limit may be another now, or the machine less busy."""
    return any(r.limit == COMPILE_TIME for r in record.reasons)


def _add_neighbours(
    study: Study,
    target: Target,
    records: dict[str, Feasibility],
    pool: Workers,
    versions: Mapping[str, str],
) -> dict[str, Feasibility]:
    """Give every rejected arm its neighbours, where they were not looked for yet."""
    rejected = {
        n: r for n, r in records.items() if r.verdict == "rejected" and r.neighbours is None
    }
    traced: Trace | None = None
    compiled: dict[str, Compiled] = {}

    def judge(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, Feasibility]:
        nonlocal traced
        if traced is None:
            names = every_config(rejected)
            traced = pool.call(trace_configs, study.path, target.name, names)
        calls = {n: [t for t in traced.launches if t.arm == n] for n in configs}
        keys = {c.specialization for found in calls.values() for t in found for c in t.calls}
        missing = {k: traced.specializations[k] for k in sorted(keys - compiled.keys())}
        compiled.update(pool.compile_all(missing))
        stamps = {"depends": {}, "versions": versions}
        return {
            name: judge_arm(
                study.name,
                study.file.kernel.function,
                (name, config),
                target,
                calls[name],
                traced.specializations,
                compiled,
                stamps,
                study.file.limits.spill_bytes,
            )
            for name, config in configs.items()
        }

    try:
        neighbours = find_neighbours(rejected, records, judge)
    except Exception as e:  # a launch that dies on a config nobody asked for must cost no record
        said = f"{_NOT_TRIED}: {type(e).__name__}: {e}"[:200]
        return records | {n: _warned(r, [said]) for n, r in rejected.items()}
    return records | {
        n: _warned(r, []).model_copy(update={"neighbours": neighbours[n]})
        for n, r in rejected.items()
    }


_NOT_TRIED = "neighbours could not be tried"


def _warned(record: Feasibility, said: list[str]) -> Feasibility:
    """``record`` with what was said of its neighbours this time in place of the last time's."""
    others = [w for w in record.warnings if not w.startswith(_NOT_TRIED)]
    return record.model_copy(update={"warnings": [*others, *said]})


def compare_arms(records: dict[str, Feasibility], folder: Path) -> dict[str, Feasibility]:
    """Name, in each record, the first arm with the same code (baseline first) and what changed.

    Writes every record that is not on disk as it is now.
    """
    first: dict[str, str] = {}
    compared: dict[str, Feasibility] = {}
    for name, record in records.items():
        twin = None
        if record.code_sha256 is not None:
            twin = first.setdefault(record.code_sha256, name)
        same = twin if twin != name else None
        marked = record.model_copy(update={"same_code_as": same})
        said = changes(marked, records, BASELINE)
        compared[name] = marked.model_copy(update={"changed": said})
        path = folder / f"{name}.json"
        if read_if_fresh(path, Feasibility, record.depends) != compared[name]:
            write_record(path, compared[name])
    assert next(iter(records)) == BASELINE
    return compared


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


def summary(
    target: Target, records: Mapping[str, Feasibility], must_fit: list[str] | None = None
) -> dict[str, Any]:
    """What a target's matrix says in one object, for machines and for one line on the screen.

    must_fit: arms that the study requires to fit here; None if it requires nothing.
    """
    by_verdict: dict[str, list[str]] = defaultdict(list)
    for name, record in records.items():
        by_verdict[record.verdict].append(name)
    failed = {n: records[n] for n in must_fit or [] if records[n].verdict != "fits"}
    return {
        "target": target.name,
        "arms": {name: digest(r.model_dump(mode="json"))[:16] for name, r in records.items()},
        **{v: by_verdict.get(v, []) for v in ("fits", "rejected", "unsupported")},
        "unsupported_because": unsupported_because(records),
        "same_code": {n: r.same_code_as for n, r in records.items() if r.same_code_as},
        "spills": [n for n, r in records.items() if r.spill_store_bytes or r.spill_load_bytes],
        "must_fit": must_fit or [],
        "must_fit_failed": {
            n: "; ".join(reason.text for reason in r.reasons) for n, r in failed.items()
        },
    }


def one_line(found: Mapping[str, Any]) -> str:
    """A target's summary on one line."""
    if because := found["unsupported_because"]:
        return f"{found['target']}: supports none of the arms: {because}"
    counts = [f"{len(found['fits'])} of {len(found['arms'])} arms fit"]
    for key, words in (
        ("rejected", "rejected"),
        ("unsupported", "unsupported"),
        ("spills", "spill"),
        ("same_code", "the same code as another"),
    ):
        if found[key]:
            counts.append(f"{len(found[key])} {words}")
    return f"{found['target']}: {', '.join(counts)}"
