"""What the autotuner's key sees of the launches a study makes, and what it is blind to."""

from __future__ import annotations

from typing import Any

from occupancy_probe.records import Audit, Bucket, Call, Trace
from occupancy_probe.study import BASELINE, Study


def audit_key(study: Study, trace: Trace) -> Audit:
    """Bucket the baseline's launches by the key, on the study's first target.

    A kernel without an autotuner gets an audit with no buckets that says so.
    """
    head: dict[str, Any] = {"study": study.name, "depends": {"launch": study.launch_digest}}
    if trace.autotune is None:
        return Audit(
            **head,
            key=[],
            configs=[],
            dead_names=[],
            buckets=[],
            blind_to=[],
            findings=["no autotuner around the kernel: the launch decides the config"],
        )
    key, configs = trace.autotune["key"], trace.autotune["configs"]
    calls = _baseline_calls(study, trace)
    arguments = {
        n for c in calls.values() for n in trace.specializations[c.specialization].signature
    }
    dead = [name for name in key if name not in arguments]
    grouped: dict[str, list[str]] = {}
    keys: dict[str, dict[str, int | float | str | None]] = {}
    for workload, call in calls.items():
        seen = {name: call.scalars[name] for name in key if name in call.scalars}
        identity = repr((seen, sorted(call.dtypes.items())))
        grouped.setdefault(identity, []).append(workload)
        keys[identity] = seen
    blind = sorted({n for names in grouped.values() for n in _varying([calls[w] for w in names])})
    buckets = [
        Bucket(key=keys[i], workloads=names, grids=[calls[w].grid for w in names])
        for i, names in grouped.items()
    ]
    return Audit(
        **head,
        key=key,
        configs=configs,
        dead_names=dead,
        buckets=buckets,
        blind_to=blind,
        findings=_findings(key, dead, buckets, blind, len(configs)),
    )


def _baseline_calls(study: Study, trace: Trace) -> dict[str, Call]:
    """The studied kernel's first call per workload."""
    function, target = study.file.kernel.function, study.file.targets[0]
    found: dict[str, Call] = {}
    for launch in trace.launches:
        if launch.arm == BASELINE and launch.target == target:
            for call in launch.calls:
                if trace.specializations[call.specialization].kernel == function:
                    found.setdefault(launch.workload, call)
    return found


def _varying(calls: list[Call]) -> list[str]:
    """Scalar arguments that differ between calls of one bucket."""
    first = calls[0].scalars
    return [n for n in first if any(c.scalars.get(n) != first[n] for c in calls)]


def _findings(
    key: list[str], dead: list[str], buckets: list[Bucket], blind: list[str], configs: int
) -> list[str]:
    found = [
        f"{configs} configs × {len(buckets)} buckets = {configs * len(buckets)} tuning launches"
    ]
    for bucket in buckets:
        distinct = {tuple(g) for g in bucket.grids}
        if len(distinct) > 1:
            names = bucket.workloads
            found.append(
                f"key {key} puts {', '.join(names)} into one bucket although their grids differ"
                f" ({min(bucket.grids)} … {max(bucket.grids)}): what wins at the first is used for all"
            )
    if blind:
        found.append(f"arguments that vary inside a bucket: {', '.join(blind)}")
    if dead:
        found.append(
            f"key names that are no argument: {', '.join(dead)}; ignored up to Triton 3.8, ValueError"
            " from 3.9"
        )
    if configs > 1:
        found.append(
            "the first launch of a bucket tunes: inside CUDA-graph capture it fails, so each bucket"
            " must be launched once before capture"
        )
    return found
