"""The report's charts as SVG text: the same records give the same bytes, colours follow the page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from occupancy_probe import gpu
from occupancy_probe.records import DeviceVerdict, Feasibility, Result, WorkloadPlan

Point = tuple[float, float, float]
"""Value, low and high end of its interval."""

ROLES = ("baseline", "best", "projected")
"""Roles that are drawn in a colour of their own; every other arm is thin and grey."""

# Placeholders that become CSS variables with a fallback, so that one drawing serves light and dark.
# The palette is Okabe and Ito's, told apart under the common colour deficiencies.
_INK, _MUTED, _GRID, _PAPER = "#010101", "#020202", "#030303", "#040404"
_BAD = "#080808"
_COLOUR = {"baseline": _INK, "best": "#050505", "projected": "#060606", "floor": "#070707"}
_STYLE: dict[str, tuple[Any, float, str]] = {
    "baseline": ("-", 1.8, "o"),
    "best": ("-", 1.8, "s"),
    "projected": ((0, (4, 1.6)), 1.2, "^"),
}
_CSS = {
    _INK: "var(--ink, #1f2328)",
    _MUTED: "var(--line, #a0a7b0)",
    _GRID: "var(--grid, #e3e6ea)",
    _PAPER: "var(--paper, #ffffff)",
    "#050505": "var(--best, #0072b2)",
    "#060606": "var(--projected, #d55e00)",
    "#070707": "var(--floor, #009e73)",
    _BAD: "var(--bad, #8f2460)",
}


def numeric_axis(workloads: Sequence[WorkloadPlan]) -> str | None:
    """The first axis whose values are numbers and differ between workloads; None without one."""
    for axis in dict.fromkeys(a for w in workloads for a in w.axes):
        values = [w.axes.get(axis) for w in workloads]
        numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
        if numeric and len(set(values)) > 1:
            return axis
    return None


def time_plot(
    workloads: Sequence[WorkloadPlan], device: DeviceVerdict, roles: Mapping[str, str]
) -> str:
    """Time per launch of every arm against the numeric axis, with intervals and the floor.

    roles: arm → one of :data:`ROLES`. Bars are the ratio's interval times the baseline's time.
    """
    base = {r.workload: r.time_us for r in device.results if r.verdict == "baseline"}

    def point(r: Result) -> Point | None:
        if r.time_us is None:
            return None
        time = base.get(r.workload)
        low, high = (time * x if time and x is not None else None for x in (r.low, r.high))
        return _with_interval(r.time_us, low, high)

    def finish(ax: Axes, panel: Sequence[WorkloadPlan], xs: Mapping[str, float]) -> None:
        floors = [(xs[w.name], device.floors.get(w.name, {}).get("floor_us")) for w in panel]
        known = [(x, f) for x, f in floors if f]
        if known:
            ax.plot(
                *zip(*known, strict=True), color=_COLOUR["floor"], lw=1.4, ls=":", label="floor"
            )
        low, high = ax.dataLim.intervaly
        if low > 0 and high / low > 8:
            _log_axis(ax, "y")

    with _style():
        return _curves(workloads, device, roles, point, finish, "time per launch (µs)", "Time")


def ratio_plot(
    workloads: Sequence[WorkloadPlan],
    device: DeviceVerdict,
    roles: Mapping[str, str],
    margin: float,
) -> str:
    """Ratio to the baseline against the numeric axis, with the band that counts as equivalent."""

    def point(r: Result) -> Point | None:
        return None if r.ratio is None else _with_interval(r.ratio, r.low, r.high)

    def finish(ax: Axes, panel: Sequence[WorkloadPlan], xs: Mapping[str, float]) -> None:
        ax.axhspan(1 / (1 + margin), 1 + margin, color=_GRID, lw=0, zorder=0)

    with _style():
        return _curves(workloads, device, roles, point, finish, "time ÷ baseline's time", "Ratio")


def residency_plot(
    arms: Sequence[str],
    feasibility: Mapping[str, Mapping[str, Feasibility]],
    roles: Mapping[str, str],
) -> str:
    """Resident warps per SM of every arm, a panel per target, one block per CTA, limiter named."""
    with _style():
        figure = Figure(figsize=(13, 0.9 + 0.2 * len(arms)), layout="constrained")
        axes = figure.subplots(1, len(feasibility), sharey=True, squeeze=False)[0]
        for ax, (name, records) in zip(axes, feasibility.items(), strict=True):
            _residency_panel(ax, name, arms, records, roles)
        axes[0].set_yticks(range(len(arms)), [_plain(a) for a in arms])
        axes[0].set_ylim(len(arms) - 0.4, -0.6)
        return _svg(figure, "Resident warps per SM, by arm and target")


def _residency_panel(
    ax: Axes,
    name: str,
    arms: Sequence[str],
    records: Mapping[str, Feasibility],
    roles: Mapping[str, str],
) -> None:
    most = gpu.target(name).max_warps_per_sm
    device = gpu.target(name).device
    for y, arm in enumerate(arms):
        found = records.get(arm)
        warps = (found.warps_per_sm or 0) if found and found.verdict == "fits" else 0
        ctas = (found.ctas_per_sm or 0) if found and warps else 0
        each = warps / ctas if ctas else 0
        colour = _COLOUR.get(roles.get(arm, ""), _MUTED)
        for i in range(ctas):
            ax.barh(y, each, left=i * each, height=0.68, color=colour, ec=_PAPER, lw=0.8)
        inside = warps > 0.6 * most
        ax.text(
            warps + most * (-0.012 if inside else 0.012),
            y,
            _plain(_residency_label(found, ctas, each)),
            va="center",
            ha="right" if inside else "left",
            size=7,
            color=_PAPER if inside else _INK if warps else _BAD,
        )
    ax.axvline(most, color=_INK, lw=1.2)
    ax.set_xlim(0, most * 1.02)
    ax.set_xticks(sorted({0, *range(0, most, 8 if most <= 48 else 16), most}))
    ax.set_xlabel(f"resident warps per SM (at most {most})")
    ax.set_title(f"{name}" + (f" · {device}" if device else ""), loc="left", weight="bold")
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)


def _residency_label(found: Feasibility | None, ctas: int, each: float) -> str:
    if found is None:
        return "not compiled"
    if not ctas:
        first = found.reasons[0] if found.reasons else None
        if first and first.required is not None and first.allowed is not None:
            return f"{found.verdict}: {first.limit} {first.required:,} > {first.allowed:,}"
        return f"{found.verdict}: {first.limit if first else 'no reason recorded'}"
    same = f" (= {found.same_code_as})" if found.same_code_as else ""
    return f"{ctas} × {each:.0f} · {', '.join(found.limiter)}{same}"


def _curves(
    workloads: Sequence[WorkloadPlan],
    device: DeviceVerdict,
    roles: Mapping[str, str],
    point: Any,
    finish: Any,
    label: str,
    title: str,
) -> str:
    """Small multiples over the other axes; every arm with a figure is drawn, roles on top."""
    axis = numeric_axis(workloads)
    panels = _panels(workloads, axis)
    rows = -(-len(panels) // 2) if len(panels) > 1 else 1
    columns = min(len(panels), 2)
    figure = Figure(figsize=(6.4, 3.7 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for ax in grid[len(panels) :]:
        ax.set_visible(False)
    results = {(r.arm, r.workload): r for r in device.results}
    arms = list(dict.fromkeys(r.arm for r in device.results))
    for ax, (name, panel) in zip(grid, panels.items(), strict=False):
        xs = {w.name: float(w.axes[axis]) if axis else float(i) for i, w in enumerate(panel)}
        for arm in sorted(arms, key=lambda a: -_rank(roles.get(a))):
            found = [
                (xs[w.name], point(results[arm, w.name])) for w in panel if (arm, w.name) in results
            ]
            _curve(ax, arm, [(x, *p) for x, p in sorted(found) if p is not None], roles.get(arm))
        _x_axis(ax, axis, panel, xs)
        finish(ax, panel, xs)
        ax.set_ylabel(label)
        ax.set_title(_plain(name), loc="left")
    handles, labels = grid[0].get_legend_handles_labels()
    named = sorted(zip(labels, handles, strict=True), key=lambda item: _legend_order(item[0]))
    figure.legend(
        [handle for _, handle in named],
        [label for label, _ in named],
        loc="outside lower left",
        ncols=3,
        handlelength=2.6,
    )
    return _svg(figure, f"{title} on {device.device_name}")


def _curve(
    ax: Axes, arm: str, points: list[tuple[float, float, float, float]], role: str | None
) -> None:
    if not points:
        return
    xs, ys, lows, highs = zip(*points, strict=True)
    if role not in _STYLE:
        ax.plot(xs, ys, color=_MUTED, lw=0.7, zorder=1)
        return
    line, width, marker = _STYLE[role]
    ax.errorbar(
        xs, ys,
        yerr=[[y - lo for y, lo in zip(ys, lows, strict=True)],
              [hi - y for y, hi in zip(ys, highs, strict=True)]],
        color=_COLOUR[role], lw=width, ls=line, marker=marker, ms=3.4, capsize=2.2,
        label=_plain(f"{arm} ({role})" if role != arm else arm), zorder=3 + _rank(role),
    )  # fmt: skip


def _panels(workloads: Sequence[WorkloadPlan], axis: str | None) -> dict[str, list[WorkloadPlan]]:
    """Workloads by the values of the axes other than ``axis``, as far as those vary."""
    varying = [
        a
        for a in dict.fromkeys(a for w in workloads for a in w.axes)
        if axis and a != axis and len({repr(w.axes.get(a)) for w in workloads}) > 1
    ]
    panels: dict[str, list[WorkloadPlan]] = {}
    for w in workloads:
        panels.setdefault(", ".join(f"{a} = {w.axes.get(a)}" for a in varying), []).append(w)
    return panels


def _x_axis(
    ax: Axes, axis: str | None, panel: Sequence[WorkloadPlan], xs: Mapping[str, float]
) -> None:
    values = sorted(set(xs.values()))
    if axis is None:
        ax.set_xticks(values, [_plain(w.name) for w in panel], rotation=30, ha="right")
        ax.set_xlabel("workload")
        return
    if values[0] > 0 and values[-1] / values[0] > 16:
        ax.set_xscale("log", base=2)
    ax.set_xticks(values, [f"{v:g}" for v in values])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(_plain(axis))


def _log_axis(ax: Axes, which: str) -> None:
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def _rank(role: str | None) -> int:
    """Drawing order: highlighted arms last, the baseline on top."""
    return len(ROLES) - ROLES.index(role) if role in ROLES else 0


def _with_interval(value: float, low: float | None, high: float | None) -> Point:
    """Without an interval, or with a boundless one (a single process), the bar has no length."""
    if low is None or high is None or not math.isfinite(high):
        return value, value, value
    return value, min(low, value), max(high, value)


def _legend_order(label: str) -> int:
    """Baseline, best, projected, floor."""
    ends = ("baseline", "(best)", "(projected)", "floor")
    return next((i for i, end in enumerate(ends) if label.endswith(end)), len(ends))


def _plain(text: str) -> str:
    """Names are data: a dollar sign must not start a formula."""
    return text.replace("$", r"\$")


@contextmanager
def _style() -> Iterator[None]:
    """Matplotlib's own defaults whatever the user's are, restored afterwards."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "svg.fonttype": "none", "svg.hashsalt": "occupancy-probe",
                "font.size": 8, "font.sans-serif": ["DejaVu Sans"], "axes.titlesize": 8.5,
                "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": _MUTED,
                "axes.labelcolor": _INK, "text.color": _INK, "xtick.color": _INK, "ytick.color": _INK,
                "axes.grid": True, "grid.color": _GRID, "grid.linewidth": 0.6, "axes.axisbelow": True,
                "legend.frameon": False, "figure.facecolor": "none", "axes.facecolor": "none",
            }
        )  # fmt: skip
        yield


def _svg(figure: Figure, title: str) -> str:
    """One inline ``<svg>`` element: no header, no metadata, no ids of groups, colours from CSS."""
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    buffer = io.StringIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    opening, rest = text.split(">", 1)
    width, height = re.findall(r'(?:width|height)="([\d.]+)pt"', opening)
    for placeholder, colour in _CSS.items():
        rest = rest.replace(placeholder, colour)
    escaped = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    head = (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escaped}"'
        ' xmlns="http://www.w3.org/2000/svg">'
    )
    return head + rest.replace("xlink:href", "href").strip()
