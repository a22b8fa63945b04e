"""results/calibration/<device>.json: error rate and power of the harness on the GPU here."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from occupancy_probe import records
from occupancy_probe.progress import progress

HELP = "measure what the harness claims and sees on the GPU here"
STUDY = False

ALPHA = 0.05


def add_arguments(parser: ArgumentParser) -> None:
    """Where to write, and how much."""
    parser.add_argument("--results", type=Path, default=Path("results/calibration"))
    parser.add_argument("--kernels", type=Path, default=Path("kernels"))
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=16)


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.execute.calibrate import calibrate
    from occupancy_probe.execute.device import GpuTurn, assigned, run_versions, same_model
    from occupancy_probe.validate import calibration as c

    started = datetime.now(UTC).isoformat(timespec="seconds")
    names = (c.A, c.NULL_TWIN, c.TWIN, c.ONE, c.HALF)
    with assigned(same_model()) as gpu, progress(f"calibrate on {gpu.name}") as report:
        turn = GpuTurn(gpu)
        raw = calibrate(
            (options.kernels / "calibration").resolve(),
            names,
            turn,
            options.trials,
            options.processes,
            options.blocks,
            progress=report,
        )
    trials = [
        c.Trial(
            [records.Replicate.model_validate(r) for r in t["replicates"]],
            t["interleaved"],
            t["sequential"],
        )
        for t in raw
    ]
    samples = options.results / f"{gpu.slug}-samples.json"
    lines = [
        json.dumps(
            {
                "replicates": [r.arms for r in t.replicates],
                "interleaved": t.interleaved,
                "sequential": t.sequential,
            }
        )
        for t in trials
    ]
    records.write_text(samples, "[\n" + ",\n".join(lines) + "\n]\n")
    record = records.Calibration(
        study="calibration",
        versions=run_versions(gpu),
        device=gpu.slug,
        device_name=gpu.name,
        device_uuid=gpu.uuid,
        processes=options.processes,
        blocks=options.blocks,
        alpha=ALPHA,
        gpu_seconds_per_trial=round(fmean(t["seconds"] for t in raw), 4),
        samples_file=samples.name,
        started_at=started,
        **c.figures(trials, ALPHA),
    )
    records.write_record(options.results / f"{gpu.slug}.json", record)
    print(c.line(record))
    print(
        f"  {record.gpu_seconds_per_trial:.2f} s of GPU per trial, held {turn.held_s:.0f} s in all;"
        f" by p alone {record.claimed_by_p_alone} claims"
    )
