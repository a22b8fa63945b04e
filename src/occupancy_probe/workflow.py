"""What the Snakefile needs to know when it is parsed: studies, devices, digests. Imports no torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from occupancy_probe.digest import digest, digest_files, digest_sources
from occupancy_probe.exc import ProblemError, StudyError
from occupancy_probe.gpu import all_present, present, target
from occupancy_probe.options import read_options as read_options
from occupancy_probe.study import Study, load_study

INTERPRETER = "interpreter"


def select_studies(
    names: str, folder: Path = Path("studies"), needed: bool = True
) -> dict[str, Study]:
    """Studies by name: ``names`` are names of files in ``folder`` or paths, separated by commas.

    needed: False leaves out what is not here; a past revision brings its own study.
    """
    found: dict[str, Study] = {}
    for name in filter(None, (part.strip() for part in str(names).split(","))):
        path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
        if not path.is_file() and not needed:
            continue
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml"))) or "none"
            raise StudyError(f"no study {name!r} ({path} is no file); studies here: {known}")
        study = load_study(path)
        if study.name in found:
            raise StudyError(f"{path}: a second study named {study.name!r}; rename one")
        found[study.name] = study
    if not found and needed:
        raise StudyError("no study named; use --config study=NAME or study=PATH")
    return found


@cache
def device_slug() -> str | None:
    """The GPU that is here, as a folder name; None without one or with an unknown target."""
    gpu = present()
    return gpu.slug if gpu else None


def cores_per_gpu(cores: int) -> int:
    """Threads of a timing job: nothing runs beside it but the jobs of the other GPUs here."""
    return max(1, cores // max(1, len(all_present())))


def device_matrix(study: Study) -> list[str]:
    """The study's matrix for the target of the GPU that is here; empty without a GPU."""
    gpu = present()
    if gpu is None:
        return []
    if gpu.target not in study.file.targets:
        raise StudyError(
            f"{study.path}: targets: {gpu.name} is {gpu.target}, which the study does not name;"
            " add it, or ask for what needs no GPU (`snakemake feasibility`)"
        )
    return [f"results/{study.name}/feasibility/{gpu.target}.json"]


def serving_indexes(studies: Mapping[str, Study], device: str | None) -> list[str]:
    """What `snakemake serve` makes; StudyError where a study does not say how its server is started."""
    if missing := [s for s in studies.values() if s.file.serve is None]:
        raise StudyError(
            f"{missing[0].path}: serve: missing; say how a server is started, and its `load`"
        )
    return [f"results/{name}/serving/{device or 'no-gpu'}.json" for name in studies]


def revision(asked: object) -> str:
    """What ``--config rev=…`` names; StudyError where Snakemake took a hash such as 57e9763 for a number."""
    if isinstance(asked, str):
        return asked
    raise StudyError(
        f"rev: read as the number {asked}; give more digits of the commit, a tag, or STUDY@N"
    )


def file_name(text: object) -> str:
    """``text`` as one file name: a revision may hold slashes and worse."""
    return re.sub(r"[^A-Za-z0-9@._-]+", "-", str(text)).lstrip(".")[:80] or "none"


def template_files(folder: str) -> list[str]:
    """Every template: the report and the document are made from them."""
    return sorted(str(p) for p in Path(folder).glob("*.j2"))


def evidence_files(study: str) -> list[str]:
    """Published records of other devices: inputs of the verdict on this machine."""
    here = device_slug()
    measured = here and Path(f"results/{study}/measurement/{here}").exists()
    return sorted(
        str(p)
        for p in Path(f"results/{study}/evidence").glob("[!.]*/**/*.json")
        if not (measured and f"/evidence/{here}/" in p.as_posix())
    )


def records_of(study: Study, device: str) -> list[str]:
    """What is here of a device that is not, and of the step; publishing says so if there is nothing."""
    from occupancy_probe.validate.publish import EXTRA_KINDS

    folder = Path(f"results/{study.name}")
    found = [
        p
        for k in ("measurement", *EXTRA_KINDS)
        for p in (*folder.glob(f"{k}/{device}/*.json"), folder / k / f"{device}.json")
    ]
    return sorted([*(str(p) for p in found if p.is_file()), *step_files(study)])


def published_stamps(study: Study) -> str:
    """Changes when evidence of ``study``, or of the study of the whole step, is published from here."""
    names = [study.name, *([load_study(study.step_path).name] if study.step_path else [])]
    stamps = [p for n in names for p in Path(f"results/{n}/published").glob("[!.]*.json")]
    return digest({p.as_posix(): p.read_text(encoding="utf-8") for p in stamps})[:16]


def step_files(study: Study) -> list[str]:
    """Records of the study of the whole step that ``study`` names: inputs of its verdict."""
    if study.step_path is None:
        return []
    folder = Path("results") / load_study(study.step_path).name
    kept = ("evidence/[!.]*/measurement/*.json", "measurement/[!.]*/*.json", "plan.json")
    found = [p.as_posix() for pattern in kept for p in folder.glob(pattern)]
    return sorted([str(study.step_path), *found])


def compile_digest(study: Study, *targets: str) -> str:
    """Changes when anything that the matrices of ``targets`` (default: the study's) are made of changes."""
    names = targets or tuple(study.file.targets)
    return digest(
        [
            study.launch_digest,
            {a.name: a.config for a in study.arms},
            {name: (target(name).model_dump(), study.must_fit(name)) for name in names},
            study.file.limits.model_dump(),
            version("triton"),
            digest_sources("gpu", "launch", "research"),
        ]
    )[:16]


def environments(studies: Mapping[str, Study], asked: object = None) -> dict[str, dict[str, Path]]:
    """Per study the other Tritons that are here, by name; ``asked`` are places separated by commas.

    A study's own environment that is not on this machine is left out and named on standard error;
    one that was asked for must be here.
    """
    from occupancy_probe.launch.environment import default_name, find_triton

    places = [Path(p.strip()).expanduser() for p in str(asked or "").split(",") if p.strip()]
    everywhere = {default_name(place): place.absolute() for place in places}
    found = {}
    for study in studies.values():
        found[study.name] = dict(everywhere)
        for name, place in study.environments.items():
            try:
                find_triton(place)
            except ProblemError as e:
                print(f"{study.path}: environments.{name}: left out: {e}", file=sys.stderr)
            else:
                found[study.name][name] = place.absolute()
    return found


def environment_digest(study: Study, place: Path, target_name: str | None = None) -> str:
    """Changes when a trace, or a target's matrix, under another Triton would."""
    from occupancy_probe.launch.environment import find_triton, triton_version

    made_from = compile_digest(study, target_name) if target_name else study_digest(study)
    return digest([made_from, triton_version(find_triton(place))])[:16]


def check_digest(study: Study) -> str:
    """Changes when the correctness stage would check something else."""
    return digest(
        [
            study.launch_digest,
            {a.name: a.config for a in study.arms},
            study.file.checks.model_dump(mode="json"),
            digest_sources("launch", "execute"),
        ]
    )[:16]


def measure_digest(study: Study) -> str:
    """Changes when the measurement stage would measure something else."""
    return digest(
        [
            study.launch_digest,
            {a.name: a.config for a in study.arms},
            study.file.measurement.model_dump(mode="json"),
            study.file.dose.model_dump(mode="json") if study.file.dose else None,
        ]
    )[:16]


def study_digest(study: Study) -> str:
    """Changes with anything the study file says or its kernel does."""
    arms = {a.name: a.config for a in study.arms}
    said = [study.file.model_dump(mode="json"), arms, study.kernel_digest]
    if study.step_sources:
        said.append(digest_files(study.step_sources, study.path.parent))
    return digest(said)[:16]
