"""All arms of a study on its targets: compile what is missing, in parallel and out of process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from occupancy_probe.digest import digest, digest_sources
from occupancy_probe.exc import RecordError
from occupancy_probe.gpu import Target
from occupancy_probe.launch.compile import compiler_versions
from occupancy_probe.matrix import unsupported_because
from occupancy_probe.records import (
    ArmTrace,
    Feasibility,
    Specialization,
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


def feasibility_matrices(
    study: Study,
    trace: Trace,
    targets: Sequence[Target],
    folder: Path,
    workers: int,
    progress: Progress = lambda done, total, what: None,
) -> dict[str, dict[str, Feasibility]]:
    """By target the records of every arm, written to ``folder/<target>/<arm>.json`` as they become known.

    Records that are fresh are kept, so an interrupted run repeats only the compiles in flight. One
    pool serves all targets: processes start once, and no core waits for a target's last compile.
    """
    matrices = {t.name: _Matrix(study, trace, t, folder / t.name) for t in targets}
    jobs = {(n, key): job for n, m in matrices.items() for key, job in m.needed().items()}
    with Workers(study.kernel_folder, workers, study.file.limits.compile_s) as pool:
        for done, ((name, key), result) in enumerate(pool.compile_all(jobs), 1):
            matrices[name].take(key, result)
            progress(done, len(jobs), f"{name} {jobs[name, key][0].kernel}")
        found = {name: m.with_neighbours(pool) for name, m in matrices.items()}
    return {name: compare_arms(records, folder / name) for name, records in found.items()}


class _Matrix:
    """One target: the records that are known, and what is still to be compiled for the others."""

    def __init__(self, study: Study, trace: Trace, target: Target, folder: Path) -> None:
        self._study, self._target, self._folder = study, target, folder
        self._specializations = trace.specializations
        self._versions = dict(compiler_versions(target))
        self._compiled: dict[str, Compiled] = {}
        self._records: dict[str, Feasibility] = {}
        self._wanted: dict[str, set[str]] = {}
        self._depends: dict[str, dict[str, str]] = {}
        self._launches: dict[str, list[ArmTrace]] = defaultdict(list)
        for launch in trace.launches:
            if launch.target == target.name:
                self._launches[launch.arm].append(launch)
        for arm in study.arms:
            if arm.name != NULL:
                self._open(arm.name, arm.config)
        self._settle()

    def _open(self, arm: str, config: Mapping[str, Any]) -> None:
        """Read the arm's record, or note what it needs."""
        keys = {c.specialization for t in self._launches[arm] for c in t.calls}
        # The keys hold Triton's hash of the kernel and of every helper, wherever its file lies.
        depends = _depends(self._study, self._target, config) | {
            "variants": digest(sorted(keys))[:16]
        }
        self._depends[arm] = depends
        known = read_if_fresh(self._folder / f"{arm}.json", Feasibility, depends)
        if known is not None and known.versions == self._versions and not _timed_out(known):
            self._records[arm] = known
        else:
            self._wanted[arm] = keys

    def needed(self) -> dict[str, tuple[Specialization, Target]]:
        """What is to be compiled, by key."""
        keys = dict.fromkeys(k for keys in self._wanted.values() for k in sorted(keys))
        return {k: (self._specializations[k], self._target) for k in keys}

    def take(self, key: str, result: Compiled) -> None:
        """Note what became of one; judge and write every arm that waited for it alone."""
        self._compiled[key] = result
        self._settle()

    def _settle(self) -> None:
        for name, keys in list(self._wanted.items()):
            if keys <= self._compiled.keys():
                record = self._judge(
                    name,
                    self._study.arm(name).config,
                    self._launches[name],
                    self._specializations,
                    self._compiled,
                    self._depends[name],
                )
                self._records[name] = record
                write_record(self._folder / f"{name}.json", record)
                del self._wanted[name]

    def _judge(
        self,
        name: str,
        config: Mapping[str, Any],
        launches: Sequence[ArmTrace],
        specializations: Mapping[str, Specialization],
        compiled: Mapping[str, Compiled],
        depends: Mapping[str, str],
    ) -> Feasibility:
        return judge_arm(
            self._study.name,
            self._study.file.kernel.function,
            (name, config),
            self._target,
            launches,
            specializations,
            compiled,
            {"depends": depends, "versions": self._versions},
            self._study.file.limits.spill_bytes,
        )

    def with_neighbours(self, pool: Workers) -> dict[str, Feasibility]:
        """All records; a rejected arm has its neighbours, looked for where they were not yet."""
        arms = [a.name for a in self._study.arms if a.name != NULL]
        records = {name: self._records[name] for name in arms}
        rejected = {
            n: r for n, r in records.items() if r.verdict == "rejected" and r.neighbours is None
        }
        traced: Trace | None = None
        compiled: dict[str, Compiled] = {}

        def judge(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, Feasibility]:
            nonlocal traced
            if traced is None:
                names = every_config(rejected)
                traced = pool.call(trace_configs, self._study.path, self._target.name, names)
            calls = {n: [t for t in traced.launches if t.arm == n] for n in configs}
            keys = {c.specialization for found in calls.values() for t in found for c in t.calls}
            known = traced.specializations
            missing = {k: (known[k], self._target) for k in sorted(keys - compiled.keys())}
            compiled.update(pool.compile_all(missing))
            return {
                name: self._judge(name, config, calls[name], known, compiled, {})
                for name, config in configs.items()
            }

        try:
            neighbours = find_neighbours(rejected, records, judge)
        except (
            Exception
        ) as e:  # a launch that dies on a config nobody asked for must cost no record
            said = f"{_NOT_TRIED}: {type(e).__name__}: {e}"[:200]
            return records | {n: _warned(r, [said]) for n, r in rejected.items()}
        return records | {
            n: _warned(r, []).model_copy(update={"neighbours": neighbours[n]})
            for n, r in rejected.items()
        }


@cache
def _code() -> str:
    """Of what makes figures of a binary; the binaries themselves stay in Triton's cache."""
    return digest_sources("gpu", "launch", "research")


def _depends(study: Study, target: Target, config: Mapping[str, Any]) -> dict[str, str]:
    found = {
        "launch": study.launch_digest,
        "arm": digest(config),
        "target": digest(target.model_dump())[:16],
        "code": _code(),
    }
    if study.file.limits.spill_bytes is not None:
        found["spill_bytes"] = str(study.file.limits.spill_bytes)
    return found


def _timed_out(record: Feasibility) -> bool:
    """Rejected for want of time alone: the limit may be another now, or the machine less busy."""
    return any(r.limit == COMPILE_TIME for r in record.reasons)


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
        "reasons": {
            n: [reason.text for reason in r.reasons] for n, r in records.items() if r.reasons
        },
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
