"""What the Snakefile needs to know when it is parsed: studies, devices, digests. Imports no torch."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from pathlib import Path

from occupancy_probe.digest import digest, digest_sources
from occupancy_probe.exc import StudyError
from occupancy_probe.gpu import present, target
from occupancy_probe.study import Study, load_study

INTERPRETER = "interpreter"


def select_studies(names: str, folder: Path = Path("studies")) -> dict[str, Study]:
    """Studies by name: ``names`` are names of files in ``folder`` or paths, separated by commas."""
    found: dict[str, Study] = {}
    for name in filter(None, (part.strip() for part in str(names).split(","))):
        path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml"))) or "none"
            raise StudyError(f"no study {name!r} ({path} is no file); studies here: {known}")
        study = load_study(path)
        if study.name in found:
            raise StudyError(f"{path}: a second study named {study.name!r}; rename one")
        found[study.name] = study
    if not found:
        raise StudyError("no study named; use --config study=NAME or study=PATH")
    return found


@cache
def device_slug() -> str | None:
    """The GPU that is here, as a folder name; None without one or with an unknown target."""
    gpu = present()
    return gpu.slug if gpu else None


def device_targets() -> list[str]:
    """Target of the GPU that is here, as a list that is empty without one."""
    gpu = present()
    return [gpu.target] if gpu else []


def template_files(folder: str) -> list[str]:
    """Every template: the report and the document are made from them."""
    return sorted(str(p) for p in Path(folder).glob("*.j2"))


def evidence_files(study: str) -> list[str]:
    """Published records of other devices: inputs of the verdict on this machine."""
    here = device_slug()
    measured = here and Path(f"results/{study}/measurement/{here}").exists()
    return sorted(
        str(p)
        for p in Path(f"results/{study}/evidence").glob("*/**/*.json")
        if not (measured and f"/evidence/{here}/" in p.as_posix())
    )


def compile_digest(study: Study, target_name: str) -> str:
    """Changes when anything that a target's matrix is made of changes."""
    return digest(
        [
            study.launch_digest,
            {a.name: a.config for a in study.arms},
            target(target_name).model_dump(),
            version("triton"),
            digest_sources("launch", "research"),
        ]
    )[:16]


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
        ]
    )[:16]


def study_digest(study: Study) -> str:
    """Changes with anything the study file says or its kernel does."""
    return digest([study.file.model_dump(mode="json"), study.kernel_digest])[:16]
