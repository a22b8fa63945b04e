"""Feasibility matrices of the fixtures' studies, each compiled once for all tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from occupancy_probe.gpu import target
from occupancy_probe.records import Feasibility


def compile_matrix(path: Path, target_name: str, folder: Path, trace) -> dict[str, Feasibility]:
    from occupancy_probe.research.matrix import feasibility_matrices
    from occupancy_probe.study import load_study

    study, chosen = load_study(path), target(target_name)
    return feasibility_matrices(study, trace, [chosen], folder.parent, workers=2)[chosen.name]


@dataclass(frozen=True)
class Matrix:
    folder: Path
    records: dict[str, Feasibility]

    def __getitem__(self, arm: str) -> Feasibility:
        return self.records[arm]


@pytest.fixture(scope="session")
def matrix_of(tmp_path_factory, trace_of):
    """`matrix_of(path, target)`."""
    made = {}

    def matrix(path: Path, target_name: str) -> Matrix:
        key = (path, target_name)
        if key not in made:
            folder = tmp_path_factory.mktemp(path.stem) / target_name
            made[key] = Matrix(folder, compile_matrix(path, target_name, folder, trace_of(path)))
        return made[key]

    return matrix


@pytest.fixture(autouse=True)
def own_kernels(imports):
    """Every test here may import kernels of its own."""


@pytest.fixture
def triton_before_3_9():
    """Triton 3.9 refuses such a kernel when it is made."""
    import triton

    if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9):
        pytest.skip("from 3.9 the kernel cannot be made")
