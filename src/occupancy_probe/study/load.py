"""From a YAML file to a Study: safely loaded, checked, one line per fault."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from occupancy_probe.digest import digest, digest_files
from occupancy_probe.exc import StudyError
from occupancy_probe.gpu import Target, target
from occupancy_probe.study.arms import Arm, make_arms
from occupancy_probe.study.expressions import evaluate
from occupancy_probe.study.schema import StudyFile
from occupancy_probe.study.workloads import Workload, make_workloads


@dataclass(frozen=True)
class Study:
    """A checked study with its arms and workloads laid out.

    path: the file. file: its sections. arms: baseline first, then the null arm. workloads: the
    measured points. checks, logic: further points for correctness on a GPU and in the interpreter.
    """

    path: Path
    file: StudyFile
    arms: tuple[Arm, ...]
    workloads: tuple[Workload, ...]
    checks: tuple[Workload, ...]
    logic: tuple[Workload, ...]

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(target(name) for name in self.file.targets)

    @property
    def kernel_folder(self) -> Path:
        """Folder of the kernel and its Problem."""
        return Path(os.path.normpath(self.path.parent / self.file.kernel.path))

    @cached_property
    def kernel_files(self) -> tuple[Path, ...]:
        """Every Python file of the kernel's folder: what a record of this kernel depends on."""
        return tuple(sorted(self.kernel_folder.rglob("*.py")))

    @cached_property
    def kernel_digest(self) -> str:
        return digest_files(self.kernel_files, self.kernel_folder)

    @cached_property
    def launch_digest(self) -> str:
        """What every compiled or timed launch depends on beside its config."""
        return digest(
            [
                self.kernel_digest,
                self.file.kernel.model_dump(exclude={"path"}),
                [w.axes for w in self.workloads],
            ]
        )

    def arm(self, name: str) -> Arm:
        return next(a for a in self.arms if a.name == name)

    def selects(self, expression: str) -> tuple[str, ...]:
        """Names of the measured workloads for which ``expression`` over their axes is true."""
        return tuple(w.name for w in self.workloads if evaluate(expression, w.axes))


def load_study(path: str | Path) -> Study:
    """Read, check and lay out a study file; StudyError lists every fault with its remedy."""
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise StudyError(f"{path}: {e.strerror}; name a study file or one of `studies/`") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise StudyError(f"{path}: not valid YAML: {' '.join(str(e).split())}") from e
    if not isinstance(content, dict):
        raise StudyError(f"{path}: a study is a mapping of keys such as name, hypothesis, kernel")
    try:
        file = StudyFile.model_validate(content)
    except ValidationError as e:
        raise StudyError("\n".join(f"{path}: {line}" for line in _faults(e))) from e
    try:
        study = Study(
            path,
            file,
            make_arms(file.arms, file.baseline, file.baseline_why, path.parent),
            make_workloads(file.workloads, "workloads"),
            make_workloads(file.checks.device, "checks.device"),
            make_workloads(file.checks.logic, "checks.logic"),
        )
        _check_references(study)
    except StudyError as e:
        raise StudyError(f"{path}: {e}") from e
    return study


def _check_references(study: Study) -> None:
    """Everything that a later stage would trip over is found while the study is parsed."""
    file = study.file
    for name in file.targets:
        try:
            target(name)
        except StudyError as e:
            raise StudyError(f"targets: {e}") from e
    problem = study.kernel_folder / "problem.py"
    if not problem.is_file():
        raise StudyError(f"kernel.path: no {problem}; give the folder that holds problem.py")
    for key, expression in (
        ("decision.improve", file.decision.improve),
        ("decision.guard", file.decision.guard),
        *([("projection.where", file.projection.where)] if file.projection else []),
    ):
        try:
            selected = study.selects(expression)
        except StudyError as e:
            raise StudyError(f"{key}: {e}") from e
        if not selected and key != "decision.guard":
            raise StudyError(f"{key}: {expression!r} selects no workload; correct it")
    if file.projection and (unknown := set(file.projection.arms) - {a.name for a in study.arms}):
        raise StudyError(f"projection.arms: no arm named {', '.join(sorted(unknown))}")


def _faults(error: ValidationError) -> list[str]:
    """One line per fault: the key, what is wrong, and a near miss where there is one."""
    lines = []
    for fault in error.errors(include_url=False):
        place = ".".join(str(p) for p in fault["loc"])
        if fault["type"] == "extra_forbidden":
            known = _known_keys(fault["loc"])
            near = difflib.get_close_matches(str(fault["loc"][-1]), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            lines.append(f"{place}: unknown key; {hint}")
        else:
            shown = repr(fault["input"])
            said = fault["msg"].removeprefix("Value error, ") + f" (got {shown[:60]})"
            lines.append(f"{place}: {'missing; add it' if fault['type'] == 'missing' else said}")
    return lines


def _known_keys(location: tuple[Any, ...]) -> list[str]:
    """Keys allowed in the section that holds the last part of ``location``."""
    model: Any = StudyFile
    for part in location[:-1]:
        if isinstance(part, int):
            continue
        fields = {(f.alias or n): f for n, f in model.model_fields.items()}
        model = _section_in(fields[part].annotation) if part in fields else model
    return [(f.alias or n) for n, f in model.model_fields.items()]


def _section_in(annotation: Any) -> Any:
    """The Section inside an annotation such as ``list[ConfigRule]`` or ``Projection | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = [_section_in(a) for a in getattr(annotation, "__args__", ())]
    return next((m for m in inner if m is not None), None)
