"""The plan's decision rule as data, applied to one device's rows: what to do, and on which numbers.

Outcomes are tried in a fixed order and only where the rule lists them: an arm that passes everywhere
is adopted; one that passes from some value of an axis on is adopted from there; while an arm could
still pass, nothing is concluded; if the best time lies far above its floor a rewrite is called for;
otherwise the arms are rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import geometric_mean
from typing import Any

from occupancy_probe.records import Bound, Interval, Result, Ruling
from occupancy_probe.study import BASELINE, NULL, Study
from occupancy_probe.study.schema import Decision
from occupancy_probe.validate.projection import system_verdict

Gains = Mapping[tuple[str, str], Interval]
"""End-to-end gain by arm and workload, as a fraction of throughput."""


@dataclass(frozen=True)
class Case:
    """What the rule looks at: all rows of one device, and what else is known of it."""

    study: Study
    results: Sequence[Result]
    doubts: Mapping[str, str | None]
    """Per measured workload, why it carries no verdict; None if it does."""
    gains: Gains = field(default_factory=dict)
    bounds: Sequence[Bound] = ()
    projected: Collection[tuple[str, str]] = ()
    """Those of ``gains`` that no step was measured for."""

    @property
    def rule(self) -> Decision:
        return self.study.file.decision

    @cached_property
    def names(self) -> list[str]:
        return [w.name for w in self.study.workloads]

    @cached_property
    def improve(self) -> tuple[str, ...]:
        return self.study.selects(self.rule.improve)

    @cached_property
    def guard(self) -> tuple[str, ...]:
        return self.study.selects(self.rule.guard)

    @cached_property
    def needed(self) -> list[str]:
        return [w for w in self.names if w in self.improve or w in self.guard]

    @cached_property
    def by(self) -> dict[tuple[str, str], Result]:
        return {(r.arm, r.workload): r for r in self.results}

    @cached_property
    def arms(self) -> list[str]:
        return [a.name for a in self.study.arms if a.name not in (BASELINE, NULL)]

    def gains_at(self, arm: str, workload: str) -> bool:
        """Faster, and by as much as the rule asks for in its own metric."""
        row = self.by[arm, workload]
        if row.verdict != "faster":
            return False
        if self.rule.metric == "end_to_end":
            found = self.gains.get((arm, workload))
            return found is not None and found.low > 0 and found.low >= self.rule.minimum_effect
        return row.high is not None and 1 / row.high - 1 >= self.rule.minimum_effect

    def kept_at(self, arm: str, workload: str) -> bool:
        """No loss above the guard's, as far as the interval admits."""
        high = self.by[arm, workload].high
        return high is not None and high <= 1 + self.rule.guard_loss

    def may_gain_at(self, arm: str, workload: str) -> bool:
        """What is known does not exclude that the arm gains here."""
        row = self.by[arm, workload]
        if row.verdict not in ("faster", "undecided") or row.low is None:
            return False
        found = self.gains.get((arm, workload))
        if self.rule.metric == "end_to_end":
            return found is None or found.high >= self.rule.minimum_effect
        return 1 / row.low - 1 >= self.rule.minimum_effect

    def may_keep_at(self, arm: str, workload: str) -> bool:
        low = self.by[arm, workload].low
        return low is not None and low <= 1 + self.rule.guard_loss

    def unknown(self, arm: str) -> list[str]:
        """Where the rule wants an end-to-end gain that nothing is known of."""
        if self.rule.metric != "end_to_end":
            return []
        return [w for w in self.improve if (arm, w) not in self.gains]

    def may_pass(self, arm: str) -> bool:
        """What is known does not exclude that the arm passes."""
        return all(self.may_gain_at(arm, w) for w in self.improve) and all(
            self.may_keep_at(arm, w) for w in self.guard
        )

    def mean(self, arm: str, workloads: Sequence[str]) -> float:
        """Geometric mean ratio."""
        return geometric_mean(self.by[arm, w].ratio or 1.0 for w in workloads)


def decide(case: Case) -> Ruling:
    """The study's rule in its own words, its outcome, and the figures that it rests on."""
    made = _no_decision(case) or _adopt(case)
    for name, attempt in (
        ("adopt_above", _adopt_above),
        ("inconclusive", _inconclusive),
        ("rewrite", _rewrite),
    ):
        if made is None and name in case.rule.outcomes:
            made = attempt(case)
    return made or _not_known(case) or _reject(case)


def rule_in_words(case: Case) -> str:
    """What had to hold, as it was planned."""
    rule = case.rule
    timed = "step" if case.study.times_steps else "kernel"
    metric = f"{timed} time" if rule.metric == "kernel" else "throughput of the whole step"
    least = f" by at least {rule.minimum_effect * 100:g} %" if rule.minimum_effect else ""
    return (
        f"{metric} better{least} at all of {span(case.improve, case.names)}{_kept(case)};"
        f" margin {rule.margin * 100:g} %, error rate {rule.alpha * 100:g} %"
    )


def span(names: Sequence[str], order: Sequence[str]) -> str:
    """``c48…c96`` for three or more neighbours in ``order``, otherwise the names."""
    places = [order.index(n) for n in names]
    if len(names) > 2 and places == list(range(places[0], places[-1] + 1)):
        return f"{names[0]}…{names[-1]}"
    return ", ".join(names)


def _no_decision(case: Case) -> Ruling | None:
    relevant = (*case.improve, *case.guard)
    if doubt := next((d for w in relevant if (d := case.doubts.get(w))), None):
        return _ruling(case, "none", f"no decision: exploratory ({doubt})")
    unfit = ("rejected", "wrong")
    if all(case.by[a, w].verdict in unfit for a in case.arms for w in case.improve):
        return _ruling(
            case, "reject", "reject: no arm but the baseline fits and is right on this device"
        )
    if missing := [w for w in case.needed if case.by[BASELINE, w].time_us is None]:
        text = f"no decision: not measured at {span(missing, case.names)}"
        return _ruling(case, "none", text)
    if case.rule.metric == "end_to_end" and not case.gains:
        return _ruling(
            case, "none", "no decision: the rule asks for end-to-end gains and none is known"
        )
    return None


def _adopt(case: Case) -> Ruling | None:
    passing = [
        a
        for a in case.arms
        if all(case.gains_at(a, w) for w in case.improve)
        and all(case.kept_at(a, w) for w in case.guard)
    ]
    if not passing:
        return None
    arm = min(passing, key=lambda a: case.mean(a, case.improve))
    at = span(case.improve, case.names)
    mean = case.mean(arm, case.improve)
    text = (
        f"adopt {arm}: faster at {at} (mean ratio {mean:.3f}){_kept(case)}"
        f"{_end_to_end(case, arm, case.improve)}"
    )
    return _ruling(case, "adopt", text, arm)


def _adopt_above(case: Case) -> Ruling | None:
    """The lowest value of the axis from which on an arm gains everywhere, at two workloads or more."""
    axis = case.rule.above
    assert axis is not None
    place: dict[str, Any] = {w.name: w.axes[axis] for w in case.study.workloads if axis in w.axes}
    best: tuple[float, float, str, list[str]] | None = None
    for value in sorted({place[w] for w in case.needed}):
        over = [w for w in case.needed if place[w] >= value]
        if len(over) < 2 or not set(over) & set(case.improve):
            break
        for arm in case.arms:
            if all(case.gains_at(arm, w) for w in over):
                found = (float(value), case.mean(arm, over), arm, over)
                best = min(best, found) if best else found
        if best:
            break
    if best is None:
        return None
    value, mean, arm, over = best
    measured = [v for w, v in place.items() if case.by[BASELINE, w].time_us is not None]
    where = f"for {axis} >= {value:g} only"
    if value >= max(measured):
        where = f"at {axis} {value:g}, the largest measured, only"
    text = (
        f"adopt {arm} {where}: faster at {span(over, case.names)} (mean ratio {mean:.3f}), not at"
        " every workload below"
        f"{_end_to_end(case, arm, over)}"
    )
    return _ruling(case, "adopt_above", text, arm, value)


def _inconclusive(case: Case) -> Ruling | None:
    open_ = [a for a in case.arms if case.may_pass(a)]
    if not open_:
        return None
    arm = min(open_, key=lambda a: case.mean(a, case.improve))
    unknown = [w for w in case.unknown(arm) if case.by[arm, w].verdict == "faster"]
    undecided = [w for w in case.improve if w not in unknown and not case.gains_at(arm, w)]
    undecided += [w for w in case.guard if not case.kept_at(arm, w)]
    at = ", ".join(dict.fromkeys(undecided))
    more = f" (and {len(open_) - 1} more)" if len(open_) > 1 else ""
    why = [f"the intervals at {at} admit both; more processes"] if at else []
    if unknown:
        why.append(f"its end-to-end gain is not known at {span(unknown, case.names)}")
    text = f"inconclusive: {arm}{more} may pass, {', and '.join(why)}"
    return _ruling(case, "inconclusive", text, arm)


def _not_known(case: Case) -> Ruling | None:
    """A kernel that wins, and whose gain end to end nobody has measured or projected, is not judged."""
    open_ = [
        a
        for a in case.arms
        if case.may_pass(a)
        and case.unknown(a)
        and all(case.by[a, w].verdict == "faster" for w in case.improve)
    ]
    if not open_:
        return None
    arm = min(open_, key=lambda a: case.mean(a, case.improve))
    text = (
        f"no decision: {arm} is faster at {span(case.improve, case.names)} (mean ratio"
        f" {case.mean(arm, case.improve):.3f}), but its end-to-end gain is not known at"
        f" {span(case.unknown(arm), case.names)}"
    )
    return _ruling(case, "none", text, arm)


def _rewrite(case: Case) -> Ruling | None:
    at = [b for b in case.bounds if b.workload in case.improve]
    if len(at) < len(case.improve) or min(b.headroom for b in at) < case.rule.rewrite_headroom:
        return None
    least, most = min(b.headroom for b in at), max(b.headroom for b in at)
    head = (
        f"rewrite: no config passes; at {span(case.improve, case.names)} the best times are"
        f" {least:.1f}–{most:.1f} × their floor"
    )
    if case.study.times_steps:
        text = (
            f"{head}, that of the whole step: a rewrite of the kernel alone saves its share at most"
        )
        return _ruling(case, "rewrite", text)
    limits = ", ".join(dict.fromkeys(b.limit for b in at if b.limit))
    gains = [b.step_gain for b in at if b.step_gain]
    end = ""
    if len(gains) == len(at):
        end = f", {_ends(min(g.low for g in gains), max(g.high for g in gains))} % end to end"
    text = f"{head} (limit: {limits}), a rewrite that reached it would be that much faster{end}"
    return _ruling(case, "rewrite", text)


def _reject(case: Case) -> Ruling:
    winners = [
        a
        for a in case.arms
        if all(case.by[a, w].verdict == "faster" for w in case.improve)
        and len(case.unknown(a)) < len(case.improve)
    ]
    if case.rule.metric == "end_to_end" and winners:
        arm = min(winners, key=lambda a: case.mean(a, case.improve))
        found = [g for w in case.improve if (g := case.gains.get((arm, w)))]
        ends = _ends(min(g.low for g in found), max(g.high for g in found))
        unknown = case.unknown(arm)
        lack = f"; gain not known at {span(unknown, case.names)}" if unknown else ""
        text = (
            f"reject: kernel win, no system win: {arm} is faster at {span(case.improve, case.names)}"
            f" (mean ratio {case.mean(arm, case.improve):.3f}) and gains {ends} % end to end, where"
            f" {case.rule.minimum_effect * 100:g} % are asked for{lack}"
        )
        return _ruling(case, "reject", text, arm)
    least = case.rule.minimum_effect
    by = f" by {least * 100:g} %" if least else ""
    at = span(case.improve, case.names)
    return _ruling(case, "reject", f"reject: no arm is faster{by} at all of {at}{_kept(case)}")


def _kept(case: Case) -> str:
    if not case.guard:
        return ""
    loss = case.rule.guard_loss * 100
    return f" and loses at most {loss:g} % at {span(case.guard, case.names)}"


def _ruling(
    case: Case, outcome: str, text: str, arm: str | None = None, above: float | None = None
) -> Ruling:
    shown = arm or _best(case)
    return Ruling.model_validate(
        {
            "rule": rule_in_words(case),
            "outcome": outcome,
            "text": text,
            "arm": arm if outcome in ("adopt", "adopt_above") else None,
            "above": above,
            "numbers": [_numbers(case, shown, w) for w in case.needed] if shown else [],
        }
    )


def _best(case: Case) -> str | None:
    measured = [a for a in case.arms if all(case.by[a, w].ratio for w in case.improve)]
    return min(measured, key=lambda a: case.mean(a, case.improve), default=None)


def _numbers(case: Case, arm: str, workload: str) -> str:
    row = case.by[arm, workload]
    if row.ratio is None:
        return f"{workload}: {arm} {row.verdict}"
    ends = f" [{row.low:.3f}–{row.high:.3f}]" if row.low is not None and row.high else ""
    gain = case.gains.get((arm, workload))
    step = f", end to end {_gain_text(gain)}" if gain else ""
    return f"{workload}: {arm} {row.ratio:.3f}{ends} {row.verdict}{step}"


def _end_to_end(case: Case, arm: str, workloads: Sequence[str]) -> str:
    """What the arm gains end to end where it is adopted, with its verdict; empty if nothing is known."""
    known = {w: case.gains[arm, w] for w in workloads if (arm, w) in case.gains}
    if not known:
        return ""
    least = max(case.rule.minimum_effect, case.rule.margin)
    said = [
        f"{_gain_text(g)} at {w}{' (projected)' if (arm, w) in case.projected else ''}:"
        f" {system_verdict(g, least)}"
        for w, g in known.items()
    ]
    if unknown := [w for w in workloads if w not in known]:
        said.append(f"not known at {span(unknown, case.names)}")
    return f"; end to end {', '.join(said)}"


def _gain_text(gain: Interval) -> str:
    """``+0.5 % [−0.2 to +1.1]``."""
    value = f"{gain.value * 100:+z.{_digits(gain.low, gain.high)}f} %".replace("-", "−")
    return f"{value} [{_ends(gain.low, gain.high)}]"


def _ends(low: float, high: float) -> str:
    """Fractions in per cent, without the sign: ``−0.2 to +1.1``."""
    digits = _digits(low, high)
    return f"{low * 100:+z.{digits}f} to {high * 100:+z.{digits}f}".replace("-", "−")


def _digits(low: float, high: float) -> int:
    """Decimals of a per cent figure at which neither the interval nor an end of it rounds to nothing."""
    return 1 if high - low >= 0.002 and min(abs(low), abs(high)) >= 0.0005 else 2
