"""report.html, and the document with its result table filled and its charts beside it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from occupancy_probe import __version__, records
from occupancy_probe.exc import RecordError
from occupancy_probe.study import load_study

HELP = "report.html, and the document with its table filled"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--templates", type=Path, default=Path("templates"))


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.outcome import fill_document, here, history_view
    from occupancy_probe.validate.report import render_report

    study = load_study(options.study)
    found = here(study, options.results)
    collected, verdict = found.collected, found.verdict
    document, *_ = fill_document(study, options.results, options.templates, found)
    html = render_report(
        collected.plan,
        collected.plan_commit,
        verdict,
        collected.feasibility,
        collected.logic,
        {slug: d.correctness for slug, d in collected.devices.items()},
        _installed(),
        options.templates,
        drivers(options.results),
        history_view(study, options.results),
        environments(options.results, study.launch_digest),
    )
    records.write_text(options.results / "report.html", html)
    print(f"{study.name}: {options.results / 'report.html'}, {document}")
    for device in verdict.devices:
        when = f"{device.source}, {device.measured_at}"
        print(f"  {device.device_name} ({when}): {device.decision}")
    if not verdict.devices:
        print("  not measured on any device yet")


def environments(results: Path, launch_digest: str) -> list[records.EnvironmentDrift]:
    """What other Tritons make of the study as it is now; broken and stale records are left out."""
    found = []
    for path in sorted(results.glob("drift@*.json")):
        try:
            record = records.read_record(path, records.EnvironmentDrift)
        except RecordError:
            continue
        if record.depends.get("launch") == launch_digest:
            found.append(record)
    return found


def drivers(results: Path) -> dict[str, records.DriverCheck]:
    """Driver checks by device: made here, else published; broken ones are left out."""
    found: dict[str, records.DriverCheck] = {}
    published = sorted(results.glob("evidence/[!.]*/driver.json"))
    for path in [*published, *sorted(results.glob("driver/*.json"))]:
        try:
            record = records.read_record(path, records.DriverCheck)
        except RecordError:
            continue
        found[record.device] = record
    return found


def _installed() -> dict[str, str]:
    from importlib.metadata import version

    return {"occupancy-probe": __version__} | {
        p: version(p) for p in ("snakemake", "triton", "torch")
    }
