"""The step around the kernel: shares, gains beside each other, and the record in the verdict."""

from __future__ import annotations

import numpy as np
import pytest

from occupancy_probe.exc import StudyError
from occupancy_probe.records import (
    DeviceVerdict,
    Measurement,
    Replicate,
    Result,
    Serving,
)
from occupancy_probe.study import load_study
from occupancy_probe.validate.system import (
    StepStudy,
    find_system,
    known_gains,
    only_projected,
    sentences,
)

HEAD = """
name: {name}
title: t
document: D
hypothesis: {{what: w, why: w, how: h}}
projection: {{metric: throughput, low: 0.15, high: 0.25, where: c >= 48}}
kernel: {{path: ., problem: P, function: attention}}
baseline: {{num_warps: 4}}
arms:
  - {{list: [{{num_warps: 8}}], name: w8, why: x}}
targets: [sm_90]
checks:
  logic: [{{grid: {{c: [1]}}}}]
decision: {{improve: c >= 48, margin: 0.01}}
"""
KERNEL = HEAD + 'workloads: [{{grid: {{c: [1, 48, 96]}}, name: "c{{c}}"}}]\n'
STEP = HEAD + 'workloads: [{{grid: {{c: [1, 48, 96], x: [1, 2]}}, name: "c{{c}}-x{{x}}"}}]\n'


def study(folder, text, throughput, name="s"):
    (folder / "problem.py").write_text("")
    path = folder / f"{name}.yaml"
    path.write_text(text.format(name=name) + f"throughput: {throughput}\n")
    return load_study(path)


def result(workload, ratio, time=20.0, arm="w8", verdict="faster"):
    return Result(
        arm=arm, workload=workload, device="h200", time_us=time * ratio, ratio=ratio,
        low=ratio - 0.005, high=ratio + 0.005, verdict=verdict,
    )  # fmt: skip


def rows(**ratios):
    base = [result(w, 1.0, arm="baseline", verdict="baseline") for w in ratios]
    return base + [result(w, r) for w, r in ratios.items()]


def measurement(workload, times, noise=1e-4):
    rng = np.random.default_rng(sum(map(ord, workload)))
    replicates = [
        Replicate(
            process=p,
            allocation=0,
            arms={a: (t * (1 + noise * rng.standard_normal(8))).tolist() for a, t in times.items()},
        )
        for p in range(6)
    ]
    return Measurement(
        study="s", plan_commit=None, device="h200", device_name="NVIDIA H200", device_uuid="u",
        workload=workload, regime="cold", input_sets=2, replicates=replicates,
        started_at="2026-03-01T12:00:00+00:00", gpu_seconds=1.0,
    )  # fmt: skip


def test_M5_a_given_share_of_5_percent_turns_a_kernel_win_into_no_system_win(tmp_path):
    s = study(tmp_path, KERNEL, "{series: b200_tp4_nomtp_20260502, axis: c, share: {value: 0.05}}")
    system = find_system(s, "h200", rows(c48=1 / 1.12), {}, None)
    (gain,) = system.gains
    assert gain.projected.value == pytest.approx(0.0054, abs=1e-4)
    assert gain.outcome == "kernel win, no system win" and gain.measured is None
    assert known_gains(system)["w8", "c48"] == gain.projected
    said = " ".join(sentences(system))
    assert "c48, c96: to gain 15 % at a share of 5 % no kernel is fast enough" in said
    assert "C = 24 is not fitted" in said and "queueing" in said  # M3 reaches the report
    assert "c48, c96 lie beyond the series (C <= 24): extrapolated" in said


def test_an_equivalent_kernel_is_no_difference_to_the_step(tmp_path):
    s = study(tmp_path, KERNEL, "{series: b200_tp4_nomtp_20260502, axis: c, share: {value: 0.05}}")
    near = [
        r.model_copy(update={"verdict": v})
        for r, v in zip(rows(c48=1.006)[-1:] * 2, ("equivalent", "undecided"), strict=True)
    ]
    gains = find_system(s, "h200", near, {}, None).gains
    assert [g.outcome for g in gains] == ["no difference", "undecided"]
    assert only_projected(find_system(s, "h200", near[:1], {}, None)) == {("w8", "c48")}


def test_a_range_widens_the_gain(tmp_path):
    s = study(
        tmp_path, KERNEL, "{series: b200_tp2_nomtp_20260502, axis: c, share: {range: [0.2, 0.4]}}"
    )
    (gain,) = find_system(s, "h200", rows(c48=0.8), {}, None).gains
    assert gain.projected.low == pytest.approx(1 / (1 - 0.2 * (1 - 0.805)) - 1)
    assert gain.projected.high == pytest.approx(1 / (1 - 0.4 * (1 - 0.795)) - 1)


def test_a_share_from_launches_per_step_and_the_model(tmp_path):
    (tmp_path / "own.csv").write_text("concurrency,step_ms\n1,4\n16,8\n48,16.5\n96,29\n")
    s = study(tmp_path, KERNEL, "{series: own.csv, axis: c, share: {launches: 41}}")
    system = find_system(s, "h200", rows(c48=0.9), {}, None)
    line = next(f for f in system.model.fits if f.name == "line")
    at = line.overhead_ms.value + 48 * line.slope_ms.value
    assert system.model.chosen == "line"
    assert system.shares["c48"].value == pytest.approx(41 * 0.020 / at)


def test_launches_that_take_longer_than_the_step_are_no_share_of_it(tmp_path):
    (tmp_path / "own.csv").write_text("concurrency,step_ms\n1,4\n16,8\n48,16.5\n96,29\n")
    s = study(tmp_path, KERNEL, "{series: own.csv, axis: c, share: {launches: 4100}}")
    system = find_system(s, "h200", rows(c48=0.9), {}, None)  # 82 ms of 16.4
    assert system.shares == {} and system.gains == []
    assert any("c48: 4100 launches take 5.00 ×" in n for n in system.notes)


def test_a_share_from_a_profile(tmp_path):
    (tmp_path / "p.csv").write_text("name,time_us\nexperts,75\nattention,25\n")
    s = study(
        tmp_path, KERNEL, "{series: b200_tp2_nomtp_20260502, axis: c, share: {profile: p.csv}}"
    )
    system = find_system(s, "h200", rows(c48=0.9), {}, None)
    assert system.shares["c96"].value == 0.25 and system.share_source == "profile p.csv"


@pytest.fixture
def step(tmp_path):
    """A step of 4 ms + 0.1 ms per request, of which the kernel takes 10 %."""
    s = study(tmp_path, STEP, "{series: measured, axis: c, share: {passes: x}}", name="whole")
    measured = {}
    for c in (1, 48, 96):
        once = 4000 + 100 * c
        measured[f"c{c}-x1"] = measurement(f"c{c}-x1", {"baseline": once, "w8": once * 0.99})
        measured[f"c{c}-x2"] = measurement(f"c{c}-x2", {"baseline": once * 1.1, "w8": once * 1.08})
    return s, measured


def test_the_step_study_fits_its_own_times_and_takes_the_share_from_the_second_pass(step):
    s, measured = step
    system = find_system(s, "h200", [], measured, None)
    line = next(f for f in system.model.fits if f.name == "line")
    assert line.overhead_ms.value == pytest.approx(4, abs=0.01)
    assert line.slope_ms.value == pytest.approx(0.1, abs=2e-4)
    assert [c for c, _ in system.model.points] == [1, 48, 96]
    assert system.share_source == "what a second pass of it adds to the step, x 2 against 1"
    assert "(what a second pass of it adds to the step, x 2 against 1): 10.0 % [" in " ".join(
        sentences(system)
    )
    assert set(system.shares) == {"c1-x1", "c48-x1", "c96-x1"}
    for share in system.shares.values():
        assert share.value == pytest.approx(0.1, abs=3e-4)
        assert 0 < share.high - share.low < 0.001
    assert any("must be" in s or "no kernel" in s for s in system.needed)


def test_the_kernels_study_shows_projected_and_measured_gain_side_by_side(step, tmp_path):
    whole, measured = step
    inner = find_system(whole, "h200", [], measured, None)
    verdict = DeviceVerdict(
        device="h200", device_name="NVIDIA H200", target="sm_90", source="measured here",
        measured_at="", plan_commit="c", preregistered=True, versions={}, decision="", adopted=None,
        conclusions=[], system=inner,
        results=[result(f"c{c}-x1", 0.99, 4e3) for c in (1, 48, 96)],
    )  # fmt: skip
    kernel = study(tmp_path, KERNEL, "{step: whole.yaml, axis: c}")
    system = find_system(
        kernel, "h200", rows(c48=0.9, c96=1.1), {}, StepStudy(whole, {"h200": verdict})
    )
    assert system.model == inner.model and "whole: what a second pass" in system.share_source
    at = {g.workload: g for g in system.gains}
    assert at["c48"].projected.value == pytest.approx(1 / (1 - 0.1 * 0.1) - 1, abs=1e-4)
    assert at["c48"].measured.value == pytest.approx(1 / 0.99 - 1, abs=1e-6)
    assert at["c48"].measured_verdict == "faster"
    assert known_gains(system)["w8", "c48"] == at["c48"].measured
    assert at["c96"].outcome == "kernel loss"


def test_without_a_measured_step_the_share_is_not_made_up(step, tmp_path):
    kernel = study(tmp_path, KERNEL, "{step: whole.yaml, axis: c}")
    system = find_system(kernel, "h200", rows(c48=0.9), {}, None)
    assert system.model is None and not system.shares and not system.gains
    assert system.notes == ["whole.yaml: no step was measured on this device"]


def test_gains_of_a_real_server_are_shown_as_measured(tmp_path):
    s = study(tmp_path, KERNEL, "{series: b200_tp2_nomtp_20260502, axis: c, share: {value: 0.3}}")
    replicates = [
        Replicate(process=p, allocation=0, arms={"baseline": [100 + p], "w8": [(100 + p) * 0.95]})
        for p in range(4)
    ]
    serving = Serving(
        study="s", plan_commit="c", device="h200", device_name="NVIDIA H200", workload="c48",
        kernel="m:k", restarts=4, replicates=replicates, started_at="", seconds=1.0,
    )  # fmt: skip
    (gain,) = find_system(s, "h200", rows(c48=0.9), {}, None, {"c48": serving}).gains
    assert gain.measured.value == pytest.approx(1 / 0.95 - 1)
    assert gain.measured_verdict == "faster in 4 restarts"


@pytest.mark.parametrize(
    ("throughput", "said"),
    [
        ("{series: nobody, axis: c}", "throughput.series: no series 'nobody'"),
        ("{axis: c}", "give exactly one of series, step"),
        ("{series: measured, axis: d}", "throughput.axis: no workload axis 'd'; known: c"),
        ("{series: measured, axis: c, share: {passes: y}}", "throughput.share.passes"),
        ("{series: measured, axis: c, share: {value: 0.1, launches: 3}}", "exactly one of value"),
        ("{series: measured, axis: c, share: {range: [0.4, 0.2]}}", "lowest, highest"),
        ("{step: absent.yaml, axis: c}", "throughput.step: no"),
        ("{series: measured, axis: c, where: c > 1000}", "selects no workload"),
        (
            "{series: b200_tp2_nomtp_20260502, axis: c, share: {profile: no.csv}}",
            "throughput.share.profile: no",
        ),
    ],
)
def test_a_fault_in_the_section_is_found_while_the_study_is_parsed(tmp_path, throughput, said):
    with pytest.raises(StudyError, match=said):
        study(tmp_path, KERNEL, throughput)


def test_no_section_no_system(tmp_path):
    (tmp_path / "problem.py").write_text("")
    (tmp_path / "s.yaml").write_text(KERNEL.format(name="s"))
    assert find_system(load_study(tmp_path / "s.yaml"), "h200", rows(c48=0.9), {}, None) is None
    assert sentences(None) == [] and known_gains(None) == {}
