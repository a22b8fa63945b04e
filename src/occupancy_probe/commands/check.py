"""correctness/<device>/<arm>.json, and correctness/<device>.json over them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from occupancy_probe.commands.shared import surviving, write_index
from occupancy_probe.progress import progress
from occupancy_probe.study import NULL, load_study

HELP = "every arm against float64, on the GPU here or in the interpreter"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--device", required=True, help="the GPU's name here, or 'interpreter'")


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.execute.correctness import INTERPRETER, check_arms
    from occupancy_probe.execute.device import held, require_gpu, run_versions

    study = load_study(options.study)
    folder = options.results / "correctness"
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
            gpu = require_gpu()
            names = surviving(options.results, gpu.target, study)
            with held(gpu):
                found = check_arms(
                    study, names, folder / gpu.slug, gpu.slug, gpu.name, run_versions(gpu), report
                )
    write_index(folder / f"{options.device}.json", {n: r.verdict for n, r in found.items()})
    wrong = [n for n, r in found.items() if r.verdict != "right"]
    print(
        f"{study.name}: {options.device}: {len(found) - len(wrong)} right, not right: {wrong or 'none'}"
    )
