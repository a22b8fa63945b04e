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
from occupancy_probe.study.arms import Arm, make_arms, use_file
from occupancy_probe.study.expressions import evaluate
from occupancy_probe.study.references import check_references
from occupancy_probe.study.schema import StudyFile
from occupancy_probe.study.sources import import_closure
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
        """Folder of the Problem, or of the kernel's file where there is no Problem."""
        kernel = self.file.kernel
        if kernel.path is None:
            assert self.kernel_file is not None
            return self.kernel_file.parent
        return self._at(kernel.path)

    @property
    def kernel_file(self) -> Path | None:
        """Somebody else's file that defines the kernel; None where the Problem brings it."""
        return self._at(self.file.kernel.file) if self.file.kernel.file else None

    @property
    def sys_path(self) -> tuple[Path, ...]:
        """Folders that the kernel's file imports from."""
        return tuple(self._at(p) for p in self.file.kernel.sys_path)

    @property
    def source_folders(self) -> tuple[Path, ...]:
        """More folders that the Problem is made of."""
        return tuple(self._at(p) for p in self.file.kernel.sources)

    @property
    def step_path(self) -> Path | None:
        """The study of the whole step around this study's kernel."""
        wanted = self.file.throughput
        return self._at(wanted.step) if wanted and wanted.step else None

    @property
    def times_steps(self) -> bool:
        """Whether a launch is a whole step, of which the studied kernel is a part."""
        wanted = self.file.throughput
        return wanted is not None and wanted.series == "measured"

    @property
    def environments(self) -> dict[str, Path]:
        """Other Tritons by name."""
        return {name: self._at(place) for name, place in self.file.environments.items()}

    def _at(self, place: str) -> Path:
        return Path(os.path.normpath(self.path.parent / Path(place).expanduser()))

    @cached_property
    def kernel_files(self) -> tuple[Path, ...]:
        """Every Python file that a record of this kernel depends on.

        All in the Problem's folder, and what the kernel's own file imports from its package and
        from ``sys_path``, wherever that lies.
        """
        ours = self.kernel_folder.rglob("*.py") if self.file.kernel.path else ()
        more = [file for folder in self.source_folders for file in folder.rglob("*.py")]
        theirs: tuple[Path, ...] = ()
        if self.kernel_file:
            theirs = import_closure(
                [self.kernel_file], self.sys_path, self.file.kernel.stub_modules
            )
        return tuple(sorted({*ours, *more, *theirs}))

    @property
    def rule_files(self) -> tuple[Path, ...]:
        """Files of the study's ``use`` rules: arms are made by them."""
        return tuple(use_file(r.use, self.path.parent) for r in self.file.arms if r.use)

    @cached_property
    def inputs(self) -> tuple[Path, ...]:
        """Files and folders that must be committed before the plan is."""
        folder = (self.kernel_folder,) if self.file.kernel.path else ()
        more = (*folder, *self.source_folders)
        theirs = (f for f in self.kernel_files if self.kernel_file)
        return (self.path, *self.rule_files, *more, *theirs, *self.step_sources)

    @cached_property
    def step_sources(self) -> tuple[Path, ...]:
        """Files of the study's own that say what a step takes: its series, its profile."""
        wanted = self.file.throughput
        if wanted is None:
            return ()
        named = (wanted.series, wanted.share.profile if wanted.share else None)
        paths = [self.path.parent / name for name in named if name]
        return tuple(p for p in paths if p.is_file())

    @cached_property
    def kernel_digest(self) -> str:
        return digest_files(self.kernel_files, self.kernel_folder)

    @cached_property
    def launch_digest(self) -> str:
        """What every compiled or timed launch depends on beside its config.

        Options left at their defaults do not count: evidence must outlive options that are new.
        """
        kernel, signature = self.file.kernel, self.file.signature
        return digest(
            [
                self.kernel_digest,
                kernel.model_dump(
                    exclude={"path", "file", "sys_path", "sources"}, exclude_defaults=True
                ),
                *([signature.model_dump(exclude_defaults=True)] if signature else []),
                [w.axes for w in self.workloads],
            ]
        )

    def must_fit(self, target_name: str) -> list[str]:
        """Arms that the study requires to fit on a target, in its order; the null arm is none."""
        required = self.file.must_fit
        named: list[str] | None = None
        if isinstance(required, dict):
            named = required.get(target_name, [])
        elif target_name not in required:
            named = []
        return [a.name for a in self.arms if not a.twin and (named is None or a.name in named)]

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
        check_references(study)
    except StudyError as e:
        raise StudyError(f"{path}: {e}") from e
    return study


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
