"""What a study names is there: everything that a later stage would trip over is found when it is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from occupancy_probe.exc import StudyError
from occupancy_probe.gpu import target
from occupancy_probe.study import signature as sizes
from occupancy_probe.study.expressions import calls_in
from occupancy_probe.study.profile import profile_share
from occupancy_probe.study.schema import DosePlan, Share
from occupancy_probe.study.series import read_series
from occupancy_probe.study.workloads import make_workloads

if TYPE_CHECKING:
    from occupancy_probe.study.load import Study


def check_references(study: Study) -> None:
    """Everything that a later stage would trip over is found while the study is parsed."""
    file = study.file
    if file.autotune is not None:
        make_workloads(file.autotune.warmup, "autotune.warmup")
        make_workloads(file.autotune.capture, "autotune.capture")
    for name in file.targets:
        try:
            target(name)
        except StudyError as e:
            raise StudyError(f"targets: {e}") from e
    _check_kernel(study)
    _check_decision(study)
    if file.projection:
        _selected(study, "projection.where", file.projection.where)
    for i, line in enumerate(file.assume):
        _check_assumption(study, line, f"assume[{i}]")
    if file.dose:
        _check_dose(study, file.dose)
    _check_throughput(study)
    _check_serve(study)
    _check_must_fit(study)
    if file.projection and (unknown := set(file.projection.arms) - {a.name for a in study.arms}):
        raise StudyError(f"projection.arms: no arm named {', '.join(sorted(unknown))}")


def _selected(study: Study, key: str, expression: str) -> tuple[str, ...]:
    """Workloads that the expression under ``key`` selects; none at all is a fault."""
    try:
        selected = study.selects(expression)
    except StudyError as e:
        raise StudyError(f"{key}: {e}") from e
    if not selected:
        raise StudyError(f"{key}: {expression!r} selects no workload; correct it")
    return selected


def _check_decision(study: Study) -> None:
    """Each workload is to become faster or to be kept; a guard that was left out keeps all."""
    rule = study.file.decision
    improve = _selected(study, "decision.improve", rule.improve)
    if rule.guard in ("True", "False"):
        return
    try:
        guard = _selected(study, "decision.guard", rule.guard)
    except StudyError as e:
        raise StudyError(f'{e}; for no guard write "False"') from e
    if both := [w for w in guard if w in improve]:
        raise StudyError(
            f"decision.guard: {rule.guard!r} also selects {', '.join(both)}, which `improve` selects;"
            " guard other workloads, or leave guard out to keep all of them"
        )


ASSUME_FUNCTIONS = (
    "shared_bytes",
    "registers",
    "ctas_per_sm",
    "warps_per_sm",
    "fits",
    "same_code",
)
"""What an ``assume`` line may ask of the feasibility matrix: (target, arm …)."""


def _check_assumption(study: Study, line: str, place: str) -> None:
    """It parses, and its functions, targets and arms exist; its names are known once traced."""
    try:
        calls = calls_in(line)
    except SyntaxError as e:
        raise StudyError(f"{place}: {line!r}: {e.msg}; write one expression") from e
    known = {*study.file.targets, *(a.name for a in study.arms)}
    for function, texts in calls:
        if function not in ASSUME_FUNCTIONS:
            raise StudyError(
                f"{place}: no function {function}(); known: {', '.join(ASSUME_FUNCTIONS)}"
            )
        if unknown := [t for t in texts if t not in known]:
            raise StudyError(
                f"{place}: {', '.join(map(repr, unknown))} is no target or arm of this study"
            )


def _check_kernel(study: Study) -> None:
    """The files that the study names are there, and it says how the kernel is launched."""
    kernel, signature = study.file.kernel, study.file.signature
    if study.kernel_file and not study.kernel_file.is_file():
        raise StudyError(f"kernel.file: no {study.kernel_file}; correct the path")
    for folder in study.sys_path:
        if not folder.is_dir():
            raise StudyError(f"kernel.sys_path: no folder {folder}; correct the path")
    if kernel.path is None:
        if signature is None:
            raise StudyError(
                "signature: missing; a kernel without path and problem needs its arguments' sizes"
            )
        names = {**study.workloads[0].axes, **study.file.baseline}
        sizes.arguments(signature, names)
        sizes.grid(signature, names)
        for workload in study.workloads:
            sizes.work(signature, workload.axes)
        return
    if signature is not None:
        raise StudyError("signature: the Problem already launches the kernel; give one of the two")
    for folder in study.source_folders:
        if not folder.is_dir():
            raise StudyError(f"kernel.sources: no folder {folder}; correct the path")
    problem = study.kernel_folder / "problem.py"
    if not problem.is_file():
        raise StudyError(f"kernel.path: no {problem}; give the folder that holds problem.py")
    if not study.logic:
        raise StudyError(
            "checks.logic: missing; give workloads small enough for Triton's interpreter"
        )


def _check_throughput(study: Study) -> None:
    """Series, step study and axes that the study names are there."""
    file, wanted = study.file, study.file.throughput
    axes = {axis for w in study.workloads for axis in w.axes}
    named = {"decision.above": file.decision.above}
    if wanted:
        named |= {
            "throughput.axis": wanted.axis,
            "throughput.share.passes": wanted.share.passes if wanted.share else None,
        }
    for key, axis in named.items():
        if axis is not None and axis not in axes:
            raise StudyError(f"{key}: no workload axis {axis!r}; known: {', '.join(sorted(axes))}")
    if file.decision.metric == "end_to_end":
        _check_end_to_end(study)
    if wanted is None:
        return
    if study.step_path and not study.step_path.is_file():
        raise StudyError(f"throughput.step: no {study.step_path}; give a study file")
    if wanted.series and not study.times_steps:
        try:
            read_series(wanted.series, study.path.parent)
        except StudyError as e:
            raise StudyError(f"throughput.series: {e}") from e
    _selected(study, "throughput.where", wanted.where)
    if wanted.share:
        _check_share(study, wanted.share)


def _check_end_to_end(study: Study) -> None:
    """Something will say what the step gains, so that the rule can be applied."""
    wanted = study.file.throughput
    if wanted is None:
        raise StudyError("decision.metric: end_to_end needs a `throughput` section")
    if study.times_steps:
        raise StudyError(
            "decision.metric: end_to_end: with `series: measured` the timed launches are whole steps"
            " already; leave metric out"
        )
    if wanted.step is None and wanted.share is None and study.file.serve is None:
        raise StudyError(
            "decision.metric: end_to_end: a series alone does not say what part of a step the kernel"
            " is; add throughput.share (value, range, profile or launches), give a step study in place"
            " of the series, or add serve and load"
        )


def _check_share(study: Study, share: Share) -> None:
    """The share can be had: of a profile it is read at once."""
    if share.passes is not None and not study.times_steps:
        raise StudyError(
            "throughput.share.passes: belongs to a study of whole steps (`series: measured`); here"
            " give value, range, profile or launches"
        )
    if study.times_steps and share.passes is None:
        raise StudyError(
            "throughput.share: with `series: measured` the share comes from the steps themselves; give"
            " passes, the axis that runs the kernel twice, or leave share out"
        )
    if share.profile is None:
        return
    path = study.path.parent / share.profile
    if not path.is_file():
        raise StudyError(f"throughput.share.profile: no {path}; correct the path")
    try:
        profile_share(path, share.kernels or study.file.kernel.function)
    except StudyError as e:
        raise StudyError(f"throughput.share.profile: {e}") from e


def _check_serve(study: Study) -> None:
    """Server and load come together, and their commands ask for what can be filled in."""
    serve, load = study.file.serve, study.file.load
    if (serve is None) != (load is None):
        raise StudyError("serve and load go together; give both or neither")
    if serve is None or load is None:
        return
    where = load.where if load.where is not None else study.file.decision.improve
    names = _selected(study, "load.where", where)
    axes = [set(w.axes) for w in study.workloads if w.name in names]
    for key, texts, known in (
        ("serve.command", serve.command, ["port"]),
        ("serve.health", [serve.health], ["port"]),
        ("load.command", load.command, ["port", *sorted(set.intersection(*axes))]),
    ):
        asked = [name for text in texts for name in PLACEHOLDER.findall(text)]
        if unknown := [name for name in asked if name not in known]:
            raise StudyError(
                f"{key}: nothing is known as {{{unknown[0]}}}; known:"
                f" {', '.join(f'{{{name}}}' for name in known)}; braces that are meant as such take a"
                f" space: {{ {unknown[0]} }}"
            )


PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")
"""What a command asks to be filled in; ``${NAME}`` is a shell's."""


def _check_dose(study: Study, dose: DosePlan) -> None:
    names = {a.name for a in study.arms if not a.twin}
    if unknown := [a for a in dose.arms if a not in names]:
        raise StudyError(f"dose.arms: no arm named {', '.join(unknown)}")
    for name in dose.emulate:
        if name not in study.file.targets:
            raise StudyError(f"dose.emulate: {name!r} is not among targets; add it there")
    _selected(study, "dose.workloads", dose.workloads)


def _check_must_fit(study: Study) -> None:
    """``must_fit`` names targets and arms of the study."""
    required = study.file.must_fit
    if unknown := set(required) - set(study.file.targets):
        raise StudyError(f"must_fit: {', '.join(sorted(unknown))} is none of the study's targets")
    named = {a for arms in required.values() for a in arms} if isinstance(required, dict) else set()
    if unknown := named - {a.name for a in study.arms}:
        raise StudyError(f"must_fit: no arm named {', '.join(sorted(unknown))}")
