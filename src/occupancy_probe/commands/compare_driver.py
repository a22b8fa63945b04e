"""driver/<device>.json: registers, shared memory and CTAs per SM as the driver here says them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.study import load_study

HELP = "hold every fitting arm's feasibility against the driver of the GPU here"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> None:
    """See the module; a figure that differs is a result, printed and recorded, not a failure."""
    from occupancy_probe.commands.shared import surviving
    from occupancy_probe.execute.device import GpuTurn, require_gpu, run_versions
    from occupancy_probe.gpu import target
    from occupancy_probe.launch.loaded import ask_driver
    from occupancy_probe.research.driver import compare_with_driver
    from occupancy_probe.research.matrix import read_matrix

    study, gpu = load_study(options.study), require_gpu()
    surviving(options.results, gpu.target, study)  # says why where nothing was compiled or fits
    chosen = target(gpu.target)
    trace = records.read_record(options.results / "trace.json", records.Trace)
    turn = GpuTurn(gpu)
    turn.enter()
    try:
        kernels, missing = compare_with_driver(
            trace,
            gpu.target,
            read_matrix(options.results / "feasibility" / gpu.target),
            lambda spec: ask_driver(study.kernel_folder, spec, chosen),
        )
    finally:
        turn.leave()
    found = records.DriverCheck(
        study=study.name,
        depends={"launch": study.launch_digest},
        versions=run_versions(gpu),
        device=gpu.slug,
        device_name=gpu.name,
        target=gpu.target,
        kernels=kernels,
        missing=missing,
    )
    records.write_record(options.results / "driver" / f"{gpu.slug}.json", found)
    equal = sum(not k.differs for k in kernels)
    print(
        f"{study.name}: {gpu.name}: {equal} of {len(kernels)} kernels as the driver says"
        f" ({len({k.arm for k in kernels})} arms)"
    )
    for k in kernels:
        for figure in k.differs:
            print(f"  {k.arm} {k.kernel}: {figure} {k.recorded[figure]}, driver {k.driver[figure]}")
    for said in missing:
        print(f"  not compared: {said}")
