"""The tiny study in a real repository, with records as a GPU would have left them."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from conftest import copy_fixture, git

from occupancy_probe.cli import main
from occupancy_probe.digest import digest
from occupancy_probe.records import (
    Check,
    Correctness,
    Feasibility,
    Measurement,
    Plan,
    PlanCommit,
    Replicate,
    read_record,
    write_record,
)
from occupancy_probe.study import NULL, load_study

REPOSITORY = Path(__file__).parents[1]
IGNORE = (
    "results/*/*\n!results/*/plan.json\n!results/*/*.md\n!results/*/*.svg\n!results/*/evidence/\n"
    ".snakemake\n__pycache__\n*.pyc\n"
)
DEVICE = "nvidia-h200"
RATIOS = {"num_warps-8": 0.8}
"""Time of an arm over the baseline's, 1 where not named."""


def commit(work: Path, message: str) -> str:
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "--message", message)
    return git(work, "rev-parse", "HEAD").strip()


def start(work: Path) -> Path:
    """The study committed in ``work`` (two arms beside the twin, one target); the study file."""
    study = copy_fixture("tiny", work)
    text = study.read_text().replace("{num_warps: [1, 8], num_stages: [3]}", "{num_warps: [8]}")
    text = text.replace("[sm_90, sm_120]", "[sm_90]").replace("assume:", "# assume:")
    study.write_text(text + "measurement: {processes: 3, allocations: 1, blocks: 4}\n")
    (work / ".gitignore").write_text(IGNORE)
    commit(work, "study")
    return study


def ready(work: Path, trace) -> Path:
    """The study started, planned and compiled."""
    study = start(work)
    plan(study, trace)
    feasibility(study)
    return study


def run(*words: str) -> int:
    """A command in this process, in the present folder."""
    return main(list(words))


def plan(study: Path, trace, *options: str) -> PlanCommit:
    """`plan` on the study: trace, plan.json, document, commit."""
    results = Path("results/tiny")
    write_record(results / "trace.json", trace(study.resolve()))
    templates = ("--templates", str(REPOSITORY / "templates"))
    assert run("plan", study.name, "--results", str(results), *templates, *options) == 0
    return read_record(results / "plan_commit.json", PlanCommit)


def feasibility(study_file: Path, **changes) -> None:
    """Records of every arm, as the compiler would give them."""
    study = load_study(study_file)
    for target in study.file.targets:
        for arm in (a for a in study.arms if a.name != NULL):
            fields = {
                "study": study.name,
                "depends": {"launch": study.launch_digest, "arm": digest(arm.config)},
                "versions": {"triton": "3.6.0"},
                "arm": arm.name,
                "config": arm.config,
                "target": target,
                "verdict": "fits",
                "registers": 20,
                "shared_bytes": 0,
                "ctas_per_sm": 16,
                "warps_per_sm": 64,
                "code_sha256": digest(arm.config),
            }
            path = Path(f"results/tiny/feasibility/{target}/{arm.name}.json")
            write_record(path, Feasibility(**fields | changes))


def measured(study_file: Path, device: str = DEVICE, seconds: float = 60, **changes) -> None:
    """Correctness and samples of every arm on ``device``, the first sample after the plan.

    The fastest arm is measured again where the rule decides.
    """
    study, results = load_study(study_file), Path("results/tiny")
    frozen = read_record(results / "plan.json", Plan)
    where = read_record(results / "plan_commit.json", PlanCommit)
    at = datetime.fromisoformat(where.committed_at) if where.committed_at else datetime.now(UTC)
    named = {"device": device, "device_name": "NVIDIA H200"}
    made = {"study": study.name, "versions": {"triton": "3.6.0", "driver": "580"}}
    for arm in (a for a in study.arms if a.name != NULL):
        record = Correctness(
            **made,
            **named,
            depends={"launch": study.launch_digest},
            arm=arm.name,
            config=arm.config,
            mode="gpu",
            verdict="right",
            checks=[Check(workload="r4", verdict="right")],
        )
        write_record(results / "correctness" / device / f"{arm.name}.json", record)
    for workload in study.workloads:
        fields = {
            **made,
            **named,
            "depends": {"plan": frozen.plan_hash, "launch": study.launch_digest},
            "plan_commit": where.commit,
            "device_uuid": "u",
            "workload": workload.name,
            "regime": "cold",
            "input_sets": 4,
            "replicates": [samples(study, process) for process in range(3)],
            "configs": {a.name: a.config for a in study.arms},
            "started_at": (at + timedelta(seconds=seconds)).isoformat(),
            "gpu_seconds": 1.0,
        }
        record = Measurement(**fields | changes)
        write_record(results / "measurement" / device / f"{workload.name}.json", record)
        if workload.name in study.selects(study.file.decision.improve):
            path = results / "confirmation" / device / f"{workload.name}.json"
            write_record(path, record.model_copy(update={"replicates": fresh(record)}))


def fresh(record: Measurement) -> list[Replicate]:
    """The same times in other processes, of the baseline, its twin and the fastest arm."""
    again = {"baseline", NULL, min(RATIOS, key=lambda arm: RATIOS[arm])}
    return [
        r.model_copy(
            update={
                "process": 1000 + r.process,
                "arms": {a: t for a, t in r.arms.items() if a in again},
            }
        )
        for r in record.replicates
    ]


def samples(study, process: int) -> Replicate:
    """Four blocks; processes differ by a per mille, blocks hardly."""
    base = 10.0 * (1 + 0.001 * process)
    arms = {
        a.name: [
            base * RATIOS.get(a.name, 1.0) * (1 + 1e-4 * ((3 * i + process + n) % 5))
            for i in range(4)
        ]
        for n, a in enumerate(study.arms)
    }
    return Replicate(process=process, allocation=0, arms=arms)


def publish(study: Path, *options: str) -> int:
    templates = ("--templates", str(REPOSITORY / "templates"))
    words = ("--device", DEVICE, *options)
    return run("publish", study.name, "--results", "results/tiny", *templates, *words)


def reproduce(folder: Path, *words: str, **options) -> subprocess.CompletedProcess[str]:
    """The command as people run it, in a process of its own."""
    command = [sys.executable, "-m", "occupancy_probe", "reproduce", *words]
    command += ["--workflow", str(REPOSITORY / "Snakefile")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **options)
