"""What several commands need: which arms are left, and the index beside a folder of records."""

from __future__ import annotations

import json
from pathlib import Path

from occupancy_probe import records
from occupancy_probe.exc import DeviceError
from occupancy_probe.study import Study


def surviving(results: Path, target_name: str, study: Study) -> list[str]:
    """Arms that fit on the target and are not the same code as an earlier one, in study order."""
    from occupancy_probe.research.matrix import read_matrix

    matrix = read_matrix(results / "feasibility" / target_name)
    if not matrix:
        raise DeviceError(
            f"{target_name}, the target of the GPU here, is not among the study's targets; add it to"
            f" `targets` in {study.path}"
        )
    names = [
        a.name
        for a in study.arms
        if a.name in matrix and matrix[a.name].verdict == "fits" and not matrix[a.name].same_code_as
    ]
    if not names:
        raise DeviceError(
            f"no arm fits on {target_name}; see {results}/feasibility/{target_name}.json"
        )
    return names


def beside(name: str, environment: str) -> str:
    """``name`` of a file or folder, or its like under another Triton: ``trace@triton-3.6.json``."""
    if not environment:
        return name
    stem, dot, suffix = name.partition(".")
    return f"{stem}@{environment}{dot}{suffix}"


def feasibility_only(study: Study, index: Path) -> bool:
    """Whether the study has no ``launch``: says so and writes an empty index."""
    if study.file.signature is None:
        return False
    write_index(index, {})
    print(f"{study.name}: no launch: feasibility only")
    return True


def correct(path: Path) -> bool:
    return records.read_record(path, records.Correctness).verdict == "right"


def write_index(path: Path, content: object) -> None:
    records.write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
