"""Plain sentences computed from a device's rows: what was projected, found, merged and rejected."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from occupancy_probe.records import Confirmation, Drops, Feasibility, Result
from occupancy_probe.study import BASELINE, NULL, Arm, Study
from occupancy_probe.study.schema import Projection
from occupancy_probe.templating import microseconds
from occupancy_probe.validate.collect import DeviceRecords, code_twin
from occupancy_probe.validate.decision import span


@dataclass(frozen=True)
class Findings:
    """What is known of one device; every sentence is a function of it."""

    study: Study
    records: DeviceRecords
    target: str
    results: Sequence[Result]
    floors: dict[str, dict[str, float]]
    """µs per workload, see :func:`.verdict.floors`."""
    adopted: str | None
    confirmation: Confirmation | None = None
    drops: Sequence[Drops] = ()

    @property
    def workloads(self) -> list[str]:
        return [w.name for w in self.study.workloads]

    @property
    def local(self) -> dict[str, Feasibility]:
        """Feasibility on this device's own target, by arm."""
        return self.records.feasibility.get(self.target, {})

    @property
    def distinct(self) -> list[str]:
        """Arms compared with the baseline: neither null nor the same code as another."""
        names = [a.name for a in self.study.arms if a.name not in (BASELINE, NULL)]
        return [n for n in names if code_twin(self.local, n) is None]

    def row(self, arm: str, workload: str) -> Result:
        return next(r for r in self.results if r.arm == arm and r.workload == workload)

    def measured(self, arm: str, workloads: Sequence[str]) -> list[Result]:
        """Rows with a ratio; a wrong or rejected arm has none."""
        found = [self.row(arm, w) for w in workloads]
        return [r for r in found if r.ratio is not None]


def conclude(f: Findings) -> list[str]:
    """All sentences, the projection first."""
    parts: tuple[Callable[[Findings], list[str]], ...] = (
        _projection,
        _best,
        _winner,
        _noise,
        _thinned,
        _residency,
        _merged,
        _rejected,
    )
    return [sentence for part in parts for sentence in part(f)]


def _projection(f: Findings) -> list[str]:
    projection = f.study.file.projection
    if projection is None:
        return []
    workloads = f.study.selects(projection.where)
    head = (
        f"projected {projection.low * 100:+.3g}–{projection.high * 100:.3g} % {projection.metric}"
        f" at {span(workloads, f.workloads)}"
    )
    arms = projection.arms or _best_over(f, workloads)
    if not arms:
        return [f"{head}; no arm was measured there on this device"]
    return [f"{head}; {_projected_arm(f, projection, a, workloads)}" for a in arms]


def _projected_arm(f: Findings, projection: Projection, arm: str, workloads: Sequence[str]) -> str:
    """What the measured kernel times allow to be said of a projected end-to-end gain.

    A kernel-time ratio r is a kernel speed-up of 1/r; if only this kernel changes, throughput gains
    at most 1/r - 1 (Amdahl), and that much only if the kernel were all of the time. Where whole steps
    are timed it is the throughput's own gain.
    """
    first = f.row(arm, workloads[0])
    if first.verdict in ("rejected", "wrong"):
        return f"arm {arm} is {first.verdict} on this device ({first.reason}): not measured"
    found = [r for r in f.measured(arm, workloads) if r.low is not None and r.high is not None]
    if not found:
        return f"arm {arm} is not measured on this device"
    at = [r.workload for r in found]
    ratios = [r.ratio or math.nan for r in found]
    low, high = min(r.low or 0.0 for r in found), max(r.high or math.inf for r in found)
    speed = _range(1 / max(ratios), 1 / min(ratios), 2)
    timed = "step" if f.study.times_steps else "kernel"
    text = (
        f"measured {timed} time ratio of arm {arm} at {span(at, f.workloads)}:"
        f" {_range(min(ratios), max(ratios), 2)} [{low:.2f}–{high:.2f}]"
        f" ({timed} speed-up {speed}): {_outcomes(found)} — {_ruling(projection, found, timed)}"
    )
    missing = [w for w in workloads if w not in at]
    return text + (f"; not measured at {span(missing, f.workloads)}" if missing else "")


def _ruling(projection: Projection, found: Sequence[Result], timed: str) -> str:
    short = [r.workload for r in found if r.low and 1 / r.low - 1 < projection.low]
    reached = all(r.high and 1 / r.high - 1 >= projection.low for r in found)
    if len(short) == len(found):
        text = "the hypothesis does not hold on this device"
        if timed == "kernel" and any(r.ratio and r.ratio < 1 for r in found):
            text += ": the end-to-end gain is at most the kernel's"
    elif short:
        text = f"the hypothesis does not hold at {', '.join(short)} on this device"
    elif reached and timed == "step":
        text = "the step gains as much as was projected"
    elif reached:
        text = (
            "the kernel gains as much as was projected; the end-to-end gain is at most that and"
            " is not measured here"
        )
    else:
        text = "not decided: the intervals admit both a smaller gain and the projected one"
    exploratory = any(r.verdict == "exploratory" for r in found)
    return f"exploratory, no verdict: {text}" if exploratory else text


def _outcomes(found: Sequence[Result]) -> str:
    """The verdict, or each verdict with its workloads if they differ."""
    by: dict[str, list[str]] = {}
    for r in found:
        by.setdefault(r.verdict, []).append(r.workload)
    if len(by) == 1:
        return next(iter(by))
    return ", ".join(f"{verdict} at {', '.join(names)}" for verdict, names in by.items())


def _best_over(f: Findings, workloads: Sequence[str]) -> list[str]:
    """The arm with the lowest geometric mean ratio among those measured at all ``workloads``."""
    means = {
        arm: math.fsum(math.log(r.ratio or math.nan) for r in found)
        for arm in f.distinct
        if len(found := f.measured(arm, workloads)) == len(workloads)
    }
    return [min(means, key=lambda a: means[a])] if means else []


def _best(f: Findings) -> list[str]:
    """Per workload: baseline and best arm, each in µs and as a multiple of the floor."""
    sentences = []
    for w in f.workloads:
        base = f.row(BASELINE, w).time_us
        if base is None:
            continue
        text = f"{w}: baseline {microseconds(base)}{_over_floor(f, w, base)}"
        if arms := _best_over(f, [w]):
            r = f.row(arms[0], w)
            time = f" {microseconds(r.time_us)}{_over_floor(f, w, r.time_us)}" if r.time_us else ""
            interval = f" [{r.low:.3f}–{r.high:.3f}]" if r.low and r.high else ""
            text += f"; best other arm {r.arm}{time}, ratio {r.ratio:.3f}{interval}: {r.verdict}"
        if floor := f.floors.get(w):
            known = (f"{_FLOORS[k]} {microseconds(v)}" for k, v in floor.items() if k in _FLOORS)
            text += f"; {', '.join(known)}"
        sentences.append(text)
    return sentences


_FLOORS = {"bandwidth_us": "bandwidth floor", "issue_us": "issue yardstick"}
"""The first bounds every kernel; the second is what kernels of the job were seen to issue."""


def _over_floor(f: Findings, workload: str, time_us: float) -> str:
    """Such as " (4.1 × bandwidth floor, 2.0 × issue yardstick)", as far as they are known."""
    floor = f.floors.get(workload, {})
    multiples = [
        f"{time_us / floor[k]:.1f} × {words}" for k, words in _FLOORS.items() if floor.get(k)
    ]
    return f" ({', '.join(multiples)})" if multiples else ""


def _winner(f: Findings) -> list[str]:
    """What the choice of a best arm from many leaves open."""
    picked = [a for a in f.distinct if f.measured(a, f.workloads)]
    sentences = []
    if f.adopted:
        sentences = [f"{f.adopted}: {edge}" for edge in grid_edges(f, f.adopted)]
    if len(picked) > 1:
        who = f.adopted or "the best arm of each workload"
        again = f.confirmation if f.confirmation and f.confirmation.arm in picked else None
        if again is None or (f.adopted and again.arm != f.adopted):
            said = "and is not re-measured on fresh replicates"
        else:
            where = span(list(again.workloads), f.workloads)
            said = (
                f"; {again.arm} re-measured on fresh replicates at {where}: {again.ratio:.3f}"
                f" [{again.low:.3f}–{again.high:.3f}]"
                + ("" if again.held else f", faster at {_faster_again(f, again)}")
            )
        glue = "" if said.startswith(";") else " "
        sentences.append(
            f"{who} was picked from {len(picked)} arms (p values corrected for that){glue}{said}"
        )
    return sentences


def _faster_again(f: Findings, again: Confirmation) -> str:
    """Workloads of the confirmation whose interval lies below 1, and not all within the margin."""
    least = 1 - f.study.file.decision.margin
    found = [w for w, (_, low, high) in again.workloads.items() if high < 1 and low < least]
    return f"{span(found, f.workloads)} alone" if found else "none of them by more than the margin"


def grid_edges(f: Findings, arm: str) -> list[str]:
    """Numeric config keys at whose extreme value, among arms that fit, ``arm`` stands.

    Only keys with three or more such values; 1 is the least that a launch parameter can be.
    """
    fit = [
        a
        for a in f.study.arms
        if f.row(a.name, f.workloads[0]).verdict != "rejected" or a.name == arm
    ]
    edges = []
    for key, value in f.study.arm(arm).config.items():
        declared, fitting = _numbers(f.study.arms, key), _numbers(fit, key)
        if len(fitting) < 3 or value not in (fitting[0], fitting[-1]):
            continue
        top = value == fitting[-1]
        what = f"{key} {value} is the {'highest' if top else 'lowest'} value"
        if value not in (declared[0], declared[-1]):
            edges.append(f"{what} that fits of those declared")
        elif value == 1 and not top:
            edges.append(f"{what} that there can be")
        else:
            edges.append(f"{what} declared, at the edge of the grid: extend the grid")
    return edges


def _numbers(arms: Sequence[Arm], key: str) -> list[float]:
    """The distinct numeric values of a config key, in ascending order."""
    values = [a.config.get(key) for a in arms]
    return sorted({v for v in values if isinstance(v, int | float) and not isinstance(v, bool)})


def _noise(f: Findings) -> list[str]:
    """The null arm: what a difference of nothing looks like in this measurement."""
    found = f.measured(NULL, f.workloads)
    at = [
        f"{r.noise_floor * 100:.2f} % at {r.workload}" for r in found if r.noise_floor is not None
    ]
    sentences = [f"noise floor (null arm against the baseline): {', '.join(at)}"] if at else []
    if odd := [r.workload for r in found if r.verdict in ("faster", "slower")]:
        sentences.append(f"the null arm differs from its twin at {', '.join(odd)}: bias, or chance")
    return sentences


def _thinned(f: Findings) -> list[str]:
    """Workloads that decide and lost half of their blocks or more."""
    rule = f.study.file.decision
    needed = {*f.study.selects(rule.improve), *f.study.selects(rule.guard)}
    few = [d for d in f.drops if d.workload in needed and 2 * d.dropped >= d.blocks]
    listed = ", ".join(d.words() for d in few)
    text = f"half of the blocks or more were dropped: {listed}; results there rest on the others"
    return [text] if few else []


def _residency(f: Findings) -> list[str]:
    """Where this device's target holds other CTAs and warps per SM than the study's others."""
    projection = f.study.file.projection
    sentences = []
    named = [*(projection.arms if projection else []), *([f.adopted] if f.adopted else [])]
    for arm in dict.fromkeys([BASELINE, *named]):
        here = _resident(f.local.get(arm))
        if here is None:
            continue
        others = {
            t: words
            for t in f.study.file.targets
            if t != f.target
            and (words := _resident(f.records.feasibility.get(t, {}).get(arm))) is not None
            and words != here
        }
        if others:
            shown = "; ".join(f"{t}: {words}" for t, words in {f.target: here, **others}.items())
            sentences.append(
                f"{arm}, resident on one SM — {shown}: the result on {f.target} does not carry over"
                f" to {', '.join(others)}"
            )
    return sentences


def _resident(record: Feasibility | None) -> str | None:
    if record is None:
        return None
    if record.verdict != "fits":
        return f"{record.verdict} ({record.reasons[0].text})" if record.reasons else record.verdict
    ctas, warps = record.ctas_per_sm, record.warps_per_sm
    if not ctas or warps is None:
        return None
    return f"{ctas} CTA{'s' if ctas > 1 else ''} × {warps // ctas} warps = {warps} warps"


def _merged(f: Findings) -> list[str]:
    twins = {a.name: code_twin(f.local, a.name) for a in f.study.arms if not a.twin}
    pairs = [(arm, twin) for arm, twin in twins.items() if twin]
    if not pairs:
        return []
    listed = ", ".join(f"{a} = {b}" for a, b in pairs)
    return [f"arms merged as same code on {f.target}: {len(pairs)} ({listed})"]


def _rejected(f: Findings) -> list[str]:
    first = f.workloads[0]
    rows = [f.row(a.name, first) for a in f.study.arms if not a.twin]
    return [
        f"{r.arm} is {r.verdict}: {r.reason}" for r in rows if r.verdict in ("rejected", "wrong")
    ]


def _range(low: float, high: float, digits: int) -> str:
    """``1.24–1.37``, or one number if both read the same."""
    a, b = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return a if a == b else f"{a}–{b}"
