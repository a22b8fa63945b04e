"""The charts beside the plan document: files that read alone, the same bytes on every machine."""

from __future__ import annotations

import re

from occupancy_probe.records import Plan, Verdict
from occupancy_probe.validate.dose_plot import dose_plot
from occupancy_probe.validate.step_plot import step_plot

MARGIN = 8
"""White around a chart, in points."""


def document_charts(plan: Plan, verdict: Verdict) -> dict[str, str]:
    """SVG files by the names that the document links: ``dose-<device>.svg``, ``step-<device>.svg``.

    Only devices with such figures have one; a study without the section has none.
    """
    charts = {}
    for device in verdict.devices:
        name = device.device_name
        if plan.sections.get("dose") and device.dose and device.dose.figures:
            title = (
                f"{name}: per arm one binary, its CTAs per SM capped by padded shared memory;"
                " bars: interval over processes"
            )
            charts[f"dose-{device.device}.svg"] = dose_plot(device.dose, title, plan.workloads)
        if plan.sections.get("throughput") and device.system and device.system.model:
            model = device.system.model
            title = f"{name}: step time of {model.series}"
            charts[f"step-{device.device}.svg"] = step_plot(model, title)
    return {file: standalone(svg) for file, svg in charts.items()}


def standalone(svg: str) -> str:
    """An inline ``<svg>`` of :mod:`.plots` as a file: light colours on paper, a size of its own.

    A file has no page whose variables colour it. Coordinates keep two decimals, a hundredth of a
    point, and ids are counted, so that the last bits of a sum never show in version control.
    """
    svg = re.sub(r"var\(--[a-z]+, (#[0-9a-f]{6})\)", r"\1", svg)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d{3,}", _rounded, tag[0]), svg)
    for i, name in enumerate(dict.fromkeys(re.findall(r' id="([^"]+)"', svg))):
        svg = svg.replace(f'"{name}"', f'"i{i}"').replace(f"#{name}", f"#i{i}")
    svg = svg.replace(" href=", " xlink:href=")  # not every viewer knows SVG 2
    opening, rest = svg.split(">", 1)
    box = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', opening)[0]
    width, height = (f"{float(side) + 2 * MARGIN:g}" for side in box)
    label = re.findall(r'aria-label="([^"]*)"', opening)[0]
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<svg width="{width}" height="{height}" viewBox="-{MARGIN} -{MARGIN} {width} {height}"'
        f' role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg"'
        ' xmlns:xlink="http://www.w3.org/1999/xlink">\n'
        f'<rect x="-{MARGIN}" y="-{MARGIN}" width="{width}" height="{height}" fill="#ffffff"/>'
        f"{rest}\n"
    )


def _rounded(number: re.Match[str]) -> str:
    return f"{round(float(number[0]), 2) + 0.0:g}"
