"""correctness/<device>/<arm>.json, and correctness/<device>.json over them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.commands.shared import feasibility_only, surviving, write_index
from occupancy_probe.progress import progress
from occupancy_probe.study import NULL, load_study

HELP = "every arm against float64, on the GPU here or in the interpreter"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--device", required=True, help="the GPU's name here, or 'interpreter'")


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.execute.correctness import INTERPRETER, check_arms, largest_workload
    from occupancy_probe.execute.device import GpuTurn, assigned, run_versions, same_model

    study = load_study(options.study)
    folder = options.results / "correctness"
    if feasibility_only(study, folder / f"{options.device}.json"):
        return
    held_s = 0.0
    with progress(f"{study.name}: correctness on {options.device}") as report:
        if options.device == INTERPRETER:
            names = [a.name for a in study.arms if a.name != NULL]
            found = check_arms(
                study,
                names,
                folder / INTERPRETER,
                INTERPRETER,
                "Triton's interpreter",
                run_versions(None),
                report,
            )
        else:
            gpus = same_model()  # first of all: without one there is nothing to read either
            trace = records.read_record(options.results / "trace.json", records.Trace)
            traffic = {w: int(t["bytes"]) for w, t in trace.traffic.items()}
            with assigned(gpus) as gpu:
                turn = GpuTurn(gpu)
                found = check_arms(
                    study,
                    surviving(options.results, gpu.target, study),
                    folder / gpu.slug,
                    gpu.slug,
                    gpu.name,
                    run_versions(gpu),
                    report,
                    turn,
                    largest_workload(traffic),
                )
            held_s = turn.held_s
    write_index(folder / f"{options.device}.json", {n: r.verdict for n, r in found.items()})
    wrong = [n for n, r in found.items() if r.verdict != "right"]
    print(
        f"{study.name}: {options.device}: {len(found) - len(wrong)} right, not right: {', '.join(wrong) or 'none'}"
        + (f", GPU held {held_s:.1f} s" if held_s else "")
    )
