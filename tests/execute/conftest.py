"""Simulated GPUs, and a study with its plan for stages that run simulated workers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import FIXTURES

from occupancy_probe.execute.device import GpuTurn
from occupancy_probe.gpu import PresentDevice
from occupancy_probe.records import PlanCommit
from occupancy_probe.study import load_study

TESTS = Path(__file__).parents[1]
WORKER = "execute.timing_worker"


def simulated(number: int) -> PresentDevice:
    """An H200 that is not here."""
    return PresentDevice(
        "NVIDIA H200", "nvidia-h200", f"GPU-{number}", "sm_90", "580.1", 1 << 37, index=number
    )


@pytest.fixture
def workers(monkeypatch):
    """Children find the tests' workers."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    return monkeypatch


@dataclass
class Stage:
    """What a stage that times is given."""

    study: Any
    plan: Any
    commit: PlanCommit
    turn: GpuTurn
    folder: Path


@pytest.fixture
def stage(workers, tmp_path, trace_of) -> Stage:
    from occupancy_probe.plan.freeze import freeze

    path = FIXTURES / "tiny.yaml"
    study = load_study(path)
    plan = freeze(study, trace_of(path))
    commit = PlanCommit(
        study="tiny",
        plan_hash=plan.plan_hash,
        commit="c" * 40,
        committed_at="2026-01-01T00:00:00+00:00",
        preregistered=True,
        note="committed",
    )
    return Stage(study, plan, commit, GpuTurn(simulated(0), tmp_path), tmp_path / "measurement")
