"""Step time against concurrency, with both models and what was not fitted, as SVG."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from occupancy_probe.records import ThroughputModel
from occupancy_probe.validate.plots import _BAD, _COLOUR, _MUTED, _plain, _style, _svg
from occupancy_probe.validate.throughput import Fitted

_FORMULAS = {"line": "a + b·C", "experts": "a + g·E(C)"}


def step_plot(model: ThroughputModel, heading: str = "") -> str:
    """The chosen model is drawn through, the other one dashed; flagged points are crosses.

    heading: above the axes, for a chart that stands alone.
    """
    with _style():
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        ax = figure.subplots()
        at = np.linspace(0, max(c for c, _ in model.points) * 1.04, 200)
        for f in model.fits:
            curve = Fitted(f.name, f.overhead_ms.value, f.slope_ms.value).at(at)
            chosen = f.name == model.chosen
            label = f"{f.name}: {_FORMULAS[f.name]}, held-out error {f.held_out_error * 100:.1f} %"
            colour = _COLOUR["best"] if chosen else _MUTED
            style = "-" if chosen else (0, (4, 1.6))
            ax.plot(at, curve, color=colour, ls=style, lw=1.8 if chosen else 1.2, label=label)
        off = {p.concurrency for p in model.flagged}
        kept = [(c, t) for c, t in model.points if c not in off]
        ax.plot(*zip(*kept, strict=True), "o", color=_COLOUR["baseline"], ms=5, label="measured")
        for p in model.flagged:
            ax.plot([p.concurrency], [p.step_ms], "x", color=_BAD, ms=8, mew=2, label="not fitted")
        ax.set_xlabel("requests in flight, C")
        ax.set_ylabel("time of one step (ms)")
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        if heading:
            ax.set_title(_plain(heading))
        ax.legend(frameon=False, loc="lower right")
        return _svg(figure, _plain(f"Step time of {model.series}"))
