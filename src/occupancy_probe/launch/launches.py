"""Trace a whole study: every arm × workload × target, in one process, once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from occupancy_probe.exc import ProbeError, StudyError
from occupancy_probe.gpu import Target, device
from occupancy_probe.launch.device import planned_sm_count
from occupancy_probe.launch.encoding import relative
from occupancy_probe.launch.load import kernel_file, load_kernel, load_problem
from occupancy_probe.launch.problem import Inputs, Problem
from occupancy_probe.launch.signature import SignatureProblem
from occupancy_probe.launch.trace import Origin, recording
from occupancy_probe.launch.tuned import autotuners
from occupancy_probe.launch.unwrap import unwrap
from occupancy_probe.records import ArmTrace, Specialization, Trace
from occupancy_probe.study import BASELINE, NULL, Study
from occupancy_probe.study.workloads import Workload, make_workloads

UNKNOWN_DEVICE_SMS = 128
"""SMs planned for where the table names no device of a target."""


def study_problem(study: Study) -> Problem:
    """The study's Problem, ready to make inputs; of a signature, one that only serves the trace."""
    kernel, file = study.file.kernel, kernel_file(study)
    if study.file.signature is not None:
        assert file is not None
        found = load_kernel(study.kernel_folder, file)
        return SignatureProblem(study.file.signature, found, study.file.baseline)
    assert kernel.problem is not None
    return load_problem(study.kernel_folder, kernel.problem, kernel.parameters, file)


def study_origin(study: Study) -> Origin:
    """Where a compile job finds the study's kernels again."""
    file = kernel_file(study)
    return Origin(study.kernel_folder, file, unwrap(study_problem(study).kernel) if file else None)


def trace_study(study: Study) -> Trace:
    """The launches of every arm; an arm that cannot be specialized carries the reason."""
    problem, file = study_problem(study), kernel_file(study)
    origin = Origin(study.kernel_folder, file, unwrap(problem.kernel) if file else None)
    specializations: dict[str, Specialization] = {}
    launches: list[ArmTrace] = []
    sm_counts = {t.name: _sm_count(t) for t in study.targets}
    for target in study.targets:
        for workload in study.workloads:
            with planned_sm_count(sm_counts[target.name]):
                inputs = _meta_inputs(study, problem, "workloads", workload)
                for arm in study.arms:
                    if arm.name == NULL:
                        continue
                    traced, specs = _trace(problem, inputs, arm.config, target, origin)
                    specializations.update({s.key: s for s in specs})
                    launches.append(
                        ArmTrace(target=target.name, arm=arm.name, workload=workload.name, **traced)
                    )
    _require_tunable(study, problem, sm_counts[study.targets[0].name])
    _require_studied(study, specializations, launches)
    first = study.workloads[0].axes
    return Trace(
        study=study.name,
        depends={"launch": study.launch_digest},
        sm_counts=sm_counts,
        specializations=specializations,
        launches=launches,
        traffic={w.name: vars(problem.traffic(w.axes)) for w in study.workloads},
        facts={a.name: dict(problem.facts(first, a.config)) for a in study.arms},
        autotune=_autotune(getattr(problem, "kernel", None)),
        sources={
            relative(path, study.kernel_folder): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(origin.sources)
        },
    )


def _require_studied(
    study: Study, specializations: Mapping[str, Specialization], launches: Sequence[ArmTrace]
) -> None:
    """Every launch of the baseline that comes so far contains the kernel that the study names."""
    for launch in launches:
        if launch.arm != BASELINE or launch.error:
            continue
        launched = {specializations[c.specialization].kernel for c in launch.calls}
        if study.file.kernel.function not in launched:
            raise StudyError(
                f"{study.path}: kernel.function: {study.file.kernel.function!r} is not launched; the"
                f" Problem launches {', '.join(sorted(launched)) or 'nothing'}"
            )


def _meta_inputs(study: Study, problem: Problem, place: str, workload: Workload) -> Inputs:
    """Inputs without data; StudyError that names the workload, of the list ``place``, if there are none.

    Which axes a Problem needs, and which it has defaults for, only its ``make_inputs`` knows.
    """
    try:
        return problem.make_inputs(workload.axes, "meta", 0)
    except ProbeError as e:
        raise StudyError(f"{study.path}: {place}: {workload.name!r}: {e}") from e
    except (KeyError, TypeError) as e:
        axes = ", ".join(f"{k}={v}" for k, v in workload.axes.items()) or "none"
        raise StudyError(
            f"{study.path}: {place}: {workload.name!r}: the Problem's make_inputs raises"
            f" {type(e).__name__}: {e}; its axes are {axes}; add one that is missing, or mend"
            " make_inputs"
        ) from e


def _require_tunable(study: Study, problem: Problem, sm_count: int) -> None:
    """What the program warms up and captures has inputs, too; the audit launches it later."""
    declared = study.file.autotune
    if declared is None:
        return
    with planned_sm_count(sm_count):
        for key in ("warmup", "capture"):
            place = f"autotune.{key}"
            for workload in make_workloads(getattr(declared, key), place):
                _meta_inputs(study, problem, place, workload)


def _trace(
    problem: Problem, inputs: Inputs, config: Mapping[str, Any], target: Target, origin: Origin
) -> tuple[dict[str, Any], list[Specialization]]:
    with recording(target, origin) as noted:
        try:
            problem.launch(inputs, config)
        except Exception as e:  # whatever a launch raises is this arm's result, not the run's end
            return {"error": f"{type(e).__name__}: {e}".strip()}, []
    return {"calls": [call for _, call in noted]}, [spec for spec, _ in noted]


def _sm_count(target: Target) -> int:
    return device(target.device).sm_count if target.device else UNKNOWN_DEVICE_SMS


def _autotune(kernel: Any) -> dict[str, Any] | None:
    tuners = autotuners(kernel) if kernel is not None else []
    if not tuners:
        return None
    return {"key": list(tuners[0].keys), "configs": [c.all_kwargs() for c in tuners[0].configs]}
