"""Feasibility without a GPU, held against what the driver of a GPU says of the same kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from occupancy_probe.records import DriverKernel, Feasibility, Specialization, Trace, Variant

COMPARED = ("registers", "shared_bytes", "ctas_per_sm")
"""Figures that must be equal; whatever else the driver says is recorded beside them."""

Ask = Callable[[Mapping[str, Specialization]], Mapping[str, Mapping[str, int] | str]]
"""The driver's figures of each, or why there are none."""


def compare_with_driver(
    trace: Trace, target: str, records: Mapping[str, Feasibility], ask: Ask
) -> tuple[list[DriverKernel], list[str]]:
    """Every kernel that every fitting arm launches on ``target``, and what could not be compared.

    ask: called once, with every specialization by its key.
    """
    kernels: list[DriverKernel] = []
    missing: list[str] = []
    compared: list[tuple[str, str, Variant]] = []
    for name, record in records.items():
        if record.verdict != "fits":
            continue
        launches = [t for t in trace.launches if t.arm == name and t.target == target]
        for key in dict.fromkeys(c.specialization for t in launches for c in t.calls):
            spec = trace.specializations[key]
            variant = _variant(record, spec)
            if variant is None:
                missing.append(f"{name}: the record has no variant {spec.words()}; compile again")
            else:
                compared.append((name, key, variant))
        if not launches:
            missing.append(f"{name}: not in the trace; trace and compile again")
    answers = ask({key: trace.specializations[key] for _, key, _ in compared})
    for name, key, variant in compared:
        answer = answers[key]
        if isinstance(answer, str):  # one kernel that cannot be loaded is a result
            missing.append(f"{name}: {trace.specializations[key].kernel}: {answer}"[:300])
        else:
            kernels.append(compare_kernel(name, variant, answer))
    return kernels, missing


def compare_kernel(arm: str, variant: Variant, driver: Mapping[str, int]) -> DriverKernel:
    """One kernel's recorded figures beside the driver's."""
    recorded = {figure: getattr(variant, figure) for figure in COMPARED}
    return DriverKernel(
        arm=arm,
        kernel=variant.kernel,
        workloads=variant.workloads,
        recorded=recorded,
        driver=dict(driver),
        differs=[f for f in COMPARED if recorded[f] != driver.get(f)],
    )


def _variant(record: Feasibility, spec: Specialization) -> Variant | None:
    """The variant of ``record`` that was compiled from ``spec``."""
    same = (
        v for v in record.variants if (v.kernel, v.specialization) == (spec.kernel, spec.words())
    )
    return next(same, None)
