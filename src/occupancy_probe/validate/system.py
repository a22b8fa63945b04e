"""The step around the kernel on one device: its throughput model, the kernel's share, and the gains.

Three sources. A study of whole steps (``series: measured``) has its own times. A study of a kernel may
name such a study (``step:``) and takes model, share and measured gains from it. Or it names a series
that somebody published, with a share from elsewhere: then gains are projected only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from occupancy_probe.records import (
    DeviceVerdict,
    EndToEnd,
    Interval,
    Measurement,
    Result,
    Serving,
    System,
    ThroughputModel,
)
from occupancy_probe.study import BASELINE, NULL, Study
from occupancy_probe.study.profile import profile_share
from occupancy_probe.study.schema import Share, Throughput
from occupancy_probe.study.series import Series, read_series
from occupancy_probe.templating import measured_interval
from occupancy_probe.validate.decision import Gains, span
from occupancy_probe.validate.projection import (
    Paired,
    needed_words,
    outcome,
    project,
    share_from_passes,
)
from occupancy_probe.validate.statistics import estimate, median_time
from occupancy_probe.validate.throughput import describe, predict


@dataclass(frozen=True)
class StepStudy:
    """The study of the whole step, and what its rule said per device."""

    study: Study
    devices: Mapping[str, DeviceVerdict]


def find_system(
    study: Study,
    device: str,
    results: Sequence[Result],
    measurements: Mapping[str, Measurement],
    step: StepStudy | None,
    servings: Mapping[str, Serving] | None = None,
) -> System | None:
    """What is known of the step on ``device`` (slug); None if the study asks for nothing."""
    wanted = study.file.throughput
    served = _served(study, servings or {})
    if wanted is None and not served:
        return None
    if wanted is None:
        return System(gains=_gains(study, None, results, {}, served), share_source=None)
    if study.times_steps:
        return _own_steps(study, wanted, measurements)
    notes: list[str] = []
    measured = dict(served)
    if wanted.step:
        of = step.devices.get(device) if step else None
        if step is None or of is None or of.system is None:
            notes.append(f"{wanted.step}: no step was measured on this device")
            model, shares, source = None, {}, None
        else:
            model = of.system.model
            at = _by_axis(step.study, of.system.shares)
            shares = {w: at[c] for w, c in _axis(study, wanted.axis).items() if c in at}
            source = f"{step.study.name}: {of.system.share_source}"
            measured = {**_step_gains(study, wanted.axis, step, of), **served}
            if not of.preregistered:
                notes.append(f"{step.study.name}: exploratory on this device")
    else:
        model = describe(read_series(wanted.series or "", study.path.parent))
        notes += _beyond(study, wanted.axis, model)
        shares, source = {}, None
    if wanted.share:
        shares, source = _shares(study, wanted, results, model)
        notes += [
            f"{w}: {wanted.share.launches:g} launches take {s.value:.2f} × the model's step time:"
            " no share; give the launches of one step, or another series"
            for w, s in shares.items()
            if s.value > 1
        ]
        shares = {w: s for w, s in shares.items() if s.value <= 1}
    return System(
        model=model,
        share_source=source,
        shares=shares,
        gains=_gains(study, wanted.axis, results, shares, measured),
        needed=_needed(study, shares),
        notes=notes,
    )


def expected_system(study: Study) -> System | None:
    """What the study's own series and share say before anything is measured; None without a series."""
    wanted = study.file.throughput
    if wanted is None or wanted.step or study.times_steps:
        return None
    return find_system(study, "", [], {}, None)


def known_gains(system: System | None) -> Gains:
    """By arm and workload: measured where it is, else projected."""
    found = {}
    for g in system.gains if system else []:
        if gain := g.measured or g.projected:
            found[g.arm, g.workload] = gain
    return found


def only_projected(system: System | None) -> set[tuple[str, str]]:
    """Arms and workloads whose gain no step was measured for."""
    return {(g.arm, g.workload) for g in (system.gains if system else []) if g.measured is None}


def sentences(system: System | None) -> list[str]:
    """What the step says, for the conclusions."""
    if system is None:
        return []
    lines = []
    if m := system.model:
        f = next(f for f in m.fits if f.name == m.chosen)
        other = next(f for f in m.fits if f.name != m.chosen)
        unit = "per request" if f.name == "line" else "per active expert"
        lines.append(
            f"step time of {m.series}: {measured_interval(f.overhead_ms)} ms +"
            f" {measured_interval(f.slope_ms)} ms {unit};"
            f" held-out error {f.held_out_error * 100:.1f} %"
            f" ({other.name}: {other.held_out_error * 100:.1f} %)"
        )
        lines += [f"{m.series}, C = {p.concurrency:g} is not fitted: {p.reason}" for p in m.flagged]
    if system.shares:
        listed = ", ".join(
            f"{s.value * 100:.1f} % [{s.low * 100:.1f}–{s.high * 100:.1f}] at {w}"
            for w, s in system.shares.items()
        )
        lines.append(f"share of the step that the kernel takes ({system.share_source}): {listed}")
    lines += system.needed
    return [*lines, *system.notes]


def _own_steps(study: Study, wanted: Throughput, measurements: Mapping[str, Measurement]) -> System:
    """Model and share of a study whose launches are whole steps."""
    passes = wanted.share.passes if wanted.share else None
    once = _once(study)
    points = {
        c: time
        for w, c in once.items()
        if w in measurements and (time := median_time(measurements[w].replicates, BASELINE))
    }
    shares = {}
    for w in study.workloads:
        if passes is None or w.name not in once:
            continue
        twin = next((o.name for o in study.workloads if o.axes == {**w.axes, passes: 2}), None)
        pairs = _paired(measurements, w.name, twin)
        if pairs:
            shares[w.name] = share_from_passes(pairs, study.file.decision.alpha)
    model = None
    notes = []
    if len(points) >= 3:
        order = sorted(points)
        times = tuple(points[c] / 1e3 for c in order)
        series = Series(study.name, "whole steps, measured", tuple(order), times)
        model = describe(series, flag=False)
    else:
        notes.append("fewer than 3 concurrencies were measured: no throughput model")
    return System(
        model=model,
        share_source=f"what a second pass of it adds to the step, {passes} 2 against 1"
        if passes
        else None,
        shares=shares,
        needed=_needed(study, shares),
        notes=notes,
    )


def _paired(measurements: Mapping[str, Measurement], once: str, twice: str | None) -> list[Paired]:
    """The baseline's times of both workloads in every process that timed both."""
    if twice is None or once not in measurements or twice not in measurements:
        return []
    of = [_by_process(measurements[w]) for w in (once, twice)]
    return [Paired(of[0][p], of[1][p]) for p in sorted(of[0].keys() & of[1].keys())]


def _by_process(measurement: Measurement) -> dict[int, float]:
    processes = {r.process for r in measurement.replicates}
    found = {}
    for p in processes:
        time = median_time([r for r in measurement.replicates if r.process == p], BASELINE)
        if time:
            found[p] = time / 1e3
    return found


def _shares(
    study: Study, wanted: Throughput, results: Sequence[Result], model: ThroughputModel | None
) -> tuple[dict[str, Interval], str | None]:
    """The share at every workload, from what the study says of it."""
    share: Share | None = wanted.share
    assert share is not None
    names = list(_axis(study, wanted.axis))
    if share.value is not None:
        given = Interval(value=share.value, low=share.value, high=share.value)
        return dict.fromkeys(names, given), "given by the study"
    if share.range_ is not None:
        low, high = share.range_
        return dict.fromkeys(names, Interval(value=(low + high) / 2, low=low, high=high)), (
            "range given by the study"
        )
    if share.profile is not None:
        pattern = share.kernels or study.file.kernel.function
        value = profile_share(study.path.parent / share.profile, pattern)
        of = Interval(value=value, low=value, high=value)
        return dict.fromkeys(names, of), f"profile {share.profile}"
    assert share.launches is not None, "the study was checked when it was read"
    if model is None:
        return {}, None
    times = {r.workload: r.time_us for r in results if r.arm == BASELINE and r.time_us}
    found = {}
    for w, c in _axis(study, wanted.axis).items():
        if w in times:
            part = share.launches * times[w] / 1e3 / predict(model, c)
            found[w] = Interval(value=part, low=part, high=part)
    return found, f"{share.launches:g} launches of the kernel over the model's step time"


def _gains(
    study: Study,
    axis: str | None,
    results: Sequence[Result],
    shares: Mapping[str, Interval],
    measured: Mapping[tuple[str, str], tuple[Interval, str]],
) -> list[EndToEnd]:
    """Every measured arm at every workload whose share is known or whose step was measured."""
    minimum = max(study.file.decision.minimum_effect, study.file.decision.margin)
    places = _axis(study, axis) if axis else {}
    found = []
    for r in results:
        known = measured.get((r.arm, r.workload))
        share = shares.get(r.workload)
        if r.arm in (BASELINE, NULL) or r.ratio is None or (share is None and known is None):
            continue
        ratio = Interval(value=r.ratio, low=r.low or r.ratio, high=r.high or r.ratio)
        projected = project(share, ratio) if share else None
        gain = known[0] if known else None
        found.append(
            EndToEnd(
                arm=r.arm,
                workload=r.workload,
                concurrency=places.get(r.workload),
                ratio=ratio,
                share=share,
                projected=projected,
                measured=gain,
                measured_verdict=known[1] if known else None,
                outcome=outcome(ratio, gain or projected, minimum, r.verdict),
            )
        )
    return found


def _step_gains(
    study: Study, axis: str, step: StepStudy, of: DeviceVerdict
) -> dict[tuple[str, str], tuple[Interval, str]]:
    """The step study's own A/B, for arms of the same config and workloads of the same concurrency."""
    same = {
        a.name: b.name
        for a in study.arms
        for b in step.study.arms
        if a.config == b.config and not a.twin and not b.twin
    }
    if step.study.arm(BASELINE).config != study.arm(BASELINE).config:
        return {}
    rows = {(r.arm, r.workload): r for r in of.results}
    places = {c: w for w, c in _once(step.study).items()}
    found: dict[tuple[str, str], tuple[Interval, str]] = {}
    for workload, c in _axis(study, axis).items():
        for arm, theirs in same.items():
            row = rows.get((theirs, places.get(c, "")))
            if arm != BASELINE and row and row.ratio and row.low and row.high:
                gain = Interval(value=1 / row.ratio - 1, low=1 / row.high - 1, high=1 / row.low - 1)
                found[arm, workload] = (gain, row.verdict)
    return found


def _served(
    study: Study, servings: Mapping[str, Serving]
) -> dict[tuple[str, str], tuple[Interval, str]]:
    """Gains in tokens per second that a real server showed, restarts as replicates."""
    found = {}
    for workload, serving in servings.items():
        for arm in study.arms:
            if arm.name == BASELINE:
                continue
            of = estimate(serving.replicates, arm.name, BASELINE, study.file.decision.alpha)
            if of and of.df and of.low > 0:
                gain = Interval(value=1 / of.ratio - 1, low=1 / of.high - 1, high=1 / of.low - 1)
                claim = "faster" if of.high < 1 else "slower" if of.low > 1 else "undecided"
                found[arm.name, workload] = (gain, f"{claim} in {serving.restarts} restarts")
    return found


def _needed(study: Study, shares: Mapping[str, Interval]) -> list[str]:
    """What the projected gain asks of the kernel, one line for workloads of equal words."""
    projection = study.file.projection
    if projection is None:
        return []
    words: dict[str, list[str]] = {}
    for w in study.selects(projection.where):
        if w in shares:
            words.setdefault(needed_words(shares[w], projection.low), []).append(w)
    order = [w.name for w in study.workloads]
    return [f"{span(at, order)}: {text}" for text, at in words.items()]


def _beyond(study: Study, axis: str, model: ThroughputModel) -> list[str]:
    last = max(c for c, _ in model.points)
    far = [w for w, c in _axis(study, axis).items() if c > last]
    if not far:
        return []
    order = [w.name for w in study.workloads]
    return [f"{span(far, order)} lie beyond the series (C <= {last:g}): extrapolated"]


def _axis(study: Study, axis: str) -> dict[str, float]:
    """Concurrency of the workloads that the step speaks of."""
    wanted = study.file.throughput
    names = study.selects(wanted.where) if wanted else ()
    return {w.name: float(w.axes[axis]) for w in study.workloads if w.name in names}


def _once(study: Study) -> dict[str, float]:
    """Workloads of a step study that run the kernel as often as a step does, by concurrency."""
    wanted = study.file.throughput
    if wanted is None:
        return {}
    passes = wanted.share.passes if wanted.share else None
    names = {w.name for w in study.workloads if passes is None or w.axes.get(passes) == 1}
    return {w: c for w, c in _axis(study, wanted.axis).items() if w in names}


def _by_axis(study: Study, values: Mapping[str, Interval]) -> dict[float, Interval]:
    return {c: values[w] for w, c in _once(study).items() if w in values}
