"""The dose chart: time against resident warps, one panel per workload, one line per arm."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from occupancy_probe.records import DoseFigure, DoseVerdict, WorkloadPlan
from occupancy_probe.validate.plots import _plain as plain
from occupancy_probe.validate.plots import _style as style
from occupancy_probe.validate.plots import _svg as svg

COLUMNS = 3
_LINES = [
    ("#010101", "-", "o"),
    ("#050505", "-", "s"),
    ("#060606", "--", "^"),
    ("#070707", "-", "D"),
]
"""Placeholders of :mod:`.plots`, which become the page's colours."""
_RING: dict[str, Any] = {"ls": "", "marker": "o", "ms": 10, "mfc": "none", "mew": 0.8}


def dose_plot(dose: DoseVerdict, heading: str = "", workloads: Sequence[WorkloadPlan] = ()) -> str:
    """SVG; marks are doses here, a ring marks a residency that another target has.

    heading: above the panels, for a chart that stands alone. workloads: their axes are named, too.
    """
    named = list(dict.fromkeys(f.workload for f in dose.figures))
    arms = list(dict.fromkeys(f.arm for f in dose.figures))
    axes = _axes_text(workloads)
    columns = min(COLUMNS, len(named))
    rows = -(-len(named) // COLUMNS)
    with style():
        figure = Figure(figsize=(3.1 * columns, 2.4 * rows + 0.6), layout="constrained")
        for i, workload in enumerate(named):
            ax = figure.add_subplot(rows, columns, i + 1)
            for k, arm in enumerate(arms):
                points = [f for f in dose.figures if (f.arm, f.workload) == (arm, workload)]
                _line(ax, arm, points, *_LINES[k % len(_LINES)])
            ax.set_title(plain("\n".join(filter(None, [workload, axes.get(workload)]))))
            ax.set_xlabel("resident warps on the fullest SM")
            ax.set_ylabel("time per launch (µs)")
            highest = max(f.time_us for f in dose.figures if f.workload == workload)
            ax.set_ylim(0, 1.15 * highest)
            ax.set_xticks(sorted({f.resident_warps for f in dose.figures}))
            ax.xaxis.set_minor_locator(NullLocator())
        handles, labels = figure.axes[0].get_legend_handles_labels()
        if theirs := list(dict.fromkeys(t for f in dose.figures for t in f.emulates)):
            handles.append(Line2D([], [], **_RING, mec=_LINES[0][0]))
            labels.append(f"residency of {', '.join(theirs)} (emulation)")
        figure.legend(handles, labels, loc="outside lower center", ncols=2 * columns)
        if heading:
            figure.suptitle(plain(fill(heading, 44 * columns)), fontsize=9.5)
        return svg(figure, heading or "Time against resident warps")


def _axes_text(workloads: Sequence[WorkloadPlan]) -> dict[str, str]:
    """By workload: the axes in which the study's workloads differ, as ``rows = 4, n = 500``."""
    varying = [
        axis
        for axis in dict.fromkeys(axis for w in workloads for axis in w.axes)
        if len({repr(w.axes.get(axis)) for w in workloads}) > 1
    ]
    texts = {
        w.name: ", ".join(f"{a} = {w.axes[a]}" for a in varying if a in w.axes) for w in workloads
    }
    return {name: fill(text, 44) for name, text in texts.items()}


def _line(
    ax: Axes, arm: str, points: Sequence[DoseFigure], colour: str, dash: str, mark: str
) -> None:
    """One arm; the bar is the interval of the ratio to the baseline, times the baseline's time."""
    if not points:
        return
    points = sorted(points, key=lambda f: f.resident_warps)
    xs, ys = [f.resident_warps for f in points], [f.time_us for f in points]
    lows = [f.time_us * (1 - f.low / f.ratio) for f in points]
    highs = [f.time_us * (f.high / f.ratio - 1) if f.high < 100 else 0.0 for f in points]
    ax.errorbar(xs, ys, yerr=[lows, highs], color=colour, ls=dash, marker=mark, ms=4, lw=1.4, capsize=2, label=plain(arm))  # fmt: skip
    theirs = [f for f in points if f.emulates]
    ax.plot([f.resident_warps for f in theirs], [f.time_us for f in theirs], **_RING, mec=colour)
