"""Measurements in the formats of other tools, raw samples included.

T4: Kernel Tuner's results format 1.0.0, one file per workload; times in ms, configurations with the
baseline's and every arm's parameters. NVBench: JSON 1.0.0 with its binary side file of float32
samples, one file per arm, so that `nvbench_compare baseline.json arm.json` compares two of them. Its
times are those of graph replays, taken interleaved by this tool; NVBench itself measured nothing.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from occupancy_probe import gpu
from occupancy_probe.records import Correctness, Feasibility, Measurement, Plan, Result
from occupancy_probe.study import BASELINE, NULL

T4_VERSION = NVBENCH_JSON_VERSION = "1.0.0"


def t4_results(
    plan: Plan,
    measurement: Measurement,
    matrix: Mapping[str, Feasibility],
    correctness: Mapping[str, Correctness],
) -> dict[str, Any]:
    """Every arm of the plan on one workload; what could not run says why in ``invalidity``."""
    results = []
    for arm in plan.arms:
        if arm.name == NULL:
            continue
        samples = [us / 1e3 for us in _samples(measurement, arm.name)]
        fits, right = matrix.get(arm.name), correctness.get(arm.name)
        invalidity = _invalidity(fits, right, arm.name in measurement.disqualified)
        entry: dict[str, Any] = {
            "timestamp": measurement.started_at,
            "configuration": dict(arm.config),
            "times": {
                "compilation_time": fits.compile_seconds * 1e3 if fits else 0.0,
                "runtimes": samples,
            },
            "invalidity": invalidity,
            "correctness": float(right is not None and right.verdict == "right"),
            "objectives": ["time"],
            "measurements": [],
        }
        if samples:
            median = {"name": "time", "value": float(np.median(samples)), "unit": "ms"}
            entry["measurements"] = [median]
        if samples or invalidity != "correct":
            results.append(entry)
    return {
        "schema_version": T4_VERSION,
        "results": results,
        "metadata": {"timeunit": "milliseconds", "workload": measurement.workload},
    }


def _invalidity(fits: Feasibility | None, right: Correctness | None, crashed: bool) -> str:
    if fits is not None and fits.verdict != "fits":
        limits = {r.limit for r in fits.reasons}
        return "compile" if limits & {"compile", "dtype"} else "constraints"
    if right is not None and right.verdict != "right":
        kinds = {"wrong": "correctness", "error": "runtime", "no answer": "timeout"}
        return kinds[right.verdict]
    return "runtime" if crashed else "correct"


def write_nvbench(
    folder: Path, plan: Plan, arm: str, measurements: Mapping[str, Measurement]
) -> Path | None:
    """``<arm>.json`` and its ``<arm>.json-bin/`` of samples in seconds; None without samples."""
    first = next(iter(measurements.values()), None)
    timed = {w: s for w, m in measurements.items() if (s := _samples(m, arm))}
    if first is None or not timed:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    binaries = folder / f"{arm}.json-bin"
    binaries.mkdir(exist_ok=True)
    states = []
    for i, (workload, samples) in enumerate(timed.items()):
        seconds = np.asarray(samples) / 1e6
        seconds.astype("<f4").tofile(binaries / f"{i}.bin")
        state = _state(workload, seconds, f"{binaries.name}/{i}.bin")
        state["summaries"] += _clock(measurements[workload])
        states.append(state)
    axes = {"name": "workload", "type": "string", "flags": ""}
    values = [{"input_string": w, "description": "", "is_active": True, "value": w} for w in timed]
    benchmark = {
        "name": plan.sections["kernel"]["function"],
        "index": 0,
        "devices": [0],
        "axes": [{**axes, "values": values}],
        "states": states,
    }
    content = {
        "meta": {
            "argv": ["occupancy-probe", "paste", plan.study, arm],
            "version": {"json": _version(NVBENCH_JSON_VERSION)},
        },
        "devices": [_device(first)],
        "benchmarks": [benchmark],
    }
    path = folder / f"{arm}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def csv_text(plan: Plan, results: Sequence[Result], measurements: Mapping[str, Measurement]) -> str:
    """One line per arm, workload, process, allocation and block, with the arm's verdict there."""
    verdicts = {(r.arm, r.workload): r.verdict for r in results}
    configs = {a.name: a.config for a in plan.arms}
    keys = list(dict.fromkeys(k for c in configs.values() for k in c))
    axes = {w.name: w.axes for w in plan.workloads}
    names = list(dict.fromkeys(k for a in axes.values() for k in a))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head = [
        "workload",
        *names,
        "arm",
        *keys,
        "process",
        "allocation",
        "block",
        "time_us",
        "verdict",
    ]
    writer.writerow(head)
    for workload, measurement in measurements.items():
        for replicate in measurement.replicates:
            for arm, samples in replicate.arms.items():
                for block, time in enumerate(samples):
                    point = [axes[workload].get(n, "") for n in names]
                    config = [configs.get(arm, configs[BASELINE]).get(k, "") for k in keys]
                    place = [replicate.process, replicate.allocation, block, time]
                    judged = verdicts.get((arm, workload), "")
                    writer.writerow([workload, *point, arm, *config, *place, judged])
    return stream.getvalue()


def _samples(measurement: Measurement, arm: str) -> list[float]:
    """µs per launch, in the order in which they were taken."""
    return [us for r in measurement.replicates for us in r.arms.get(arm, [])]


def _clock(measurement: Measurement) -> list[dict[str, Any]]:
    """SM clock in Hz over the replicates, which all arms shared; empty where it was not read."""
    found = [r.clocks.sm_mhz_median * 1e6 for r in measurement.replicates if r.clocks]
    if not found:
        return []
    return [_summary("nv/cold/sm_clock_rate/mean", "float64", float(np.mean(found)), "frequency")]


def _state(workload: str, seconds: np.ndarray, binary: str) -> dict[str, Any]:
    q1, median, q3 = (float(v) for v in np.quantile(seconds, [0.25, 0.5, 0.75]))
    mean, deviation = float(seconds.mean()), float(seconds.std(ddof=1)) if len(seconds) > 1 else 0.0
    duration = {
        "min": float(seconds.min()),
        "max": float(seconds.max()),
        "mean": mean,
        "stdev/absolute": deviation,
        "q1": q1,
        "median": median,
        "q3": q3,
        "iqr/absolute": q3 - q1,
    }
    relative = {"stdev/relative": deviation / mean, "iqr/relative": (q3 - q1) / median}
    summaries = [_summary("nv/cold/sample_size", "int64", len(seconds), "sample_size")]
    for group, hint in ((duration, "duration"), (relative, "percentage")):
        summaries += [
            _summary(f"nv/cold/time/gpu/{k}", "float64", v, hint) for k, v in group.items()
        ]
    raw = _summary("nv/json/bin:nv/cold/sample_times", "int64", len(seconds), "file/sample_times")
    raw["data"][0]["name"] = "size"
    raw["data"].insert(0, {"name": "filename", "type": "string", "value": binary})
    return {
        "name": f"Device=0 workload={workload}",
        "device": 0,
        "type_config_index": 0,
        "axis_values": [{"name": "workload", "type": "string", "value": workload}],
        "summaries": [*summaries, raw],
        "is_skipped": False,
    }


def _summary(tag: str, kind: str, value: float, hint: str) -> dict[str, Any]:
    """NVBench writes numbers as strings, so that 64 bits survive every JSON reader."""
    data = [{"name": "value", "type": kind, "value": str(value)}]
    return {"tag": tag, "name": tag.rsplit("/", 1)[-1], "hint": hint, "data": data}


def _device(measurement: Measurement) -> dict[str, Any]:
    known = gpu.device_of_nvml_name(measurement.device_name)
    device: dict[str, Any] = {"id": 0, "name": measurement.device_name}
    if known:
        device |= {
            "number_of_sms": known.sm_count,
            "global_memory_bus_bandwidth": int(known.bandwidth_gb_s * 1e9),
        }
    return device


def _version(text: str) -> dict[str, Any]:
    numbers = dict(zip(("major", "minor", "patch"), map(int, text.split(".")), strict=True))
    return {**numbers, "string": text}
