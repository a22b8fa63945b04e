"""driver/<device>.json: registers, shared memory and CTAs per SM as the driver here says them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.progress import progress
from occupancy_probe.study import load_study

HELP = "hold every fitting arm's feasibility against the driver of the GPU here"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> None:
    """See the module; a figure that differs is a result, printed and recorded, not a failure."""
    from occupancy_probe.commands.shared import surviving
    from occupancy_probe.execute.device import GpuTurn, assigned, run_versions, same_model
    from occupancy_probe.execute.driver_figures import driver_figures
    from occupancy_probe.research.driver import compare_with_driver
    from occupancy_probe.research.matrix import read_matrix

    study, gpus = load_study(options.study), same_model()
    target = gpus[0].target
    surviving(options.results, target, study)  # says why where nothing was compiled or fits
    trace = records.read_record(options.results / "trace.json", records.Trace)
    matrix = read_matrix(options.results / "feasibility" / target)
    limit_s = study.file.limits.compile_s
    with assigned(gpus) as gpu, progress(f"{study.name}: compile for {gpu.name}") as report:
        turn = GpuTurn(gpu)
        kernels, missing = compare_with_driver(
            trace,
            target,
            matrix,
            lambda specs: driver_figures(study.kernel_folder, specs, turn, limit_s, report),
        )
    found = records.DriverCheck(
        study=study.name,
        depends={"launch": study.launch_digest},
        versions=run_versions(gpu),
        device=gpu.slug,
        device_name=gpu.name,
        device_uuid=gpu.uuid,
        target=target,
        kernels=kernels,
        missing=missing,
    )
    records.write_record(options.results / "driver" / f"{gpu.slug}.json", found)
    equal = sum(not k.differs for k in kernels)
    print(
        f"{study.name}: {gpu.name} {gpu.uuid}: {equal} of {len(kernels)} kernels as the driver says"
        f" ({len({k.arm for k in kernels})} arms), GPU held {turn.held_s:.1f} s"
    )
    for k in kernels:
        for figure in k.differs:
            print(f"  {k.arm} {k.kernel}: {figure} {k.recorded[figure]}, driver {k.driver[figure]}")
    for said in missing:
        print(f"  not compared: {said}")
