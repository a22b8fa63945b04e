"""measure, dose and report over a simulated GPU: what is picked is confirmed, and all of it is shown."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from execute.conftest import WORKER, simulated
from occupancy_probe.commands import dose as dose_command
from occupancy_probe.commands import measure as measure_command
from occupancy_probe.gpu import occupancy, target
from occupancy_probe.records import Check, Correctness, Feasibility, write_record

ROOT = Path(__file__).parents[2]
DOSE = "dose: {arms: [baseline, num_warps-8], processes: 3, allocations: 1, blocks: 6, emulate: [sm_120]}\n"


@pytest.fixture
def project(stage, tmp_path, workers, trace_of):
    """A study with plan, feasibility and correctness, ready to be timed."""
    from conftest import copy_fixture

    from occupancy_probe.execute import device, measurement, precompile
    from occupancy_probe.execute import dose as dose_stage
    from occupancy_probe.plan.freeze import freeze
    from occupancy_probe.study import load_study

    path = copy_fixture("tiny", tmp_path / "study")
    text = path.read_text() + "measurement: {processes: 3, allocations: 1, blocks: 6}\n" + DOSE
    path.write_text(text)
    study, results = load_study(path), tmp_path / "results"
    plan = freeze(study, trace_of(path))
    write_record(results / "plan.json", plan)
    write_record(
        results / "plan_commit.json", stage.commit.model_copy(update={"plan_hash": plan.plan_hash})
    )
    depends = {"launch": study.launch_digest}
    for arm in study.arms:
        if arm.twin:
            continue
        warps = arm.config["num_warps"]
        for name in study.file.targets:
            of = occupancy(target(name), 128, warps, 40_000)
            write_record(
                results / "feasibility" / name / f"{arm.name}.json",
                Feasibility(
                    study="tiny",
                    depends=depends,
                    arm=arm.name,
                    config=arm.config,
                    target=name,
                    verdict="fits",
                    shared_bytes=40_000,
                    threads=32 * warps,
                    registers=128,
                    ctas_per_sm=of.ctas_per_sm,
                    warps_per_sm=of.warps_per_sm,
                ),
            )
        write_record(
            results / "correctness" / "nvidia-h200" / f"{arm.name}.json",
            Correctness(
                study="tiny",
                depends=depends,
                arm=arm.name,
                config=arm.config,
                device="nvidia-h200",
                device_name="NVIDIA H200",
                mode="gpu",
                verdict="right",
                checks=[Check(workload="r4", verdict="right")],
            ),
        )
    workers.setattr(device, "same_model", lambda: [simulated(7)])
    workers.setattr(device, "_lock_path", lambda d, kind, locks: tmp_path / f"{d.uuid}.{kind}")
    workers.setattr(precompile, "precompile", lambda *a, **k: {})
    for module in (measurement, dose_stage):
        workers.setattr(module, "WORKER", WORKER)
    return study, Namespace(study=path, results=results)


def test_measure_confirms_what_it_picks_and_dose_and_report_show_it(project, capsys):
    study, options = project
    measure_command.run(options)
    said = capsys.readouterr().out
    fastest = min((a for a in study.arms if not a.twin), key=lambda a: a.config["num_warps"]).name
    assert f"{fastest} confirmed" in said and "GPU-7" in said and "blocks dropped" in said
    again = json.loads((options.results / "confirmation/nvidia-h200/r64.json").read_text())
    assert {r["process"] for r in again["replicates"]} == {1000, 1001, 1002}
    assert set(again["replicates"][0]["arms"]) == {"baseline", "null", fastest}

    dose_command.run(options)
    index = json.loads((options.results / "dose/nvidia-h200.json").read_text())
    assert set(index["arms"]) == {"baseline", "num_warps-8"}

    from occupancy_probe.outcome import here
    from occupancy_probe.plan.document import render_document
    from occupancy_probe.validate.report import render_report

    found = here(study, options.results)
    [device] = found.verdict.devices
    assert device.confirmation is not None and device.confirmation.arm == fastest
    assert device.confirmation.ratio == pytest.approx(1 / 4, rel=0.01)
    assert any(f"{fastest} re-measured on fresh replicates" in c for c in device.conclusions)
    assert device.gpu is not None and device.gpu.uuids == ["GPU-7"]
    assert device.gpu.dropped == (2 + 1 + 2) * 3, "two workloads, one confirmed, two under doses"
    assert device.dose is not None and len(device.dose.findings) >= 2
    templates = ROOT / "templates"
    document = render_document(
        found.collected.plan, templates, found.verdict, found.collected.feasibility
    )
    assert "### Occupancy dose" in document
    assert "one wide CTA equals two narrow ones" in document
    assert "| baseline@1 | r64 |" in document
    html = render_report(
        found.collected.plan,
        found.collected.plan_commit,
        found.verdict,
        found.collected.feasibility,
        {},
        {"nvidia-h200": found.collected.devices["nvidia-h200"].correctness},
        {},
        templates,
    )
    for words in (
        "Occupancy dose",
        "residency of sm_120",
        "resident warps",
        "GPU-7",
        "not measured; ",
    ):
        assert words in html
