"""From study and trace to the frozen plan: the same study freezes to the same bytes everywhere."""

from __future__ import annotations

from typing import Any

from occupancy_probe.digest import digest, digest_files
from occupancy_probe.exc import RecordError, StudyError
from occupancy_probe.records import ArmPlan, Plan, Trace, WorkloadPlan
from occupancy_probe.study import BASELINE, Study
from occupancy_probe.study.expressions import names_in


def freeze(study: Study, trace: Trace) -> Plan:
    """The plan: what the study says, with the grid arithmetic and traffic that the trace found.

    No clock, no host, no version goes in, so a committed plan is found again instead of made anew.
    """
    _check_trace(study, trace)
    content: dict[str, Any] = {
        "study": study.name,
        "depends": _depends(study),
        "title": study.file.title,
        "document": study.file.document,
        "sections": study.file.model_dump(mode="json", by_alias=True),
        "arms": [
            ArmPlan(name=a.name, config=a.config, why=list(a.why), facts=trace.facts[a.name])
            for a in study.arms
        ],
        "workloads": [
            WorkloadPlan(
                name=w.name,
                axes=w.axes,
                bytes=int(trace.traffic[w.name]["bytes"]),
                flop=int(trace.traffic[w.name]["flop"]),
                sm_clocks=trace.traffic[w.name]["sm_clocks"],
                grids=_grids(study, trace, w.name),
            )
            for w in study.workloads
        ],
        "targets": list(study.file.targets),
        "kernels": _kernels(trace),
        "autotune": trace.autotune,
    }
    plan = Plan(**content, plan_hash="")
    return plan.model_copy(update={"plan_hash": hash_of(plan)})


def _depends(study: Study) -> dict[str, str]:
    found = {"kernel": study.kernel_digest}
    if study.step_sources:
        found["step"] = digest_files(study.step_sources, study.path.parent)
    return found


def hash_of(plan: Plan) -> str:
    """The hash that ``plan`` must carry: over everything that it says beside the hash itself.

    What is left empty does not count, so that a plan keeps its hash when studies gain an optional
    section that it does not use.
    """
    return digest(_without_empty(plan.model_dump(exclude={"plan_hash"})))


def holds_its_hash(content: dict[str, Any]) -> bool:
    """Whether a plan's JSON is what its hash was made from, by today's rule or by the first one."""
    said = content.get("plan_hash")
    plain = {k.replace("schema", "schema_"): v for k, v in content.items() if k != "plan_hash"}
    return said in (digest(_without_empty(plain)), digest(plain))


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {k: _without_empty(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v is not None and v not in ("", [], {})}
    return [_without_empty(v) for v in value] if isinstance(value, (list, tuple)) else value


def _grids(study: Study, trace: Trace, workload: str) -> dict[str, list[int]]:
    """Per target: the grid of the baseline's launch of the studied kernel, which every trace has."""
    grids = {}
    for launch in trace.launches:
        if launch.arm != BASELINE or launch.workload != workload:
            continue
        if launch.error:
            raise StudyError(f"{study.path}: baseline: {launch.error}; correct the baseline")
        for call in launch.calls:
            if trace.specializations[call.specialization].kernel == study.file.kernel.function:
                grids[launch.target] = call.grid
                break
    return grids


def _check_trace(study: Study, trace: Trace) -> None:
    """The trace is this study's, and every assumption speaks of something known."""
    if missing := [a.name for a in study.arms if a.name not in trace.facts]:
        raise RecordError(
            f"trace.json knows no arm {', '.join(missing[:3])}: it was made from another version of"
            f" {study.path}; delete it to have it made again"
        )
    known = {*trace.facts[BASELINE], "autotune_key"}
    for i, line in enumerate(study.file.assume):
        if unknown := [n for n in names_in(line) if n not in known]:
            raise StudyError(
                f"{study.path}: assume[{i}]: {', '.join(unknown)} is no fact of the kernel; known:"
                f" {', '.join(sorted(known))}"
            )


def _kernels(trace: Trace) -> list[str]:
    """Names of the kernels that the baseline's first launch consists of, in order."""
    first = next((t for t in trace.launches if t.arm == BASELINE), None)
    return [trace.specializations[c.specialization].kernel for c in first.calls] if first else []
