"""Step time against concurrency: a fixed overhead and a marginal cost, by one of two models.

    line      t(C) = a + b·C
    experts   t(C) = a + g·E(C),   E(C) = 256·(1 - (250/256)^C)

E is the expected number of distinct experts that C tokens touch when each is routed to 6 of 256: the
weights that a step must read. Coefficients come from least squares in ms with a, b, g >= 0. The model
that is believed is the one with the smaller leave-one-out error. Intervals: bootstrap of the
leverage-adjusted residuals, so they hold lack of fit as well as noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import optimize, stats

from occupancy_probe.records import FlaggedPoint, Interval, ModelFit, ThroughputModel
from occupancy_probe.study.series import Series
from occupancy_probe.templating import plain

ROUTED, EXPERTS = 6, 256
"""Experts per token and in all, of the models that the experts' form speaks of."""

RESAMPLES = 2000
LEVEL = 0.05
"""Of the outlier test, after Bonferroni's correction over the points."""
NEGLIGIBLE = 0.05
"""A point this near to what the others predict is no outlier."""

Name = Literal["line", "experts"]
Vector = np.ndarray


def active_experts(concurrency: Vector | float) -> Vector:
    """Expected distinct experts that ``concurrency`` tokens touch."""
    share = 1 - ROUTED / EXPERTS
    return EXPERTS * (1 - share ** np.asarray(concurrency, float))


BASIS: dict[Name, Callable[[Vector], Vector]] = {
    "line": lambda c: np.asarray(c, float),
    "experts": active_experts,
}


@dataclass(frozen=True)
class Fitted:
    """Coefficients of one model: overhead a in ms, and ms per unit of the basis."""

    name: Name
    overhead: float
    slope: float

    def at(self, concurrency: Vector | float) -> Vector:
        """Step time in ms."""
        basis = BASIS[self.name](np.asarray(concurrency, float))
        return self.overhead + self.slope * basis


def fit(name: Name, concurrency: Vector, step_ms: Vector) -> Fitted:
    """Non-negative least squares."""
    basis = BASIS[name](concurrency)
    (overhead, slope), _ = optimize.nnls(np.column_stack([np.ones_like(basis), basis]), step_ms)
    return Fitted(name, float(overhead), float(slope))


def held_out_errors(name: Name, concurrency: Vector, step_ms: Vector) -> Vector:
    """Relative error of each point as predicted from all the others."""
    errors = []
    for i, (c, t) in enumerate(zip(concurrency, step_ms, strict=True)):
        others = np.arange(len(concurrency)) != i
        errors.append(float(fit(name, concurrency[others], step_ms[others]).at(c)) / t - 1)
    return np.array(errors)


def outlier(concurrency: Vector, step_ms: Vector) -> int | None:
    """Index of the point that the model which explains the others best cannot explain; else None.

    Test: externally studentised residual against t, corrected over the points, and at least
    ``NEGLIGIBLE`` off, because a series without noise makes any difference significant.
    """
    n = len(concurrency)
    if n < 5:
        return None
    p = np.ones(n)
    for i in range(n):
        others = np.arange(n) != i
        c, t = concurrency[others], step_ms[others]
        name = min(BASIS, key=lambda m: float(np.sum(held_out_errors(m, c, t) ** 2)))
        expected = float(fit(name, c, t).at(concurrency[i]))
        if abs(step_ms[i] / expected - 1) >= NEGLIGIBLE:
            p[i] = n * _deleted_p(name, concurrency, step_ms, i)
    least = int(np.argmin(p))
    return least if p[least] < LEVEL else None


def _deleted_p(name: Name, concurrency: Vector, step_ms: Vector, i: int) -> float:
    """Two-sided p of point ``i`` belonging to the model that is fitted without it."""
    design = np.column_stack([np.ones_like(concurrency), BASIS[name](concurrency)])
    others = np.arange(len(concurrency)) != i
    coefficients, _ = optimize.nnls(design[others], step_ms[others])
    residual = step_ms - design @ coefficients
    freedom = int(others.sum()) - 2
    variance = float(residual[others] @ residual[others]) / freedom
    spread = design[i] @ np.linalg.pinv(design[others].T @ design[others]) @ design[i]
    error = math.sqrt(max(variance, 1e-30) * (1 + spread))
    return 2 * float(stats.t.sf(abs(residual[i]) / error, freedom))


def describe(series: Series, flag: bool = True) -> ThroughputModel:
    """Both models of a series, the chosen one, and what was left out of the fit and why.

    flag: look for outliers. Not where every point is a median over replicates: what does not fit
    then speaks against the model.
    """
    c, t = np.array(series.concurrency), np.array(series.step_ms)
    kept = np.ones(len(c), bool)
    while (
        flag
        and kept.sum() > max(4, len(c) * 2 // 3)
        and (i := outlier(c[kept], t[kept])) is not None
    ):
        kept[np.flatnonzero(kept)[i]] = False
    fits = [_model_fit(name, c[kept], t[kept]) for name in BASIS]
    chosen = min(fits, key=lambda f: f.held_out_error)
    best = Fitted(chosen.name, chosen.overhead_ms.value, chosen.slope_ms.value)
    return ThroughputModel(
        series=series.name,
        source=series.source,
        points=list(zip(series.concurrency, series.step_ms, strict=True)),
        flagged=[_flag(series, int(i), kept, best) for i in np.flatnonzero(~kept)],
        fits=fits,
        chosen=chosen.name,
    )


def predict(model: ThroughputModel, concurrency: float) -> float:
    """Step time in ms by the chosen model."""
    found = next(f for f in model.fits if f.name == model.chosen)
    return float(Fitted(found.name, found.overhead_ms.value, found.slope_ms.value).at(concurrency))


def _model_fit(name: Name, c: Vector, t: Vector) -> ModelFit:
    of = fit(name, c, t)
    residual = of.at(c) / t - 1
    held_out = held_out_errors(name, c, t)
    a, b = _bootstrap(of, c, t)
    marginal = b * (_marginal(name, float(c.max())))
    now = of.slope * _marginal(name, float(c.max()))
    line = name == "line"
    with np.errstate(divide="ignore", invalid="ignore"):
        return ModelFit(
            name=name,
            overhead_ms=_interval(of.overhead, a),
            slope_ms=_interval(of.slope, b),
            marginal_ms=_interval(now, marginal),
            largest_error=float(np.abs(residual).max()),
            held_out_error=float(np.sqrt(np.mean(held_out**2))),
            held_out_largest=float(np.abs(held_out).max()),
            saturation_tokens_per_s=_interval(_over(1e3, of.slope), 1e3 / b) if line else None,
            half_way_concurrency=_interval(_over(of.overhead, of.slope), a / b) if line else None,
        )


def _marginal(name: Name, c: float) -> float:
    """Derivative of the basis at ``c``."""
    share = 1 - ROUTED / EXPERTS
    return 1.0 if name == "line" else -EXPERTS * math.log(share) * share**c


def _bootstrap(of: Fitted, c: Vector, t: Vector) -> tuple[Vector, Vector]:
    """Coefficients of refits to resampled residuals; same series, same numbers."""
    design = np.column_stack([np.ones_like(c), BASIS[of.name](c)])
    leverage = np.diag(design @ np.linalg.pinv(design))
    residual = (t - of.at(c)) / np.sqrt(np.maximum(1 - leverage, 1e-9))
    residual -= residual.mean()
    draws = np.random.default_rng(0).choice(residual, (RESAMPLES, len(c)))
    refits = [fit(of.name, c, of.at(c) + d) for d in draws]
    return np.array([f.overhead for f in refits]), np.array([f.slope for f in refits])


def _interval(value: float, draws: Vector) -> Interval:
    """95 % percentile interval; draws without a value (a slope of 0) count as infinite."""
    low, high = np.quantile(np.nan_to_num(draws, nan=math.inf), [0.025, 0.975], method="nearest")
    return Interval(value=value, low=min(float(low), value), high=max(float(high), value))


def _over(a: float, b: float) -> float:
    return a / b if b > 0 else math.inf


def _flag(series: Series, i: int, kept: Vector, best: Fitted) -> FlaggedPoint:
    """What a point that was left out looks like, and whether requests queued there."""
    c, t = series.concurrency[i], series.step_ms[i]
    expected = float(best.at(c))
    reason = f"{t:g} ms where the other points predict {plain(expected)} ms"
    if series.tokens_per_s is not None:
        lower = [j for j in np.flatnonzero(kept) if series.concurrency[j] < c]
        if lower:
            j = max(lower, key=lambda k: series.concurrency[k])
            before, here = series.tokens_per_s[j], series.tokens_per_s[i]
            if here < before:
                reason += (
                    f"; output fell from {before:g} to {here:g} tokens/s while concurrency rose from"
                    f" {series.concurrency[j]:g} to {c:g}: queueing, not the cost of a step"
                )
    return FlaggedPoint(concurrency=c, step_ms=t, expected_ms=expected, reason=reason)
