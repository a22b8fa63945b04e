"""What one arm becomes on one target: compile its launches, apply the limits, name the limiter."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from occupancy_probe.digest import digest
from occupancy_probe.gpu import Target, device, limits, occupancy, waves
from occupancy_probe.launch.compile import Binary, compiler_versions
from occupancy_probe.records import (
    ArmTrace,
    Coverage,
    Feasibility,
    Reason,
    Specialization,
    Variant,
)
from occupancy_probe.research.code import Material, material
from occupancy_probe.research.resources import (
    code_digest,
    only_traps,
    parse_amdgcn,
    parse_ptxas_log,
)

DOT_RULE, TRAP, SPILLS = "tl.dot minimum", "trap body", "spilled bytes"
"""Limits of this module's own, beside those of the target's table."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """One specialization on one target: its figures, or the reason why there are none.

    Both, where there is code that cannot be meant. unsupported: the target's fault, not the arm's.
    """

    figures: dict[str, Any] | None
    reason: Reason | None = None
    unsupported: bool = False
    material: Material | None = None
    """What the digest of the code is still to be made from."""
    warning: str | None = None
    """What does no harm to the figures and is to be known."""


def compile_variant(folder: Path, spec: Specialization, target: Target) -> Compiled:
    """Compile and measure ``spec``; a failure of the compiler is a result, with its own words."""
    from occupancy_probe.launch.compile import compile_specialization

    if reason := _refused(spec, target):
        return Compiled(None, reason)
    try:
        binary = compile_specialization(folder, spec, target)
    except (Exception, SystemExit) as e:  # a kernel's own sys.exit is a failure of this arm alone
        return _failure(e, target)
    if only_traps(binary.texts.get("ptx", "")):
        text = "the compiled body is only a trap: the compiler gave the kernel up"
        return Compiled(_figures(binary, target), Reason(limit=TRAP, text=text))
    return Compiled(_figures(binary, target), material=material(binary, target))


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
    used = (
        parse_ptxas_log(binary.ptxas_log)
        if target.backend == "cuda"
        else parse_amdgcn(binary.texts["amdgcn"])
    )
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


_DTYPE = re.compile(
    r"type \S+ not supported in this architecture(?:\. The supported fp8 dtypes are \([^)]*\))?"
)
_FEATURE = re.compile(
    r"\S+ '[^'\n]+' requires \.target '?sm_\w+'? or higher|[^\n:]*not supported on \.target [^\n]*"
)
_DOT = re.compile(r"M >= (\d+), N >= (\d+) and K >= (\d+)")


def _failure(error: BaseException, target: Target) -> Compiled:
    """Whose fault a failed compile is, in the compiler's words and, where known, the rule's."""
    said = _chain(error)
    if found := _DTYPE.search(said):
        return Compiled(None, Reason(limit="dtype", text=found[0].strip()), unsupported=True)
    if found := _FEATURE.search(said):
        text = f"ptxas: {found[0].strip()}"
        return Compiled(None, Reason(limit="instruction", text=text), unsupported=True)
    if found := _DOT.search(said):
        version = compiler_versions(target)["triton"]
        rule = f"M ≥ {found[1]}, N ≥ {found[2]} and K ≥ {found[3]}"
        text = f"tl.dot needs {rule} with these types (Triton {version} on {target.name})"
        return Compiled(None, Reason(limit=DOT_RULE, text=text))
    return Compiled(None, Reason(limit="compiler", text=_words(error)))


def _chain(error: BaseException | None) -> str:
    """What an error and its causes say."""
    parts = []
    while error is not None:
        parts.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(parts)


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
    spill_budget: int | None = None,
) -> Feasibility:
    """The record of one arm: the worst variant of ``function`` gives the figures and the verdict.

    arm: name and config. traces: its launches, one entry per workload. compiled: by specialization.
    stamps: ``depends`` and ``versions`` of the record. spill_budget: bytes that a thread may spill
    before the arm is rejected; None: a spill is a warning. What needs the other arms
    (``same_code_as``, ``changed``, ``neighbours``) is set later, when they are known.
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
    warnings: list[str] = []
    for key, workloads in users.items():
        one, spec = compiled[key], specializations[key]
        if one.warning:
            warnings.append(f"{spec.kernel}: {one.warning}")
        if one.figures is None:
            assert one.reason is not None
            reasons.append(one.reason)
            unsupported |= one.unsupported
            continue
        variant = Variant(
            kernel=spec.kernel, workloads=workloads, specialization=spec.words(), **one.figures
        )
        variants.append(variant)
        reasons += _excess(variant, target, spill_budget)
        if one.reason is not None:
            reasons.append(one.reason)
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
        if verdict == "fits":
            figures["coverage"] = _coverage(target, traces, specializations, studied)
        if len(variants) == len(users):
            figures["code_sha256"] = arm_digest(traces, specializations, compiled)
    return Feasibility(
        **head,
        verdict=verdict,
        reasons=reasons,
        variants=variants,
        warnings=list(dict.fromkeys([*filter(None, map(_spill_warning, variants)), *warnings])),
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


def _coverage(
    target: Target,
    traces: Sequence[ArmTrace],
    specializations: Mapping[str, Specialization],
    studied: Sequence[Variant],
) -> list[Coverage]:
    """Waves and bytes in flight per workload on the target's device; nothing where none is named."""
    if target.device is None:
        return []
    planned, found = device(target.device), []
    by_workload = {name: v for v in studied for name in v.workloads}
    for trace in traces:
        variant = by_workload.get(trace.workload)
        grids = [
            math.prod(call.grid)
            for call in trace.calls
            if variant and specializations[call.specialization].kernel == variant.kernel
        ]
        if variant is None or not variant.ctas_per_sm or not grids or not grids[0]:
            continue
        covered = waves(grids[0], planned.sm_count, variant.ctas_per_sm)
        in_flight = None
        if variant.code and variant.code.in_flight_bytes:
            in_flight = variant.code.in_flight_bytes * covered.resident_ctas_per_sm
        share = planned.bandwidth_gb_s / planned.sm_count
        found.append(
            Coverage(
                workload=trace.workload,
                device=planned.name,
                ctas=grids[0],
                waves=round(covered.waves, 4),
                fill=round(covered.fill, 4),
                resident_ctas_per_sm=covered.resident_ctas_per_sm,
                grid_limited=covered.grid_limited,
                in_flight_bytes=in_flight,
                covered_latency_ns=None if in_flight is None else round(in_flight / share, 1),
            )
        )
    return found


def _spill_warning(variant: Variant) -> str | None:
    if not variant.spill_store_bytes and not variant.spill_load_bytes:
        return None
    if variant.vgprs is not None:  # LLVM does not tell stores from loads
        return f"{variant.kernel} spills: {variant.spill_store_bytes:,} B per thread"
    return (
        f"{variant.kernel} spills: {variant.spill_store_bytes:,} B of stores and"
        f" {variant.spill_load_bytes:,} B of loads per thread"
    )


def _excess(variant: Variant, target: Target, spill_budget: int | None) -> list[Reason]:
    found = limits(
        target,
        variant.shared_bytes,
        variant.threads,
        variant.registers,
        variant.tensor_memory_columns,
    )
    reasons = [
        Reason(limit=e.limit, required=e.required, allowed=e.allowed, text=e.text) for e in found
    ]
    if spill_budget is not None and (spilled := variant.spill_store_bytes) > spill_budget:
        text = f"{SPILLS} {spilled:,} B > {spill_budget:,} B, the study's budget"
        reasons.append(Reason(limit=SPILLS, required=spilled, allowed=spill_budget, text=text))
    return reasons
