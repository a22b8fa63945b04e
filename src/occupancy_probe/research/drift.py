"""One matrix under two Tritons: what an arm's code costs here and there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tabulate import tabulate

from occupancy_probe.digest import digest
from occupancy_probe.records import ArmDrift, EnvironmentDrift, Feasibility
from occupancy_probe.research.matrix import read_matrix
from occupancy_probe.study import NULL, Study

_FIGURES = ("verdict", "registers", "shared_bytes", "ctas_per_sm")
_MORE = ("tensor_memory_columns", "stack_bytes", "spill_store_bytes", "spill_load_bytes")


def compare_environment(study: Study, results: Path, name: str) -> EnvironmentDrift:
    """The matrix under ``feasibility@name`` against the one under ``feasibility``."""
    rows: list[ArmDrift] = []
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    missing: list[str] = []
    for target in study.file.targets:
        here = read_matrix(results / "feasibility" / target)
        there = read_matrix(results / f"feasibility@{name}" / target)
        for arm in (a.name for a in study.arms if a.name != NULL):
            if arm not in here or arm not in there:
                missing.append(f"{target} {arm}")
                continue
            before |= here[arm].versions
            after |= there[arm].versions
            rows.append(_arm(target, here[arm], there[arm]))
    return EnvironmentDrift(
        study=study.name,
        depends={"launch": study.launch_digest},
        environment=name,
        before=before,
        after=after,
        arms=rows,
        missing=missing,
    )


def _arm(target: str, here: Feasibility, there: Feasibility) -> ArmDrift:
    figures = {key: (getattr(here, key), getattr(there, key)) for key in _FIGURES}
    more = {key: (getattr(here, key), getattr(there, key)) for key in _MORE}
    return ArmDrift(
        target=target,
        arm=here.arm,
        figures=figures | {k: v for k, v in more.items() if v[0] != v[1]},
        code=(_code(here), _code(there)),
        reasons=("; ".join(r.text for r in here.reasons), "; ".join(r.text for r in there.reasons)),
    )


def _code(record: Feasibility) -> str | None:
    """The machine code of all variants, whatever grid and arguments go with it."""
    codes = sorted((v.kernel, v.code_sha256) for v in record.variants)
    return digest(codes)[:12] if codes and record.code_sha256 else None


def table(drift: EnvironmentDrift) -> str:
    """Plain text: a row per target and arm, ``from → to`` where something moved."""
    head = ["target", "arm", *_FIGURES, "code", "also"]
    rows = [
        [
            row.target,
            row.arm,
            *(_cell(row.figures[key]) for key in _FIGURES),
            _cell(row.code),
            ", ".join(f"{k} {_cell(v)}" for k, v in row.figures.items() if k not in _FIGURES),
        ]
        for row in drift.arms
    ]
    lines = [
        f"{drift.study}: {_versions(drift.before)} → {drift.environment}: {_versions(drift.after)}"
    ]
    lines += [tabulate(rows, head), "", *summary(drift)]
    return "\n".join(lines) + "\n"


def summary(drift: EnvironmentDrift) -> list[str]:
    """One line per target: how many arms moved, and which verdicts turned."""
    lines = []
    for target in dict.fromkeys(row.target for row in drift.arms):
        rows = [row for row in drift.arms if row.target == target]
        turned = [r for r in rows if r.moved("verdict")]
        counts = [
            f"{_count(rows, key)} {words}"
            for key, words in (
                ("registers", "other registers"),
                ("shared_bytes", "other shared memory"),
                ("ctas_per_sm", "other CTAs per SM"),
                ("verdict", "another verdict"),
            )
        ]
        same = sum(r.same_code for r in rows)
        line = f"{target}: {len(rows)} arms, {same} with the same code; {', '.join(counts)}"
        names = [f"{r.arm} {_cell(r.figures['verdict'])}" for r in turned]
        lines.append(line + (f" ({', '.join(names)})" if names else ""))
    return lines + ([f"not compared: {', '.join(drift.missing)}"] if drift.missing else [])


def _count(rows: Iterable[ArmDrift], key: str) -> int:
    return sum(r.moved(key) for r in rows)


def _cell(values: tuple[object, object]) -> str:
    before, after = ("–" if v is None else str(v) for v in values)
    return before if before == after else f"{before} → {after}"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{k} {v}" for k, v in sorted(versions.items(), reverse=True)) or "nothing"
