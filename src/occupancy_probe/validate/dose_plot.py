"""The dose chart: time against resident warps, one panel per workload, one line per arm."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from occupancy_probe.records import DoseFigure, DoseVerdict
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


def dose_plot(dose: DoseVerdict) -> str:
    """SVG; filled marks are doses here, a ring marks a residency that another target has."""
    workloads = list(dict.fromkeys(f.workload for f in dose.figures))
    arms = list(dict.fromkeys(f.arm for f in dose.figures))
    rows = -(-len(workloads) // COLUMNS)
    with style():
        figure = Figure(figsize=(3.1 * min(COLUMNS, len(workloads)), 2.3 * rows + 0.5))
        for i, workload in enumerate(workloads):
            ax = figure.add_subplot(rows, min(COLUMNS, len(workloads)), i + 1)
            for k, arm in enumerate(arms):
                points = [f for f in dose.figures if (f.arm, f.workload) == (arm, workload)]
                _line(ax, arm, points, *_LINES[k % len(_LINES)])
            ax.set_title(workload)
            ax.set_xlabel("resident warps on the fullest SM")
            ax.set_ylabel("µs per launch")
            highest = max(f.time_us for f in dose.figures if f.workload == workload)
            ax.set_ylim(0, 1.15 * highest)
            ax.set_xticks(sorted({f.resident_warps for f in dose.figures}))
            ax.xaxis.set_minor_locator(NullLocator())
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", ncols=min(4, len(labels)))
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / (2.3 * rows + 0.5)))
        return svg(figure, "Time against resident warps")


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
    name = arm.replace("$", r"\$")
    ax.errorbar(xs, ys, yerr=[lows, highs], color=colour, ls=dash, marker=mark, ms=4, lw=1.4, capsize=2, label=name)  # fmt: skip
    theirs = [f for f in points if f.emulates]
    ax.plot(
        [f.resident_warps for f in theirs], [f.time_us for f in theirs], ls="", marker="o", ms=10,
        mfc="none", mec=colour, mew=0.8,
    )  # fmt: skip
