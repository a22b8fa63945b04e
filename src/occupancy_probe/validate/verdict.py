"""The decision rule applied: one row per arm x workload x device, and one decision per device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from occupancy_probe.gpu import device_of_nvml_name
from occupancy_probe.records import (
    Confirmation,
    DeviceVerdict,
    Measurement,
    Plan,
    Result,
    Ruling,
    Verdict,
)
from occupancy_probe.study import BASELINE, NULL, Study
from occupancy_probe.study.schema import Decision
from occupancy_probe.study.schema import Measurement as MeasurementPlan
from occupancy_probe.validate.assumptions import assess
from occupancy_probe.validate.calibration import line
from occupancy_probe.validate.collect import Collected, DeviceRecords, code_twin
from occupancy_probe.validate.conclusions import Findings, conclude
from occupancy_probe.validate.decision import Case, decide
from occupancy_probe.validate.dose import judge_doses
from occupancy_probe.validate.first_touch import with_autotuner
from occupancy_probe.validate.gpu_time import gpu_use
from occupancy_probe.validate.preregistration import not_preregistered
from occupancy_probe.validate.roofline import bounds, next_step
from occupancy_probe.validate.statistics import (
    Compared,
    classify,
    compare,
    confirm,
    median_time,
    spent_alpha,
)
from occupancy_probe.validate.system import (
    StepStudy,
    expected_system,
    find_system,
    known_gains,
    only_projected,
    sentences,
)
from occupancy_probe.validate.tuning_answers import answers

UNKNOWN_TARGET = "unknown"
"""Target of a device that the table of devices does not list: nothing is looked up for it."""


def judge(
    study: Study,
    collected: Collected,
    is_ancestor: Callable[[str], bool],
    committed_at: Mapping[str, str] | None = None,
    step: StepStudy | None = None,
) -> Verdict:
    """The outcome of a study on every device that has records.

    is_ancestor: whether a commit is an ancestor of HEAD (or HEAD). committed_at: ISO times of plan
    commits other than the one in ``plan_commit.json`` that hold this very plan. step: the study of
    the whole step that this study names, judged already.
    """
    plan, commit = collected.plan, collected.plan_commit
    times = dict(committed_at or {})
    devices = []
    for records in collected.devices.values():
        faults = {
            name: not_preregistered(m, plan, commit, is_ancestor, times, collected.earlier)
            for name, m in records.measurements.items()
        }
        judged = _judge_device(study, plan, records, faults, step)
        devices.append(with_autotuner(judged, study, collected.audit, records))
    return Verdict(
        study=study.name,
        depends={"plan": plan.plan_hash, "launch": study.launch_digest},
        plan_hash=plan.plan_hash,
        plan_commit=commit.commit if commit else None,
        devices=devices,
        assumptions=assess(study.file.assume, plan, collected.feasibility),
        notes=[*collected.notes, *_wrong_logic(collected)],
        audit=collected.audit,
        tuning_answers=answers(study, collected.audit, devices),
        expected=expected_system(study),
    )


def _wrong_logic(collected: Collected) -> list[str]:
    """Arms that Triton's interpreter shows to be wrong: no GPU is needed to know that."""
    found = {n: r for n, r in collected.logic.items() if r.verdict != "right"}
    reasons = {c.reason for r in found.values() for c in r.checks if c.reason}
    if not found:
        return []
    return [f"not right in Triton's interpreter: {', '.join(found)} ({'; '.join(sorted(reasons))})"]


def _judge_device(
    study: Study,
    plan: Plan,
    records: DeviceRecords,
    faults: Mapping[str, str | None],
    step: StepStudy | None,
) -> DeviceVerdict:
    device = device_of_nvml_name(records.device_name)
    target = device.target if device else UNKNOWN_TARGET
    planned = study.file.measurement
    doubts = {w: f or _incomplete(records.measurements[w], planned) for w, f in faults.items()}
    results = rows(study, records, target, doubts)
    least = floors(plan, records)
    system = find_system(
        study, records.device, results, records.measurements, step, records.servings
    )
    limits = bounds(
        plan,
        records.device_name,
        target,
        results,
        least,
        records.feasibility.get(target, {}),
        records.doses,
        system.shares if system else {},
    )
    picked = decide(
        Case(study, results, doubts, known_gains(system), limits, only_projected(system))
    )
    again = confirmation(study, records)
    ruling = _confirmed(study, picked, again)
    gpu = gpu_use(records)
    lost = gpu.drops if gpu else []
    measured = sorted(records.measurements.values(), key=lambda m: m.started_at)
    commits = {m.plan_commit for m in measured}
    return DeviceVerdict(
        device=records.device,
        device_name=records.device_name,
        target=target,
        source=records.source,
        measured_at=measured[0].started_at if measured else "",
        plan_commit=commits.pop() if len(commits) == 1 else None,
        preregistered=bool(faults) and not any(faults.values()),
        versions=next((r.versions for r in (*measured, *records.correctness.values())), {}),
        decision=ruling.text,
        picked=picked.arm,
        adopted=ruling.arm,
        conclusions=[
            *conclude(Findings(study, records, target, results, least, ruling.arm, again, lost)),
            *sentences(system),
            *next_step(study, limits, system.shares if system else {}),
        ],
        results=results,
        floors=least,
        confirmation=again,
        ruling=ruling,
        bounds=limits,
        system=system,
        dose=judge_doses(
            records.doses,
            records.device_name,
            study.file.decision.margin,
            study.file.decision.alpha,
        ),
        gpu=gpu,
        calibration=line(
            records.calibration, {m.device_uuid for m in records.measurements.values()}
        )
        if records.calibration
        else None,
    )


def _confirmed(study: Study, picked: Ruling, again: Confirmation | None) -> Ruling:
    """The ruling, if what it adopts was measured again and was faster then, too."""
    if picked.arm is None:
        return picked
    if again is None or again.arm != picked.arm:
        known = "inconclusive" in study.file.decision.outcomes
        outcome = "inconclusive" if known else "none"
        text = (
            f"{'inconclusive' if known else 'no decision'}: {picked.arm} was picked, and was not measured"
            " again on fresh replicates; `snakemake measure --forcerun measure_arms` does that"
        )
    elif _held(study, again, picked):
        return picked
    else:
        outcome = "reject"
        text = (
            f"reject: {picked.arm} was picked, but is not faster at every workload on fresh replicates"
            f" (mean ratio {again.ratio:.3f} [{again.low:.3f}–{again.high:.3f}])"
        )
    return picked.model_copy(update={"outcome": outcome, "text": text, "arm": None})


def _held(study: Study, again: Confirmation, ruling: Ruling) -> bool:
    """Faster again wherever the ruling speaks of it."""
    axis = study.file.decision.above
    if again.held or ruling.above is None or axis is None:
        return again.held
    over = [w.name for w in study.workloads if w.axes.get(axis, -math.inf) >= ruling.above]
    ends = [high for w, (_, _, high) in again.workloads.items() if w in over]
    return bool(ends) and all(high < 1 for high in ends)


def confirmation(study: Study, records: DeviceRecords) -> Confirmation | None:
    """The arm that was picked, on the replicates taken after that; None without them."""
    planned = study.file.measurement.processes
    improve = study.selects(study.file.decision.improve)
    found = {w: records.confirmations[w] for w in improve if w in records.confirmations}
    arms = {a for m in found.values() for r in m.replicates for a in r.arms}
    picked = [a.name for a in study.arms if a.name in arms - {BASELINE, NULL}]
    whole = all(len({r.process for r in m.replicates}) >= planned for m in found.values())
    if len(found) < len(improve) or len(picked) != 1 or not whole:
        return None
    samples = {w: m.replicates for w, m in found.items()}
    return confirm(samples, picked[0], BASELINE, study.file.decision.alpha)


def _incomplete(measurement: Measurement, planned: MeasurementPlan) -> str | None:
    """A run is looked at only where the plan says so: anything else would be a second chance."""
    done = len({r.process for r in measurement.replicates})
    if done in planned.stop.looks or done >= planned.processes:
        return None
    return f"incomplete: {done} of {planned.processes} processes"


def rows(
    study: Study, records: DeviceRecords, target: str, doubts: Mapping[str, str | None]
) -> list[Result]:
    """One result per workload and arm; the family of Holm is all that is timed on its own.

    doubts: per measured workload, why it carries no verdict, None if it does.
    """
    level = spent_alpha(study.file.decision.alpha, study.file.measurement.stop.looks)
    rule = study.file.decision.model_copy(update={"alpha": level})
    matrix = records.feasibility.get(target, {})
    unfit = {a.name: records.unfit(a.name, target) for a in study.arms}
    twins = {a.name: None if a.twin else code_twin(matrix, a.name) for a in study.arms}
    others = [a.name for a in study.arms if a.name != BASELINE]
    timed = [a for a in others if not unfit[a] and not twins[a]]
    samples = {w: m.replicates for w, m in records.measurements.items()}
    compared = compare(samples, timed, BASELINE, NULL, rule.margin, rule.alpha)

    def row(arm: str, workload: str) -> Result:
        bare = Result(arm=arm, workload=workload, device=records.device, verdict="not measured")
        if bad := unfit[arm]:
            return bare.model_copy(update={"verdict": bad[0], "reason": bad[1]})
        if twin := twins[arm]:
            return _as_twin(row(twin, workload), arm, twin)
        measurement = records.measurements.get(workload)
        null = compared.get((NULL, workload))
        known: dict[str, Any] = {}
        if measurement is not None:
            known["time_us"] = median_time(measurement.replicates, arm)
            known["evidence"] = records.evidence(workload)
            if null and math.isfinite(null.estimate.bound):
                known["noise_floor"] = null.estimate.bound
        if arm == BASELINE:
            known["ratio"] = None if known.get("time_us") is None else 1.0
            known |= {"verdict": "baseline", "reason": doubts.get(workload)}
        elif found := compared.get((arm, workload)):
            doubt = doubts.get(workload) or _doubt(arm, records, unfit[BASELINE])
            floor = 0.0 if arm == NULL else known.get("noise_floor", 0.0)
            known |= _figures(found, rule, doubt, floor)
        else:
            known["reason"] = _no_figure(measurement, unfit[BASELINE])
        return bare.model_copy(update=known)

    return [row(a.name, w.name) for w in study.workloads for a in study.arms]


def _as_twin(figure: Result, arm: str, twin: str) -> Result:
    """The twin's figures under the arm's own name: one binary is one arm."""
    same = f"same code as {twin}"
    if figure.verdict == "baseline":
        change = {"ratio": 1.0, "low": 1.0, "high": 1.0, "verdict": "equivalent"}
        return figure.model_copy(update={**change, "arm": arm, "reason": same})
    words = f"{same}; {figure.reason}" if figure.reason else same
    return figure.model_copy(update={"arm": arm, "reason": words})


def _figures(found: Compared, rule: Decision, doubt: str | None, floor: float) -> dict[str, Any]:
    """Fields of a measured row; a doubt keeps the figures and takes the verdict away."""
    of = found.estimate
    known: dict[str, Any] = {"ratio": of.ratio, "p_adjusted": found.p_adjusted}
    if of.df and math.isfinite(of.high):  # a single process has no interval
        known |= {"low": of.low, "high": of.high}
    if doubt:
        return known | {"verdict": "exploratory", "reason": doubt}
    outcome = classify(of, found.p_adjusted, rule.margin, rule.alpha, found.p_equivalent, floor)
    small = outcome == "equivalent" and found.p_adjusted < rule.alpha
    reason = f"significant, but all of it within ±{rule.margin * 100:g} %" if small else None
    if outcome == "undecided" and found.p_adjusted < rule.alpha:
        reason = f"significant, but no larger than the null arm admits ({floor * 100:.2f} %)"
    return known | {"verdict": outcome, "reason": reason}


def _doubt(arm: str, records: DeviceRecords, baseline: tuple[str, str] | None) -> str | None:
    """Why a measured ratio must not be believed, though the plan came first."""
    if baseline:
        return f"the baseline is {baseline[0]}: {baseline[1]}"
    if (BASELINE if arm == NULL else arm) not in records.correctness:
        return "not known to be right: no correctness record on this device"
    return None


def _no_figure(measurement: Measurement | None, baseline: tuple[str, str] | None) -> str | None:
    if measurement is None:
        return None
    if not any(r.arms.get(BASELINE) for r in measurement.replicates):
        return f"no samples of the baseline{f' ({baseline[1]})' if baseline else ''}"
    return "no samples that can be paired with the baseline's"


def floors(plan: Plan, records: DeviceRecords) -> dict[str, dict[str, float]]:
    """Shortest times in µs by workload: bytes over peak bandwidth, issue clocks over all SMs at the
    median SM clock that was measured; without either there is no ``issue_us``."""
    device = device_of_nvml_name(records.device_name)
    found: dict[str, dict[str, float]] = {}
    for workload in plan.workloads if device else []:
        assert device is not None
        measurement = records.measurements.get(workload.name)
        if measurement is None:
            continue
        bounds = {"bandwidth_us": workload.bytes / (device.bandwidth_gb_s * 1e3)}
        clocks = [r.clocks.sm_mhz_median for r in measurement.replicates if r.clocks]
        if workload.sm_clocks and clocks and median(clocks) > 0:
            bounds["issue_us"] = workload.sm_clocks / (device.sm_count * median(clocks))
        found[workload.name] = {**bounds, "floor_us": max(bounds.values())}
    return found
