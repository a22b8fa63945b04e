"""The decision rule applied: one row per arm x workload x device, and one decision per device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

from occupancy_probe.gpu import device_of_nvml_name
from occupancy_probe.records import (
    DeviceVerdict,
    Measurement,
    Plan,
    PlanCommit,
    Result,
    Verdict,
)
from occupancy_probe.study import BASELINE, NULL, Study
from occupancy_probe.study.schema import Decision
from occupancy_probe.validate.assumptions import assess
from occupancy_probe.validate.collect import Collected, DeviceRecords, code_twin
from occupancy_probe.validate.conclusions import Findings, conclude, span
from occupancy_probe.validate.statistics import (
    Compared,
    classify,
    compare,
    median_time,
)

UNKNOWN_TARGET = "unknown"
"""Target of a device that the table of devices does not list: nothing is looked up for it."""


def judge(
    study: Study,
    collected: Collected,
    is_ancestor: Callable[[str], bool],
    committed_at: Mapping[str, str] | None = None,
) -> Verdict:
    """The outcome of a study on every device that has records.

    is_ancestor: whether a commit is an ancestor of HEAD (or HEAD). committed_at: ISO times of plan
    commits other than the one in ``plan_commit.json`` that hold this very plan.
    """
    plan, commit = collected.plan, collected.plan_commit
    times = dict(committed_at or {})
    devices = []
    for records in collected.devices.values():
        faults = {
            name: not_preregistered(m, plan, commit, is_ancestor, times)
            for name, m in records.measurements.items()
        }
        devices.append(_judge_device(study, plan, records, faults))
    return Verdict(
        study=study.name,
        depends={"plan": plan.plan_hash, "launch": study.launch_digest},
        plan_hash=plan.plan_hash,
        plan_commit=commit.commit if commit else None,
        devices=devices,
        assumptions=assess(study.file.assume, plan, collected.feasibility),
        notes=list(collected.notes),
    )


def not_preregistered(
    measurement: Measurement,
    plan: Plan,
    commit: PlanCommit | None,
    is_ancestor: Callable[[str], bool],
    committed_at: Mapping[str, str],
) -> str | None:
    """Why this measurement carries no verdict; None if its plan was committed before its samples."""
    name = measurement.plan_commit
    if name is None:
        return "measured without a plan commit"
    if measurement.depends.get("plan") != plan.plan_hash:
        return "measured under another plan"
    when: str | None
    if commit is not None and commit.commit == name:
        if commit.plan_hash != plan.plan_hash:
            return f"the plan was edited after its commit {name[:12]}"
        if not commit.preregistered:
            return commit.note or "the plan commit does not count as a pre-registration"
        when = commit.committed_at
    else:
        when = committed_at.get(name)
    if when is None:
        return f"plan commit {name[:12]} is not known to hold this plan"
    if not is_ancestor(name):
        return f"plan commit {name[:12]} is not in the history of HEAD"
    try:
        early = _time(when) < _time(measurement.started_at)
    except ValueError:
        return f"no valid times: committed {when!r}, first sample {measurement.started_at!r}"
    return None if early else f"plan committed {when}, first sample {measurement.started_at}"


def _time(text: str) -> datetime:
    """An ISO 8601 time; without a zone it is UTC."""
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _judge_device(
    study: Study, plan: Plan, records: DeviceRecords, faults: Mapping[str, str | None]
) -> DeviceVerdict:
    device = device_of_nvml_name(records.device_name)
    target = device.target if device else UNKNOWN_TARGET
    planned = study.file.measurement.processes
    doubts = {w: f or _incomplete(records.measurements[w], planned) for w, f in faults.items()}
    results = rows(study, records, target, doubts)
    decision, adopted = decide(study, results, doubts)
    measured = sorted(records.measurements.values(), key=lambda m: m.started_at)
    bounds = floors(plan, records)
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
        decision=decision,
        adopted=adopted,
        conclusions=conclude(Findings(study, records, target, results, bounds, adopted)),
        results=results,
        floors=bounds,
    )


def _incomplete(measurement: Measurement, planned: int) -> str | None:
    """A run that was stopped is not looked at before it is whole: that would be a second chance."""
    done = len({r.process for r in measurement.replicates})
    return f"incomplete: {done} of {planned} processes" if done < planned else None


def rows(
    study: Study, records: DeviceRecords, target: str, doubts: Mapping[str, str | None]
) -> list[Result]:
    """One result per workload and arm; the family of Holm is all that is timed on its own.

    doubts: per measured workload, why it carries no verdict, None if it does.
    """
    rule, matrix = study.file.decision, records.feasibility.get(target, {})
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
            known |= _figures(found, rule, doubt)
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


def _figures(found: Compared, rule: Decision, doubt: str | None) -> dict[str, Any]:
    """Fields of a measured row; a doubt keeps the figures and takes the verdict away."""
    of = found.estimate
    known: dict[str, Any] = {"ratio": of.ratio, "p_adjusted": found.p_adjusted}
    if of.df and math.isfinite(of.high):  # a single process has no interval
        known |= {"low": of.low, "high": of.high}
    if doubt:
        return known | {"verdict": "exploratory", "reason": doubt}
    outcome = classify(of, found.p_adjusted, rule.margin, rule.alpha, found.p_equivalent)
    small = outcome == "equivalent" and found.p_adjusted < rule.alpha
    reason = f"significant, but all of it within ±{rule.margin * 100:g} %" if small else None
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


def decide(
    study: Study, results: Sequence[Result], doubts: Mapping[str, str | None]
) -> tuple[str, str | None]:
    """The study's rule in its own words, and the adopted arm.

    An arm is adopted if it is faster at every ``improve`` workload and nowhere in ``guard`` does
    its interval admit a loss above ``guard_loss``; of several, the one with the lowest geometric
    mean ratio over the ``improve`` workloads.
    """
    rule, names = study.file.decision, [w.name for w in study.workloads]
    improve, guard = study.selects(rule.improve), study.selects(rule.guard)
    by = {(r.arm, r.workload): r for r in results}
    if doubt := next((d for w in (*improve, *guard) if (d := doubts.get(w))), None):
        return f"no decision: exploratory ({doubt})", None
    arms = [a.name for a in study.arms if a.name not in (BASELINE, NULL)]
    if all(by[a, w].verdict in ("rejected", "wrong") for a in arms for w in improve):
        return "reject: no arm but the baseline fits and is right on this device", None
    needed = [w for w in names if w in improve or w in guard]
    if missing := [w for w in needed if by[BASELINE, w].time_us is None]:
        return f"no decision: not measured at {span(missing, names)}", None

    def passes(arm: str) -> bool:
        ends = [by[arm, w].high for w in guard]
        return all(by[arm, w].verdict == "faster" for w in improve) and all(
            e is not None and e <= 1 + rule.guard_loss for e in ends
        )

    def mean(arm: str) -> float:
        return math.exp(sum(math.log(by[arm, w].ratio or 1.0) for w in improve) / len(improve))

    at = span(improve, names)
    kept = (
        f" and loses at most {rule.guard_loss * 100:g} % at {span(guard, names)}" if guard else ""
    )
    adopted = min((a for a in arms if passes(a)), key=mean, default=None)
    if adopted is None:
        return f"reject: no arm is faster at all of {at}{kept}", None
    return f"adopt {adopted}: faster at {at} (mean ratio {mean(adopted):.3f}){kept}", adopted


def floors(plan: Plan, records: DeviceRecords) -> dict[str, dict[str, float]]:
    """Shortest times in µs by workload: bytes over peak bandwidth, issue clocks over all SMs at the
    median SM clock that was measured; without a clock there is no ``issue_us``."""
    device = device_of_nvml_name(records.device_name)
    found: dict[str, dict[str, float]] = {}
    for workload in plan.workloads if device else []:
        assert device is not None
        measurement = records.measurements.get(workload.name)
        if measurement is None:
            continue
        bounds = {"bandwidth_us": workload.bytes / (device.bandwidth_gb_s * 1e3)}
        clocks = [r.clocks.sm_mhz_median for r in measurement.replicates if r.clocks]
        if clocks and median(clocks) > 0:
            bounds["issue_us"] = workload.sm_clocks / (device.sm_count * median(clocks))
        found[workload.name] = {**bounds, "floor_us": max(bounds.values())}
    return found
