"""Evidence is whole, of this plan and this kernel, or it is not published at all."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import gitstudy
import pytest
from conftest import git
from gitstudy import DEVICE, measured, publish

from occupancy_probe.commands.report import drivers
from occupancy_probe.exc import RecordError
from occupancy_probe.outcome import here, judged_again, published
from occupancy_probe.records import (
    Audit,
    DriverCheck,
    Measurement,
    Plan,
    Verdict,
    read_record,
    write_record,
)
from occupancy_probe.study import Study, load_study
from occupancy_probe.validate.publish import gather
from occupancy_probe.workflow import evidence_files, step_files


@pytest.fixture
def study(work, monkeypatch, trace_of):
    """The tiny study, planned, compiled and measured, nothing published yet."""
    monkeypatch.chdir(work)
    made = gitstudy.ready(work, trace_of)
    measured(made)
    return made


def head(work):
    return git(work, "rev-parse", "HEAD").strip()


def test_evidence_and_filled_document_are_one_commit_with_trailers(study, work):
    before = head(work)
    assert publish(study) == 0
    assert git(work, "rev-parse", "HEAD~1").strip() == before
    names = git(work, "show", "--name-only", "--format=", "HEAD").split()
    folder = f"results/tiny/evidence/{DEVICE}"
    assert sorted(names) == sorted(
        [
            "results/tiny/TINY_AB.md",
            f"{folder}/verdict.json",
            *(
                f"{folder}/{kind}/{n}.json"
                for kind in ("correctness", "feasibility/sm_90")
                for n in ("baseline", "num_warps-8")
            ),
            *(f"{folder}/measurement/{n}.json" for n in ("r4", "r64")),
            f"{folder}/confirmation/r64.json",
        ]
    )
    message = git(work, "log", "-1", "--format=%B")
    for trailer in ("Study: tiny", "Stage: validate", f"Device: {DEVICE}", "Triton: 3.6.0"):
        assert f"\n{trailer}\n" in message
    assert "\nDecision: adopt num_warps-8" in message
    assert "0.800" in (work / "results/tiny/TINY_AB.md").read_text()
    assert git(work, "status", "--porcelain") == ""


def test_the_verdict_is_published_and_the_evidence_alone_gives_it_again(study, work):
    publish(study)
    kept = read_record(work / f"results/tiny/evidence/{DEVICE}/verdict.json", Verdict)
    rows = {(r.arm, r.workload): r.verdict for r in kept.devices[0].results}
    assert rows["num_warps-8", "r64"] == "faster"
    assert rows["null", "r64"] in ("equivalent", "undecided")
    again = published(load_study(study), work / "results/tiny").verdict
    assert again.devices == kept.devices


def test_a_second_publish_does_nothing(study, work, capsys):
    publish(study)
    first = head(work)
    files = sorted((work / "results/tiny/evidence").rglob("*.json"))
    times = {p: p.stat().st_mtime_ns for p in files if p.name != "verdict.json"}
    assert publish(study) == 0
    assert head(work) == first
    assert "already published" in capsys.readouterr().out
    assert all(p.stat().st_mtime_ns == t for p, t in times.items())


def test_devices_live_side_by_side(study, work):
    publish(study)
    first = git(work, "ls-tree", "-r", "HEAD", f"results/tiny/evidence/{DEVICE}")
    measured(study, device="nvidia-b200")
    assert publish(study, "--device", "nvidia-b200") == 0
    assert git(work, "ls-tree", "-r", "HEAD", f"results/tiny/evidence/{DEVICE}") == first
    document = (work / "results/tiny/TINY_AB.md").read_text()
    assert document.count("Median µs per launch") == 2


def test_further_records_of_the_device_are_published_as_they_are(study, work):
    results = work / "results/tiny"
    launch = load_study(study).launch_digest
    record = {"schema": "occupancy-probe/1", "study": "tiny", "depends": {"launch": launch}}
    for place in (
        f"dose/{DEVICE}/baseline.json",
        f"driver/{DEVICE}.json",
        f"../calibration/{DEVICE}.json",
    ):
        path = results / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    (results / f"dose/{DEVICE}.json").write_text('{"baseline": 1}')  # an index, no record
    publish(study)
    held = git(work, "ls-tree", "-r", "--name-only", "HEAD", f"results/tiny/evidence/{DEVICE}")
    for name in ("dose/baseline.json", "driver.json", f"calibration/{DEVICE}.json"):
        assert f"/{DEVICE}/{name}\n" in held
    assert f"/{DEVICE}/dose.json" not in held


def test_records_made_later_join_published_evidence_in_a_clone_without_samples(study, work):
    publish(study)
    results = work / "results/tiny"
    before = set((results / f"evidence/{DEVICE}").rglob("*.json"))
    for kind in ("measurement", "correctness", "feasibility"):
        shutil.rmtree(results / kind)
    launch = load_study(study).launch_digest
    record = {"schema": "occupancy-probe/1", "study": "tiny", "depends": {"launch": launch}}
    (results / "autotune").mkdir()
    (results / f"autotune/{DEVICE}.json").write_text(json.dumps(record))
    assert publish(study, "--device", DEVICE) == 0
    after = set((results / f"evidence/{DEVICE}").rglob("*.json"))
    assert {p.name for p in after - before} == {"autotune.json"} and before < after
    assert git(work, "status", "--porcelain") == ""


def test_a_later_measurement_keeps_published_autotune_runs_unless_the_kernel_changed(study, work):
    results = work / "results/tiny"
    record = {"schema": "occupancy-probe/1", "study": "tiny"}
    kept = results / f"evidence/{DEVICE}/autotune.json"
    for launch, stays in ((load_study(study).launch_digest, True), ("0" * 64, False)):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(record | {"depends": {"launch": launch}}))
        assert publish(study) == 0
        assert kept.exists() == stays


def test_nothing_published_gives_way_to_something_older(study, work, capsys):
    results, launch = work / "results/tiny", load_study(study).launch_digest
    record = {"schema": "occupancy-probe/1", "study": "tiny", "depends": {"launch": launch}}
    path = results / f"autotune/{DEVICE}.json"
    path.parent.mkdir()
    published = results / f"evidence/{DEVICE}/autotune.json"
    for day, stays in (("02", "02"), ("01", "02"), ("03", "03")):
        path.write_text(json.dumps(record | {"started_at": f"2026-12-{day}T00:00:00+00:00"}))
        assert publish(study) == 0
        assert json.loads(published.read_text())["started_at"][8:10] == stays
    before = git(work, "rev-parse", "HEAD")
    for kind in ("confirmation", "measurement"):
        local = results / kind / DEVICE
        for sample in sorted(local.glob("[!.]*.json")):
            content = json.loads(sample.read_text())
            sample.write_text(json.dumps(content | {"started_at": "2020-01-01T00:00:00+00:00"}))
        assert publish(study) != 0
        said = capsys.readouterr().err
        assert "older (2020-01-01T00:00:00+00:00) than what is published" in said
        assert f"{local.relative_to(work)}/r" in said
        assert f"move results/tiny/*/{DEVICE} away and say --config device={DEVICE}" in said
    for folder in results.glob(f"[!e]*/{DEVICE}"):
        shutil.rmtree(folder)
    assert publish(study, "--device", DEVICE) == 0
    assert git(work, "rev-parse", "HEAD") == before and git(work, "status", "--porcelain") == ""


def test_a_published_calibration_gives_way_to_a_later_one_only(study, work):
    calibration = work / f"results/calibration/{DEVICE}.json"
    calibration.parent.mkdir(parents=True)
    published = work / f"results/tiny/evidence/{DEVICE}/calibration"
    for day, stays in (("02", "02"), ("01", "02"), ("03", "03")):
        calibration.write_text(
            json.dumps({"started_at": f"2026-12-{day}T00:00:00+00:00", "schema": "s"})
        )
        calibration.with_name(f"{DEVICE}-samples.json").write_text(json.dumps({"day": day}))
        assert publish(study) == 0
        assert json.loads((published / f"{DEVICE}.json").read_text())["started_at"][8:10] == stays
        assert json.loads((published / f"{DEVICE}-samples.json").read_text())["day"] == stays


@pytest.mark.parametrize("new_in_place", [False, True])
def test_a_kill_between_the_two_renames_loses_nothing(study, work, new_in_place):
    """Only the old evidence holds the autotune runs; both orders of what the kill leaves are mended."""
    evidence = work / f"results/tiny/evidence/{DEVICE}"
    launch = load_study(study).launch_digest
    record = {"schema": "occupancy-probe/1", "study": "tiny", "depends": {"launch": launch}}
    evidence.mkdir(parents=True)
    (evidence / "autotune.json").write_text(json.dumps(record))
    assert publish(study) == 0
    old = evidence.with_name(f".{DEVICE}.old")
    if new_in_place:
        shutil.copytree(evidence, old)
    else:
        evidence.rename(old)
        shutil.copytree(old / "measurement", evidence.with_name(f".{DEVICE}.new") / "measurement")
    assert publish(study) == 0
    assert (evidence / "autotune.json").is_file()
    assert [p.name for p in evidence.parent.iterdir()] == [DEVICE]
    assert git(work, "status", "--porcelain") == ""


def test_an_unfinished_copy_of_evidence_is_read_by_nobody(study, work, monkeypatch):
    publish(study)
    results = work / "results/tiny"
    shutil.rmtree(results / "measurement")
    before = here(load_study(study), results).verdict
    inputs, steps = evidence_files("tiny"), step_files(naming_tiny_as_step(study))
    assert inputs and any("evidence" in s for s in steps)
    for left in ("old", "new"):
        copy = results / f"evidence/.{DEVICE}.{left}"
        shutil.copytree(results / f"evidence/{DEVICE}", copy)
        for path in copy.glob("measurement/*.json"):  # of another kernel, so it would show
            record = read_record(path, Measurement)
            write_record(path, record.model_copy(update={"depends": {"launch": "another"}}))
        for name, kind in (("audit", audit()), ("driver", driver())):
            write_record(copy / f"{name}.json", kind)
    assert here(load_study(study), results).verdict == before
    assert list(published(load_study(study), results).collected.devices) == [DEVICE]
    assert evidence_files("tiny") == inputs and drivers(results) == {}
    assert step_files(naming_tiny_as_step(study)) == steps
    monkeypatch.setattr(Study, "launch_digest", "formed otherwise today")
    assert judged_again(study, results).devices[0].adopted == "num_warps-8"


def naming_tiny_as_step(study):
    """What ``step_files`` asks of a study that names the tiny one as its step."""
    return SimpleNamespace(step_path=study)


def audit():
    return Audit(study="tiny", depends={}, key=[], configs=[], buckets=[])


def driver():
    return DriverCheck(study="tiny", device=DEVICE, device_name="x", target="sm_90", kernels=[])


def refusal(study, fault=lambda commit: None):
    plan = read_record(study.parent / "results/tiny/plan.json", Plan)
    with pytest.raises(RecordError) as e:
        gather(study.parent / "results/tiny", DEVICE, plan, load_study(study).launch_digest, fault)
    assert not (study.parent / "results/tiny/evidence").exists()
    return str(e.value).splitlines()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"depends": {"plan": "old", "launch": "x"}}, "stale: made from another kernel"),
        ({"depends": {"plan": "old"}}, "stale: measured under plan old"),
        ({"plan_commit": None}, "not registered: measured without a committed plan"),
        ({"device": "nvidia-b200"}, "foreign: measured on 'nvidia-b200'"),
        ({"study": "other"}, "foreign: belongs to study 'other'"),
    ],
)
def test_H2_stale_and_foreign_samples_are_refused_by_one_line_each(study, changes, words):
    path = study.parent / f"results/tiny/measurement/{DEVICE}/r4.json"
    record = read_record(path, Measurement)
    write_record(path, record.model_copy(update=changes))
    lines = [line for line in refusal(study) if f"{DEVICE}/r4.json" in line]
    assert len(lines) == 1 and words in lines[0]


def test_partial_records_are_refused_and_every_gap_is_named(study):
    folder = study.parent / "results/tiny"
    (folder / f"measurement/{DEVICE}/r4.json").unlink()
    (folder / "feasibility/sm_90/baseline.json").unlink()
    (folder / f"correctness/{DEVICE}/num_warps-8.json").unlink()
    path = folder / f"measurement/{DEVICE}/r64.json"
    record = read_record(path, Measurement)
    write_record(path, record.model_copy(update={"replicates": record.replicates[:2]}))
    said = "\n".join(refusal(study))
    assert "partial: 2 of 3 processes" in said
    assert "partial: not measured: r4" in said
    assert "sm_90: partial: no record of baseline" in said
    assert "timed but not checked: num_warps-8" in said


def test_H5_a_half_written_record_is_named(study):
    path = study.parent / f"results/tiny/measurement/{DEVICE}/r4.json"
    path.write_text(path.read_text()[:80])
    assert any("r4.json: truncated" in line for line in refusal(study))


def test_a_plan_commit_of_another_history_is_refused(study):
    lines = refusal(
        study, lambda commit: f"foreign: plan commit {commit[:12]} is not in the history"
    )
    assert len(lines) == 2 and all("foreign: plan commit" in line for line in lines)


def test_no_samples_of_that_device_at_all(study, capsys):
    assert publish(study, "--device", "nvidia-l4") == 2
    said = capsys.readouterr().err
    assert said.count("error:") == 1 and f"there are: {DEVICE})" in said


@pytest.mark.parametrize("order", [("paste", "export"), ("export", "paste", "paste")])
def test_the_readme_of_the_exports_lists_what_both_commands_wrote(study, order):
    results, templates = Path("results/tiny"), str(gitstudy.REPOSITORY / "templates")
    write_record(results / "verdict.json", here(load_study(study), results).verdict)
    for command in order:
        options = ["--templates", templates] if command == "paste" else []
        assert gitstudy.run(command, study.name, "--results", str(results), *options) == 0
    readme = (results / "exports/README.md").read_text()
    patterns = re.findall(r"^- `([^`]+)`: ", readme, re.MULTILINE)
    assert len(patterns) == len(set(patterns))
    listed = {p for pattern in patterns for p in (results / "exports").glob(pattern)}
    written = {p for p in (results / "exports").rglob("*") if p.is_file()}
    assert {p.suffix for p in written - listed} == {".bin", ".md"}
    assert {p.name for p in written - listed if p.suffix == ".md"} == {"README.md"}
    assert {"pull_request.md", "samples.csv", "config.py"} <= {p.name for p in listed}


def test_devices_that_are_only_published_are_named_too(study, capsys):
    assert publish(study) == 0
    shutil.rmtree(study.parent / "results/tiny/measurement")
    assert publish(study, "--device", "nonsense") == 2
    assert f"there are: {DEVICE} (published)); correct the name" in capsys.readouterr().err


def test_rewritten_history_is_refused_by_the_command(study, work, capsys):
    git(work, "commit", "--quiet", "--amend", "-m", "reworded")
    assert publish(study) == 2
    assert "is not in the history of HEAD" in capsys.readouterr().err
    assert not (work / "results/tiny/evidence").exists()
