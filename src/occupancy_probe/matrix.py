"""Reading a target's feasibility records: what the report, the document and the summary say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from occupancy_probe.gpu import device
from occupancy_probe.records import Feasibility, Neighbour
from occupancy_probe.templating import config_text, percent, scaled, size

Records = Mapping[str, Feasibility]
"""One target's records by arm."""


def target_findings(records: Records, arms: Sequence[str]) -> dict[str, Any]:
    """What a target's part of the report says beyond the figures, for the arms in their order.

    unsupported: the one reason why none of the arms can run there, or None. changed: (arm, words)
    of every arm that differs from the baseline or is the same code as another. warnings: (arm,
    words). neighbours: (arm, words) of every rejected arm. coverage: see :func:`coverage_table`.
    amd: whether the registers are AMD's. compilers: every set of versions, ``triton 3.7.1, ptxas
    12.8``.
    """
    known = {name: records[name] for name in arms if name in records}
    by_config = {config_text(r.config): name for name, r in reversed(known.items())}
    return {
        "unsupported": unsupported_because(known),
        "changed": [(n, "; ".join(r.changed)) for n, r in known.items() if r.changed],
        "warnings": [(n, said) for n, r in known.items() for said in r.warnings],
        "neighbours": [
            (n, neighbour_words(r.neighbours, by_config)) for n, r in known.items() if r.neighbours
        ],
        "coverage": coverage_table(known),
        "compilers": list(dict.fromkeys(_words(r.versions) for r in known.values() if r.versions)),
        "amd": any(r.vgprs is not None for r in known.values()),
    }


def _words(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def unsupported_because(records: Records) -> str | None:
    """The one reason why a target supports none of the arms; None where that is not so."""
    if not records or any(r.verdict != "unsupported" for r in records.values()):
        return None
    common = set.intersection(*({x.text for x in r.reasons} for r in records.values()))
    return sorted(common)[0] if common else None


def neighbour_words(tried: Sequence[Neighbour], by_config: Mapping[str, str]) -> str:
    """The neighbours that fit, with their bytes and, where they are arms themselves, their names."""
    fitting = []
    for n in tried:
        if n.verdict == "fits":
            parts = [size(n.shared_bytes), f"{n.registers} registers", f"{n.ctas_per_sm} CTAs/SM"]
            arm = by_config.get(config_text(n.config))
            also = f", arm {arm}" if arm else ""
            fitting.append(f"{n.change} ({', '.join(parts)}{also})")
    if fitting:
        return "fits with " + "; or ".join(fitting)
    return f"none of {len(tried)} tried fits: " + ", ".join(n.change for n in tried)


def coverage_table(records: Records) -> dict[str, Any] | None:
    """Waves and bytes in flight on the target's device: rows of arms that are alike, by workload.

    None where no arm fits or no device is named. ``idle``: workloads whose grid has at most one CTA
    per SM. ``limited``: other workloads where the grid caps the residency of every fitting arm.
    """
    found = {n: r for n, r in records.items() if r.coverage}
    if not found:
        return None
    first = next(iter(found.values())).coverage
    rows: dict[str, dict[str, Any]] = {}
    for name, record in found.items():
        cells = [
            f"{c.waves:.2f} waves, {percent(c.fill, 0)} full"
            + (f"; hides {c.covered_latency_ns:,.0f} ns" if c.covered_latency_ns else "")
            for c in record.coverage
        ]
        in_flight = record.code.in_flight_bytes if record.code else None
        row = {"ctas": record.ctas_per_sm, "in_flight": scaled(in_flight, "B"), "cells": cells}
        rows.setdefault(repr(row), {**row, "arms": []})["arms"].append(name)
    by_workload = {
        c.workload: [x for r in found.values() for x in r.coverage if x.workload == c.workload]
        for c in first
    }
    sms = device(first[0].device).sm_count
    alone = [w for w, all_ in by_workload.items() if all(x.ctas <= sms for x in all_)]
    capped = [w for w, all_ in by_workload.items() if all(x.grid_limited for x in all_)]
    return {
        "device": first[0].device,
        "columns": [(c.workload, c.ctas) for c in first],
        "rows": list(rows.values()),
        "idle": alone,
        "limited": [w for w in capped if w not in alone],
    }
