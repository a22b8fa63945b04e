"""The charts beside the filled document: there, linked, committed, and always the same bytes."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import gitstudy
import pytest
from conftest import git
from gitstudy import DEVICE, feasibility, measured, publish

from occupancy_probe.outcome import fill_document, here, published
from occupancy_probe.records import (
    Dose,
    DosePoint,
    Plan,
    PlanCommit,
    Replicate,
    read_record,
    write_record,
)
from occupancy_probe.study import load_study
from occupancy_probe.validate.document_charts import document_charts, standalone

DOSE, STEP = f"dose-{DEVICE}.svg", f"step-{DEVICE}.svg"
SECTIONS = """\
dose: {arms: [baseline, num_warps-8], processes: 3, allocations: 1}
throughput: {series: b200_tp4_nomtp_20260502, axis: rows, share: {value: 0.05}}
"""
TIMES = {"baseline": {1: 13.0, 2: 10.0}, "num_warps-8": {1: 9.0, 2: 8.0}}
"""µs by arm and CTAs per SM."""


@pytest.fixture
def unmeasured(work, monkeypatch, trace_of):
    """The tiny study with doses and a step around it, planned and compiled."""
    monkeypatch.chdir(work)
    made = gitstudy.start(work)
    made.write_text(made.read_text() + SECTIONS)
    gitstudy.commit(work, "doses and step")
    gitstudy.plan(made, trace_of)
    feasibility(made)
    return made


@pytest.fixture
def study(unmeasured):
    """The same, samples and doses taken, nothing published yet."""
    measured(unmeasured)
    dosed(unmeasured)
    return unmeasured


def dosed(study_file: Path) -> None:
    """Doses of both arms as a GPU would have left them; the code of num_warps-8 emulates sm_120."""
    study, results = load_study(study_file), Path("results/tiny")
    plan = read_record(results / "plan.json", Plan)
    where = read_record(results / "plan_commit.json", PlanCommit)
    configs = {a.name: a.config for a in study.arms}
    for arm, times in TIMES.items():
        replicates = [
            Replicate(
                process=p,
                allocation=0,
                arms={
                    name: [t * (1 + 1e-3 * p) * (1 + 1e-4 * i) for i in range(4)]
                    for name, t in {"baseline": 10.0}.items()
                    | {f"{arm}@{n}": t for n, t in times.items()}.items()
                },
            )
            for p in range(3)
        ]
        record = Dose(
            study=study.name,
            depends={"plan": plan.plan_hash, "launch": study.launch_digest},
            versions={"triton": "3.6.0"},
            plan_commit=where.commit,
            device=DEVICE,
            device_name="NVIDIA H200",
            device_uuid="u",
            arm=arm,
            config=configs[arm],
            num_warps=configs[arm]["num_warps"],
            points={
                f"{arm}@{n}": DosePoint(
                    ctas=n,
                    shared_bytes=1,
                    driver_ctas=n,
                    emulates=["sm_120"] if (arm, n) == ("num_warps-8", 1) else [],
                )
                for n in times
            },
            replicates={w.name: replicates for w in study.workloads},
            started_at=datetime.fromisoformat(where.committed_at).isoformat(),
        )
        write_record(results / "dose" / DEVICE / f"{arm}.json", record)


def links(work: Path) -> list[str]:
    return re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (work / "results/tiny/TINY_AB.md").read_text())


def fill(study: Path) -> list[Path]:
    loaded, results = load_study(study), study.parent / "results/tiny"
    return fill_document(loaded, results, gitstudy.REPOSITORY / "templates", here(loaded, results))


def words_of(svg: str) -> str:
    """All text of the drawing; it is XML."""
    root = ElementTree.fromstring(svg)
    return " ".join(t for e in root.iter() if e.tag.endswith("}text") for t in e.itertext())


def test_a_plan_links_no_chart_and_has_none(unmeasured, work):
    assert links(work) == []
    [document] = fill(unmeasured)
    assert document.name == "TINY_AB.md" and links(work) == []
    assert list((work / "results/tiny").glob("*.svg")) == []


def test_the_filled_document_links_charts_that_are_beside_it(study, work):
    assert [p.name for p in fill(study)] == ["TINY_AB.md", DOSE, STEP]
    assert links(work) == [DOSE, STEP]
    assert all((work / "results/tiny" / name).is_file() for name in links(work))


def test_the_dose_chart_reads_alone(study, work):
    fill(study)
    words = words_of((work / "results/tiny" / DOSE).read_text(encoding="utf-8"))
    for said in (
        "NVIDIA H200", "resident warps on the fullest SM", "time per launch (µs)", "baseline",
        "num_warps-8", "residency of sm_120 (emulation)", "r4", "rows = 4", "r64", "rows = 64",
    ):  # fmt: skip
        assert said in words
    assert "n = 500" not in words, "an axis that does not vary tells workloads apart by nothing"


def test_the_step_chart_reads_alone(study, work):
    fill(study)
    words = words_of((work / "results/tiny" / STEP).read_text(encoding="utf-8"))
    for said in (
        "NVIDIA H200", "b200_tp4_nomtp_20260502", "requests in flight", "time of one step (ms)",
        "line: a + b·C", "experts: a + g·E(C)", "measured", "not fitted",
    ):  # fmt: skip
        assert said in words


def test_charts_are_one_commit_with_evidence_and_document(study, work):
    assert publish(study) == 0
    names = git(work, "show", "--name-only", "--format=", "HEAD").split()
    assert {f"results/tiny/{n}" for n in ("TINY_AB.md", DOSE, STEP)} < set(names)
    assert f"results/tiny/evidence/{DEVICE}/verdict.json" in names
    assert git(work, "status", "--porcelain") == ""


def test_a_clone_draws_the_same_bytes_and_stays_clean(study, work, tmp_path, monkeypatch):
    publish(study)
    git(tmp_path, "clone", "--quiet", str(work), "clone")
    clone = tmp_path / "clone"
    drawn = {n: (clone / "results/tiny" / n).read_bytes() for n in (DOSE, STEP)}
    for name in drawn:
        (clone / "results/tiny" / name).unlink()
    for kept in ("plan_commit.json", "feasibility"):  # what a clone makes again
        (work / "results/tiny" / kept).rename(clone / "results/tiny" / kept)
    monkeypatch.chdir(clone)
    fill(clone / "tiny.yaml")
    assert {n: (clone / "results/tiny" / n).read_bytes() for n in drawn} == drawn
    assert git(clone, "status", "--porcelain") == ""


def test_a_chart_is_written_only_if_it_changed(study, work):
    [_, *charts] = fill(study)
    before = [p.stat().st_mtime_ns for p in charts]
    fill(study)
    assert [p.stat().st_mtime_ns for p in charts] == before
    charts[0].write_text("<svg/>")
    fill(study)
    assert charts[0].stat().st_mtime_ns > before[0] and "baseline" in charts[0].read_text()


def test_a_device_without_doses_has_no_dose_chart(unmeasured, work):
    measured(unmeasured)
    assert [p.name for p in fill(unmeasured)] == ["TINY_AB.md", STEP]
    assert links(work) == [STEP]


def test_doses_that_kept_no_block_have_no_chart(study, work):
    for path in (work / "results/tiny/dose" / DEVICE).glob("*.json"):
        record = read_record(path, Dose)
        emptied = {
            w: [r.model_copy(update={"arms": {n: [] for n in r.arms}}) for r in rs]
            for w, rs in record.replicates.items()
        }
        write_record(path, record.model_copy(update={"replicates": emptied}))
    assert [p.name for p in fill(study)] == ["TINY_AB.md", STEP]
    assert links(work) == [STEP]


def test_the_file_needs_no_page_around_it_and_keeps_no_chance(study):
    publish(study)
    found = published(load_study(study), study.parent / "results/tiny")
    once, again = (document_charts(found.collected.plan, found.verdict) for _ in range(2))
    assert once == again and list(once) == [DOSE, STEP]
    for svg in once.values():
        assert "var(" not in svg and "<metadata" not in svg and "<date" not in svg
        assert not re.search(r'[ "]-?\d+\.\d{3,}', svg), "hundredths of a point are enough"
        root = ElementTree.fromstring(svg)
        ids = [e.get("id") for e in root.iter() if e.get("id")]
        assert ids == [f"i{n}" for n in range(len(ids))]
        used = re.findall(r'(?:xlink:href="|url\()#(\w+)', svg)
        assert used and set(used) <= set(ids)


def test_the_last_bits_of_a_coordinate_do_not_show():
    plain = '<svg viewBox="0 0 10 10" aria-label="a" xmlns="http://www.w3.org/2000/svg">{}</svg>'
    one, other, third = (
        standalone(
            plain.format(f'<path d="M {x} 2"/><text>{x}</text>'.replace(f">{x}<", ">1.2345<"))
        )
        for x in ("0.123456", "0.123457", "0.130001")
    )
    assert one == other != third
    assert ">1.2345<" in one, "words are left as they are"


def test_what_a_named_series_and_share_say_is_there_before_anything_is_measured(unmeasured, work):
    """B200 TP4 without C = 24: 6.88 ms + 0.0687 ms per active expert, 5.5 % held out."""
    fill(unmeasured)
    document = (work / "results/tiny/TINY_AB.md").read_text()
    assert git(work, "show", "HEAD:results/tiny/TINY_AB.md") == document, (
        "the committed plan says it"
    )
    said = document[document.index("### Before anything is measured") :]
    assert "| experts (chosen) | 6.88 [" in said and "| 0.0687 [" in said and "| 5.5 % |" in said
    assert "C = 24 is not fitted" in said and "Gains: not measured" in said
    assert "5.0 % at r4, 5.0 % at r64" in said
