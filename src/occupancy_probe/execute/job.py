"""What a worker process is told and how it begins: the Problem, the parent's life, the GPU's turn."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from occupancy_probe.execute.supervise import tell
from occupancy_probe.launch import Problem
from occupancy_probe.lifetime import end_with_parent
from occupancy_probe.records import KernelFile
from occupancy_probe.study import Study


def problem_job(study: Study) -> dict[str, Any]:
    """The part of a job that names the study's Problem."""
    from occupancy_probe.launch.launches import kernel_file

    file = kernel_file(study)
    return {
        "folder": str(study.kernel_folder),
        "problem": study.file.kernel.problem,
        "parameters": study.file.kernel.parameters,
        "file": file.model_dump(mode="json") if file else None,
    }


def job_problem(job: dict[str, Any]) -> Problem:
    """The Problem that :func:`problem_job` named; imports torch, Triton and the kernel."""
    from occupancy_probe.launch.load import load_problem

    file = KernelFile.model_validate(job["file"]) if job.get("file") else None
    return load_problem(Path(job["folder"]), job["problem"], job["parameters"], file)


def receive() -> dict[str, Any]:
    """In a worker: the job; from now on the worker ends with its parent, even if that is killed."""
    end_with_parent()
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    return job


def take_turn() -> str:
    """In a worker that is ready: wait until the GPU is this worker's. Returns its UUID.

    It is the only one that the worker sees (``CUDA_VISIBLE_DEVICES``, see :class:`.device.GpuTurn`).
    """
    tell(ready=True)
    uuid: str = json.loads(sys.stdin.readline())["uuid"]
    return uuid
