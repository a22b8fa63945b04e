"""The stages as the command line runs them: read inputs, call one room, write its record."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from occupancy_probe import __version__, records
from occupancy_probe.exc import DeviceError
from occupancy_probe.progress import progress
from occupancy_probe.study import NULL, Study, load_study

# Rooms are imported inside each stage: torch and triton cost more than most stages take.


def trace(options: Namespace) -> None:
    """trace.json: every launch's specialization and grid."""
    from occupancy_probe.launch.launches import trace_study

    records.write_record(options.results / "trace.json", trace_study(load_study(options.study)))


def plan(options: Namespace) -> None:
    """plan.json and the document, committed; plan_commit.json says where."""
    from occupancy_probe.plan.commit import commit_plan
    from occupancy_probe.plan.document import render_document
    from occupancy_probe.plan.freeze import freeze
    from occupancy_probe.templating import render, render_string

    study = load_study(options.study)
    frozen = freeze(study, records.read_record(options.results / "trace.json", records.Trace))
    subject = render_string(study.file.commit.plan, study=study.file)
    message = render(options.templates, "commit_plan.txt.j2", subject=subject, plan=frozen)
    found = commit_plan(
        study,
        frozen,
        render_document(frozen, options.templates),
        message,
        options.results,
        commit=not options.no_commit,
        allow_dirty=options.allow_dirty,
    )
    records.write_record(options.results / "plan_commit.json", found)
    print(
        f"{study.name}: plan {frozen.plan_hash[:12]} {found.note} ({found.commit or 'no commit'})"
    )


def compile(options: Namespace) -> None:
    """feasibility/<target>/<arm>.json for every arm, and feasibility/<target>.json over them."""
    from occupancy_probe.gpu import target
    from occupancy_probe.research.matrix import feasibility_matrix, summary

    study = load_study(options.study)
    folder = options.results / "feasibility"
    chosen = target(options.target)
    with progress(f"{study.name}: compile for {chosen.name}") as report:
        matrix = feasibility_matrix(
            study,
            records.read_record(options.results / "trace.json", records.Trace),
            chosen,
            folder / chosen.name,
            options.workers,
            report,
        )
    found = summary(chosen, matrix)
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    records.write_text(folder / f"{chosen.name}.json", text)
    counts = ", ".join(f"{len(found[v])} {v}" for v in ("fits", "rejected", "unsupported"))
    print(
        f"{study.name}: {chosen.name}: {counts}, {len(found['same_code'])} same code as another arm"
    )


def audit(options: Namespace) -> None:
    """audit.json: the autotuner's key against what the launches vary in."""
    from occupancy_probe.research.audit import audit_key

    study = load_study(options.study)
    found = audit_key(study, records.read_record(options.results / "trace.json", records.Trace))
    records.write_record(options.results / "audit.json", found)


def check(options: Namespace) -> None:
    """correctness/<device>/<arm>.json, and correctness/<device>.json over them."""
    from occupancy_probe.execute.correctness import INTERPRETER, check_arms
    from occupancy_probe.execute.device import held, require_gpu, run_versions

    study = load_study(options.study)
    folder = options.results / "correctness"
    with progress(f"{study.name}: correctness on {options.device}") as report:
        if options.device == INTERPRETER:
            names = [a.name for a in study.arms if a.name != NULL]
            found = check_arms(
                study,
                names,
                folder / INTERPRETER,
                INTERPRETER,
                "Triton's interpreter",
                run_versions(None),
                report,
            )
        else:
            gpu = require_gpu()
            names = _surviving(options.results, gpu.target, study)
            with held(gpu):
                found = check_arms(
                    study, names, folder / gpu.slug, gpu.slug, gpu.name, run_versions(gpu), report
                )
    _write_index(folder / f"{options.device}.json", {n: r.verdict for n, r in found.items()})
    wrong = [n for n, r in found.items() if r.verdict != "right"]
    print(
        f"{study.name}: {options.device}: {len(found) - len(wrong)} right, not right: {wrong or 'none'}"
    )


def measure(options: Namespace) -> None:
    """measurement/<device>/<workload>.json, and measurement/<device>.json over them."""
    from occupancy_probe.execute.device import held, l2_bytes, require_gpu, run_versions
    from occupancy_probe.execute.measurement import measure as take

    study, gpu = load_study(options.study), require_gpu()
    root: Path = options.results
    arms = [
        name
        for name in _surviving(root, gpu.target, study)
        if _correct(root / "correctness" / gpu.slug / f"{name}.json")
    ]
    with held(gpu), progress(f"{study.name}: measure on {gpu.name}") as report:
        found = take(
            study,
            records.read_record(root / "plan.json", records.Plan),
            records.read_record(root / "plan_commit.json", records.PlanCommit),
            arms,
            root / "measurement" / gpu.slug,
            gpu,
            l2_bytes(gpu),
            run_versions(gpu),
            report,
        )
    seconds = {name: r.gpu_seconds for name, r in found.items()}
    _write_index(root / "measurement" / f"{gpu.slug}.json", seconds)
    print(
        f"{study.name}: {gpu.name}: {len(arms)} arms timed, GPU busy {sum(seconds.values()):.0f} s"
    )


def judge(options: Namespace) -> None:
    """verdict.json: every row's verdict and each device's decision."""
    from occupancy_probe.outcome import here

    found = here(load_study(options.study), options.results)
    records.write_record(options.results / "verdict.json", found.verdict)


def report(options: Namespace) -> None:
    """report.html, and the document with its result table filled."""
    from occupancy_probe.outcome import fill_document, here
    from occupancy_probe.validate.report import render_report

    study = load_study(options.study)
    found = here(study, options.results)
    collected, verdict = found.collected, found.verdict
    document = fill_document(study, options.results, options.templates, found)
    html = render_report(
        collected.plan,
        collected.plan_commit,
        verdict,
        collected.feasibility,
        collected.logic,
        {slug: d.correctness for slug, d in collected.devices.items()},
        _installed(),
        options.templates,
    )
    records.write_text(options.results / "report.html", html)
    print(f"{study.name}: {options.results / 'report.html'}, {document}")
    for device in verdict.devices:
        when = f"{device.source}, {device.measured_at}"
        print(f"  {device.device_name} ({when}): {device.decision}")
    if not verdict.devices:
        print("  not measured on any device yet")


def publish(options: Namespace) -> None:
    """Copy this device's records to evidence/ and commit them with the filled document."""
    from occupancy_probe.execute.device import require_gpu
    from occupancy_probe.outcome import fill_document, published
    from occupancy_probe.repository import Repository
    from occupancy_probe.templating import render, render_string
    from occupancy_probe.validate.publish import gather

    study, gpu = load_study(options.study), require_gpu()
    results: Path = options.results
    plan = records.read_record(results / "plan.json", records.Plan)
    gather(results, gpu.slug, plan, study.launch_digest)
    document = fill_document(study, results, options.templates, published(study, results))
    subject = render_string(study.file.commit.evidence, study=study.file, device=gpu.name)
    message = render(
        options.templates, "commit_evidence.txt.j2", subject=subject, plan=plan, device=gpu.slug
    )
    repository = Repository.around(Path.cwd())
    paths = [results / "evidence" / gpu.slug, document]
    commit = repository.commit(paths, message) if repository.dirty(paths) else None
    _write_index(results / "published" / f"{gpu.slug}.json", {"commit": commit or "nothing new"})
    print(f"{study.name}: evidence of {gpu.name}: {commit or 'already published'}")


def schema(options: Namespace) -> None:
    """Print the JSON schema of study files."""
    from occupancy_probe.study.schema import StudyFile

    json.dump(StudyFile.model_json_schema(by_alias=True), sys.stdout, indent=2, ensure_ascii=False)
    print()


def _surviving(results: Path, target_name: str, study: Study) -> list[str]:
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


def _correct(path: Path) -> bool:
    return records.read_record(path, records.Correctness).verdict == "right"


def _installed() -> dict[str, str]:
    from importlib.metadata import version

    return {"occupancy-probe": __version__} | {
        p: version(p) for p in ("snakemake", "triton", "torch")
    }


def _write_index(path: Path, content: object) -> None:
    records.write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
