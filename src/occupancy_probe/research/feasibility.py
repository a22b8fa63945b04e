"""What one arm becomes on one target: compile its launches, apply the limits, name the limiter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from occupancy_probe.digest import digest
from occupancy_probe.gpu import Target, limits, occupancy
from occupancy_probe.launch.compile import Binary
from occupancy_probe.records import ArmTrace, Feasibility, Reason, Specialization, Variant
from occupancy_probe.research.resources import code_digest, parse_ptxas_log


@dataclasses.dataclass(frozen=True)
class Compiled:
    """One specialization on one target: its figures, or the reason why there are none."""

    figures: dict[str, Any] | None
    reason: Reason | None = None
    unsupported: bool = False


def compile_variant(folder: Path, spec: Specialization, target: Target) -> Compiled:
    """Compile and measure ``spec``; a failure of the compiler is a result, with its own words."""
    from occupancy_probe.launch.compile import compile_specialization

    if reason := _refused(spec, target):
        return Compiled(None, reason)
    try:
        binary = compile_specialization(folder, spec, target)
    except (Exception, SystemExit) as e:  # a kernel's own sys.exit is a failure of this arm alone
        words = _words(e)
        unsupported = "not supported in this architecture" in words
        return Compiled(None, Reason(limit="compiler", text=words), unsupported)
    return Compiled(_figures(binary, target))


def _refused(spec: Specialization, target: Target) -> Reason | None:
    """Faults of a launch that need no compile to be seen."""
    warps = spec.options.get("num_warps", 4)
    if isinstance(warps, int) and warps > 0 and warps & (warps - 1):
        return Reason(
            limit="num_warps", required=warps, text=f"num_warps {warps} is not a power of two"
        )
    threads = warps * target.warp_size
    if threads > target.max_threads_per_cta:
        return Reason(
            limit="threads",
            required=threads,
            allowed=target.max_threads_per_cta,
            text=f"{threads:,} threads > {target.max_threads_per_cta:,} per CTA on {target.name}",
        )
    return None


def _figures(binary: Binary, target: Target) -> dict[str, Any]:
    used = parse_ptxas_log(binary.ptxas_log)
    threads = binary.num_warps * target.warp_size
    resident = occupancy(target, used.registers, binary.num_warps, binary.shared_bytes)
    return {
        "shared_bytes": binary.shared_bytes,
        "tensor_memory_columns": binary.tensor_memory_columns,
        "threads": threads,
        **dataclasses.asdict(used),
        "ctas_per_sm": resident.ctas_per_sm,
        "warps_per_sm": resident.warps_per_sm,
        "occupancy": resident.occupancy,
        "limiter": list(resident.limiter),
        "code_sha256": code_digest(
            binary.cubin,
            threads,
            binary.num_ctas,
            binary.shared_bytes,
            binary.tensor_memory_columns,
        ),
        "compile_seconds": round(binary.seconds, 3),
    }


def _words(error: BaseException) -> str:
    """The compiler's own words in at most 300 characters, the last and most telling line first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = error.__cause__ or error.__context__
    if cause is not None and str(cause):
        lines.append(str(cause).strip().splitlines()[-1])
    said = lines[-1] if lines else ""
    return f"{type(error).__name__}: {said}"[:300]


def judge_arm(
    study: str,
    function: str,
    arm: tuple[str, Mapping[str, Any]],
    target: Target,
    traces: Sequence[ArmTrace],
    specializations: Mapping[str, Specialization],
    compiled: Mapping[str, Compiled],
    stamps: Mapping[str, Mapping[str, str]],
) -> Feasibility:
    """The record of one arm: the worst variant of ``function`` gives the figures and the verdict.

    arm: name and config. traces: its launches, one entry per workload. compiled: by specialization.
    stamps: ``depends`` and ``versions`` of the record. ``same_code_as`` is set later, when all arms
    are known.
    """
    name, config = arm
    head: dict[str, Any] = {
        "study": study,
        "arm": name,
        "config": dict(config),
        "target": target.name,
        "depends": dict(stamps["depends"]),
        "versions": dict(stamps["versions"]),
    }
    if failed := next((t.error for t in traces if t.error), None):
        warps = config.get("num_warps", 4)
        pow2 = isinstance(warps, int) and warps > 0 and not warps & (warps - 1)
        text = failed if pow2 else f"num_warps {warps} is not a power of two"
        reason = Reason(limit="launch" if pow2 else "num_warps", text=text)
        return Feasibility(**head, verdict="rejected", reasons=[reason])
    users: dict[str, list[str]] = {}
    for trace in traces:
        for call in trace.calls:
            names = users.setdefault(call.specialization, [])
            if trace.workload not in names:
                names.append(trace.workload)
    reasons: list[Reason] = []
    unsupported = False
    variants: list[Variant] = []
    for key, workloads in users.items():
        one, spec = compiled[key], specializations[key]
        if one.figures is None:
            assert one.reason is not None
            reasons.append(one.reason)
            unsupported |= one.unsupported
            continue
        variant = Variant(
            kernel=spec.kernel, workloads=workloads, specialization=spec.words(), **one.figures
        )
        variants.append(variant)
        reasons += _excess(variant, target)
    reasons = list(dict.fromkeys(reasons))
    verdict: Literal["fits", "rejected", "unsupported"]
    verdict = "fits" if not reasons else "unsupported" if unsupported else "rejected"
    studied = [v for v in variants if v.kernel == function]
    figures: dict[str, Any] = {}
    if studied:
        worst = max(studied, key=lambda v: (-v.ctas_per_sm, v.shared_bytes, v.registers))
        figures = worst.model_dump(
            exclude={"kernel", "workloads", "specialization", "code_sha256", "compile_seconds"}
        )
        if len(variants) == len(users):
            figures["code_sha256"] = arm_digest(traces, specializations, compiled)
    return Feasibility(
        **head,
        verdict=verdict,
        reasons=reasons,
        variants=variants,
        compile_seconds=round(sum(v.compile_seconds for v in variants), 3),
        **figures,
    )


def arm_digest(
    traces: Sequence[ArmTrace],
    specializations: Mapping[str, Specialization],
    compiled: Mapping[str, Compiled],
) -> str:
    """Identity of all that an arm runs: per workload the machine code, its grid and its arguments.

    Equal code under another grid or other run-time scalars (a split count, say) is another arm.
    """
    parts: list[Any] = []
    for trace in traces:
        for call in trace.calls:
            spec, figures = (
                specializations[call.specialization],
                compiled[call.specialization].figures,
            )
            assert figures is not None
            arguments = {k: v for k, v in call.scalars.items() if spec.signature[k] != "constexpr"}
            parts.append(
                [trace.workload, spec.kernel, figures["code_sha256"], call.grid, arguments]
            )
    return digest(parts)


def _excess(variant: Variant, target: Target) -> list[Reason]:
    found = limits(
        target,
        variant.shared_bytes,
        variant.threads,
        variant.registers,
        variant.tensor_memory_columns,
    )
    return [
        Reason(limit=e.limit, required=e.required, allowed=e.allowed, text=e.text) for e in found
    ]
