"""Feasibility without a GPU, held against what the driver of a GPU says of the same kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from occupancy_probe.records import DriverKernel, Feasibility, Specialization, Trace, Variant

COMPARED = ("registers", "shared_bytes", "ctas_per_sm")
"""Figures that must be equal; whatever else the driver says is recorded beside them."""

Ask = Callable[[Specialization], Mapping[str, int]]


def compare_with_driver(
    trace: Trace, target: str, records: Mapping[str, Feasibility], ask: Ask
) -> tuple[list[DriverKernel], list[str]]:
    """Every kernel that every fitting arm launches on ``target``, and what could not be compared.

    ask: the driver's figures of a specialization; each is asked for once.
    """
    kernels: list[DriverKernel] = []
    missing: list[str] = []
    known: dict[str, Mapping[str, int]] = {}
    for name, record in records.items():
        if record.verdict != "fits":
            continue
        launches = [t for t in trace.launches if t.arm == name and t.target == target]
        for key in dict.fromkeys(c.specialization for t in launches for c in t.calls):
            spec = trace.specializations[key]
            variant = _variant(record, spec)
            if variant is None:
                missing.append(f"{name}: the record has no variant {spec.words()}; compile again")
                continue
            try:
                if key not in known:
                    known[key] = ask(spec)
            except Exception as e:  # one kernel that cannot be loaded is a result
                missing.append(f"{name}: {spec.kernel}: {type(e).__name__}: {e}"[:300])
                continue
            kernels.append(compare_kernel(name, variant, known[key]))
        if not launches:
            missing.append(f"{name}: not in the trace; trace and compile again")
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
