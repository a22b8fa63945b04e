"""What the first workload to arrive costs all others: regret of an autotuner's choice, per bucket."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from occupancy_probe.records import (
    Audit,
    AutotuneRuns,
    DeviceVerdict,
    FirstTouch,
    Result,
    TuningAdvice,
)
from occupancy_probe.study import NULL, Study
from occupancy_probe.templating import config_text, percent, plain
from occupancy_probe.validate.collect import DeviceRecords, code_twin

STUDY_TIMES = (
    "the study's own times: whole launch under CUDA graphs; the autotuner itself times the kernel alone,"
    " eagerly, with an L2 flush"
)


def matrix_of(
    workloads: Sequence[str],
    configs: Sequence[Mapping[str, Any]],
    times_us: Sequence[Sequence[float]],
    origin: str,
) -> FirstTouch:
    """The first-touch matrix of one bucket.

    times_us: µs per config (in the order of the autotuner's list) and workload; infinite where the
    config cannot run. The choice at a workload is the least time, on a tie the first in the list.
    """
    columns = [[row[w] for row in times_us] for w in range(len(workloads))]
    chosen = [min(range(len(configs)), key=column.__getitem__) for column in columns]
    losses = [
        [
            column[choice] / min(column) - 1 if math.isfinite(min(column)) else math.nan
            for column in columns
        ]
        for choice in chosen
    ]
    first, at = max(
        ((i, j) for i in range(len(workloads)) for j in range(len(workloads))),
        key=lambda place: (
            -1.0 if math.isnan(losses[place[0]][place[1]]) else losses[place[0]][place[1]]
        ),
    )
    return FirstTouch(
        origin=origin,
        workloads=list(workloads),
        configs=[dict(c) for c in configs],
        times_us=[list(row) for row in times_us],
        chosen=chosen,
        losses=losses,
        worst=losses[first][at],
        worst_first=workloads[first],
        worst_at=workloads[at],
    )


def winners(samples: Sequence[Mapping[int, Sequence[float]]]) -> dict[str, int]:
    """How often each config wins over repeats, each judged as Triton judges one autotune run.

    samples: per repeat, µs of each config by its index. Triton compares [median, p20, p80].
    """
    count = Counter[str]()
    for repeat in samples:
        if repeat:
            quantiles = {i: list(np.quantile(s, (0.5, 0.2, 0.8))) for i, s in repeat.items()}
            count[str(min(sorted(quantiles), key=quantiles.__getitem__))] += 1
    return dict(sorted(count.items()))


def first_touches(
    study: Study, audit: Audit, records: DeviceRecords, results: Sequence[Result], target: str
) -> list[FirstTouch]:
    """One matrix per bucket, from the study's own measurements of the autotuner's configs.

    Configs that are no arm, or were not timed, are left out; a bucket with fewer than two is not
    judged.
    """
    arms = {i: arm for i, c in enumerate(audit.configs) if (arm := _arm(study, c.is_arm))}
    timed = {(r.arm, r.workload): r.time_us for r in results if r.time_us is not None}
    found = []
    for bucket in audit.buckets:
        workloads = [w for w in bucket.workloads if any((a, w) in timed for a in arms.values())]
        listed = [i for i, a in arms.items() if any((a, w) in timed for w in workloads)]
        if len(listed) < 2 or not workloads:
            continue
        times = [[timed.get((arms[i], w), math.inf) or math.inf for w in workloads] for i in listed]
        made = matrix_of(workloads, [audit.configs[i].config for i in listed], times, STUDY_TIMES)
        names = [code_twin(records.feasibility.get(target, {}), arms[i]) or arms[i] for i in listed]
        repeats = [_winners_at(records, w, names) for w in workloads]
        found.append(made.model_copy(update={"winners": repeats, **_unlisted(made, timed)}))
    return found


def advise(
    audit: Audit, touches: Sequence[FirstTouch], margin: float, runs: AutotuneRuns | None = None
) -> TuningAdvice | None:
    """Keep, pin one config, add to key, or pin per bucket; None where nothing was measured.

    margin: fraction that counts as no loss. runs: real first calls, whose seconds are then told in
    place of the timer's nominal ones. The cheapest remedy that brings the worst loss within it
    is advised; a key that cannot see what matters without a change of the kernel's arguments, or
    whose keys the warm-up does not reach, is not.
    """
    if len(audit.configs) == 1:
        return TuningAdvice(advice="keep", why="one config: nothing is chosen")
    if not touches:
        return None
    worst = max(touches, key=lambda t: t.worst)
    said = f"worst first touch: {worst.worst_first} first costs {percent(worst.worst)} at {worst.worst_at}"
    if worst.worst <= margin:
        return TuningAdvice(advice="keep", why=f"{said}, within the margin of {percent(margin)}")
    common = [c.config for c in audit.configs if all(c.config in t.configs for t in touches)]
    pin = min(common, key=lambda c: _pin_loss(touches, c), default=None)
    if pin is not None and (loss := _pin_loss(touches, pin)) <= margin:
        why = f"{said}; {config_text(pin)} for all loses at most {percent(loss)} and tunes nothing"
        return TuningAdvice(advice="pin one config", why=why, config=pin)
    wider = audit.wider_key
    if wider is not None:
        mean = mean_first_call(runs)
        seconds = (
            f"{wider.buckets} first calls of {plain(mean)} s as measured, binaries cached after the first:"
            f" {plain(wider.buckets * mean)} s"
            if mean
            else f"{plain(wider.seconds)} s of timing"
        )
        cost = (
            f"{', '.join(wider.added)} in the key costs {wider.tuning_launches} tuned configs"
            f" ({seconds}) and removes {percent(worst.worst)}"
        )
        if wider.is_argument and not wider.not_warmed:
            return TuningAdvice(advice="add to key", why=f"{said}; {cost}")
        hurdle = (
            f"{len(wider.not_warmed)} captured workloads would then tune inside the capture"
            if wider.not_warmed
            else f"{', '.join(wider.added)} is no argument of the kernel"
        )
        said = f"{said}; {cost}, but {hurdle}"
    per_workload = {w: t.configs[t.chosen[i]] for t in touches for i, w in enumerate(t.workloads)}
    why = said
    if pin is not None:
        why += f"; the best single config still loses {percent(_pin_loss(touches, pin))} somewhere"
    meant = (
        f"the {wider.buckets} that {', '.join(wider.added)} in the key would make" if wider else ""
    )
    why += (
        f"; the buckets to pin are {meant or 'the workloads'}, each with its own best of the list"
    )
    return TuningAdvice(advice="pin per bucket", why=why, per_workload=per_workload)


def mean_first_call(runs: AutotuneRuns | None) -> float | None:
    """Seconds of a real first call, most with cached binaries; None where none was made or all failed."""
    seconds = [r.seconds for r in runs.runs if r.error is None] if runs else []
    return fmean(seconds) if seconds else None


def with_autotuner(
    verdict: DeviceVerdict, study: Study, audit: Audit | None, records: DeviceRecords
) -> DeviceVerdict:
    """``verdict`` with what is known of the autotuner on its device."""
    if audit is None or not audit.configs:
        return verdict
    touches = first_touches(study, audit, records, verdict.results, verdict.target)
    return verdict.model_copy(
        update={
            "first_touch": touches,
            "tuning_advice": advise(
                audit, touches, study.file.decision.margin, records.autotune_runs
            ),
            "autotune_runs": records.autotune_runs,
        }
    )


def _arm(study: Study, is_arm: Callable[[dict[str, Any]], bool]) -> str | None:
    return next((a.name for a in study.arms if a.name != NULL and is_arm(a.config)), None)


def _winners_at(records: DeviceRecords, workload: str, arms: Sequence[str]) -> dict[str, int]:
    measured = records.measurements.get(workload)
    if measured is None:
        return {}
    return winners(
        [{i: r.arms[a] for i, a in enumerate(arms) if r.arms.get(a)} for r in measured.replicates]
    )


def _unlisted(touch: FirstTouch, timed: Mapping[tuple[str, str], float | None]) -> dict[str, Any]:
    """How far the best of the list is from the best arm that was measured at all."""
    losses: dict[str, float] = {}
    best: dict[str, str] = {}
    for i, workload in enumerate(touch.workloads):
        times = {a: t for (a, w), t in timed.items() if w == workload and t and a != NULL}
        best[workload] = min(times, key=times.__getitem__)
        losses[workload] = min(row[i] for row in touch.times_us) / times[best[workload]] - 1
    worst = max(losses, key=losses.__getitem__)
    return {"unlisted": losses, "unlisted_arm": best[worst]}


def _pin_loss(touches: Sequence[FirstTouch], config: Mapping[str, Any]) -> float:
    """Largest loss anywhere if ``config`` is used for all."""
    worst = 0.0
    for touch in touches:
        row = touch.times_us[touch.configs.index(dict(config))]
        for w, time in enumerate(row):
            worst = max(worst, time / min(r[w] for r in touch.times_us) - 1)
    return worst
