"""Which doses an arm has on a target, and the stage that times them, over simulated workers."""

from __future__ import annotations

import pytest

from execute.conftest import WORKER
from occupancy_probe.execute.dose import FIRST_PROCESS, measure_doses, plan_doses
from occupancy_probe.gpu import occupancy, target
from occupancy_probe.records import Dose, Feasibility, read_record, write_record
from occupancy_probe.study.schema import DosePlan
from occupancy_probe.validate.dose import judge_doses


def fits(arm, name, registers, warps, shared, verdict="fits"):
    found = occupancy(target(name), registers, warps, shared)
    return Feasibility(
        study="tiny",
        arm=arm,
        config={"num_warps": warps},
        target=name,
        verdict=verdict,
        shared_bytes=shared,
        threads=32 * warps,
        registers=registers,
        ctas_per_sm=found.ctas_per_sm,
    )


def plan(arm="t32", registers=188, warps=4, shared=64_768, elsewhere=None, **wanted):
    here = fits(arm, "sm_90", registers, warps, shared)
    section = DosePlan(arms=[arm], **wanted)
    return plan_doses(arm, here, target("sm_90"), elsewhere or {}, section)


def test_the_flagships_baseline_has_two_doses_on_an_h200():
    points, notes = plan()
    assert {n: p.ctas for n, p in points.items()} == {"t32@1": 1, "t32@2": 2}
    assert notes == []
    for p in points.values():  # exactly so many fit, no more and no fewer
        assert occupancy(target("sm_90"), 32, 4, p.shared_bytes).by["shared memory"] == p.ctas


@pytest.mark.parametrize("shared", [0, 1024, 33_280, 50_176])
def test_every_dose_is_the_cap_that_it_names(shared):
    points, _ = plan(registers=64, shared=shared)
    most = occupancy(target("sm_90"), 64, 4, shared).ctas_per_sm
    assert [p.ctas for p in points.values()] == list(range(1, most + 1))
    for p in points.values():
        assert p.shared_bytes >= shared
        assert occupancy(target("sm_90"), 64, 4, p.shared_bytes).ctas_per_sm == p.ctas


def test_another_targets_residency_is_pointed_out():
    theirs = {"sm_120": {"t32": fits("t32", "sm_120", 184, 4, 64_768)}}
    points, notes = plan(elsewhere=theirs, emulate=["sm_120"])
    assert {n: p.emulates for n, p in points.items()} == {"t32@1": ["sm_120"], "t32@2": []}
    assert notes == []


def test_what_cannot_be_emulated_is_said():
    rejected = {"sm_120": {"t32": fits("t32", "sm_120", 184, 4, 64_768, "rejected")}}
    assert plan(elsewhere=rejected, emulate=["sm_120"])[1] == [
        "t32 on sm_120: rejected, so there is no residency to emulate"
    ]
    assert "not compiled" in plan(emulate=["sm_120"])[1][0]
    roomy = {"sm_100": {"t32": fits("t32", "sm_100", 32, 4, 0)}}
    [said] = plan(elsewhere=roomy, emulate=["sm_100"])[1]
    assert said == "t32 on sm_100: its 16 CTAs per SM are not among the doses here"


def test_caps_beyond_what_the_arm_has_are_noted():
    points, notes = plan(ctas=[1, 5])
    assert list(points) == ["t32@1"]
    assert notes == ["t32 at 5 CTAs: sm_90 holds 2 of it"]


@pytest.fixture
def dosed(stage):
    section = DosePlan(
        arms=["baseline", "num_warps-8"], processes=4, allocations=1, blocks=8, emulate=["sm_120"]
    )
    file = stage.study.file.model_copy(update={"dose": section})
    object.__setattr__(stage.study, "file", file)
    return stage


def run(stage):
    wide = next(a.name for a in stage.study.arms if a.config["num_warps"] == 8)
    arms = ["baseline", wide]
    matrix = {
        t: {a: fits(a, t, 128, stage.study.arm(a).config["num_warps"], 40_000) for a in arms}
        for t in ("sm_90", "sm_120")
    }
    return measure_doses(
        stage.study,
        stage.plan,
        stage.commit,
        arms,
        matrix,
        target("sm_90"),
        stage.folder,
        stage.turn,
        60_000_000,
        {},
        worker=WORKER,
    ), arms


def test_all_arms_doses_are_timed_in_common_blocks_and_judged(dosed):
    found, (base, wide) = run(dosed)
    for arm, record in found.items():
        assert read_record(dosed.folder / f"{arm}.json", Dose) == record
        assert record.points[f"{arm}@1"].driver_ctas == 1
        for replicates in record.replicates.values():
            assert [r.process for r in replicates] == [FIRST_PROCESS + i for i in range(4)]
            assert set(replicates[0].arms) == {"baseline", "null", *record.points}
    assert found[base].started_at == found[wide].started_at
    verdict = judge_doses(found, "NVIDIA H200", 0.01, 0.05)
    by = {(f.question.split()[0], f.text.split(":")[0], f.workload): f for f in verdict.findings}
    # the simulated worker: a dose of n CTAs takes (1 + 1/n) / 2 of the arm's time
    most = max(p.ctas for p in found[base].points.values())
    hides = by["more", "baseline", "r64"]
    assert hides.verdict == "confirmed"
    assert hides.ratio == pytest.approx((1 + 1 / most) / 2, rel=0.01)
    same = next(f for f in verdict.findings if f.question.startswith("one wide"))
    assert same.verdict == "refuted", "twice the warps take twice the time in the simulation"
    assert any(f.emulates == ["sm_120"] for f in verdict.figures)


def test_doses_of_two_runs_are_taken_anew_and_their_seconds_too(dosed):
    first, (base, _) = run(dosed)
    path = dosed.folder / f"{base}.json"
    record = read_record(path, Dose)
    write_record(path, record.model_copy(update={"started_at": "2020-01-01T00:00:00+00:00"}))
    again, _ = run(dosed)
    for arm, d in again.items():
        assert d.busy_seconds == pytest.approx(first[arm].busy_seconds, rel=0.01)


def test_a_run_that_was_stopped_goes_on(dosed):
    first, _ = run(dosed)
    again, _ = run(dosed)
    assert {a: d.replicates for a, d in again.items()} == {
        a: d.replicates for a, d in first.items()
    }
