"""Study and path helpers, no rules.

Gives STUDIES (name → study, chosen by `--config study=…`), ENVIRONMENTS (other Tritons per study), DEVICE (the GPU here, or None) and the
look-ups that rules share.
"""

import sys
from pathlib import Path

from occupancy_probe import workflow as probe
from occupancy_probe.exc import ProbeError

try:
    REVISION = probe.revision(config.get("rev", "HEAD"))
    STUDIES = probe.select_studies(
        config["study"], needed=not {"rev", "repository"} & set(config)
    )
    ENVIRONMENTS = probe.environments(STUDIES, config.get("triton"))
except ProbeError as fault:
    sys.exit("\n".join(f"error: {line}" for line in str(fault).splitlines()))

DEVICE = probe.device_slug()
CHECKED_ON = DEVICE or probe.INTERPRETER
TEMPLATES = f"{workflow.basedir}/templates"


wildcard_constraints:
    study="|".join(STUDIES),
    target=r"(sm|gfx)_?\w+",
    device=r"[a-z0-9-]+",
    environment=r"[A-Za-z0-9][A-Za-z0-9_.+-]*",


def study_file(wildcards):
    return str(STUDIES[wildcards.study].path)


def kernel_files(wildcards):
    return [str(p) for p in STUDIES[wildcards.study].kernel_files]


def targets_of(wildcards):
    return STUDIES[wildcards.study].file.targets


def drift_files(study):
    return [f"results/{study}/drift@{name}.json" for name in ENVIRONMENTS[study]]


def drift_gates():
    gates = expand("results/{study}/drift_checked", study=STUDIES)
    return gates if config.get("drift") == "fail" else []


def records_here(wildcards):
    study = wildcards.study
    kinds = ["correctness", "measurement", "driver"] if DEVICE else ["correctness"]
    if DEVICE and STUDIES[study].file.dose:
        kinds.append("dose")
    if DEVICE and Path(f"results/{study}/autotune/{DEVICE}.json").exists():
        kinds.append("autotune")
    if DEVICE and Path(f"results/{study}/serving/{DEVICE}.json").exists():
        kinds.append("serving")
    return [f"results/{study}/{kind}/{CHECKED_ON}.json" for kind in kinds]


def records_to_publish(wildcards):
    study, device = wildcards.study, wildcards.device
    if "device" in config and device != DEVICE:
        # brought from another machine: taken as they are, nothing is made again
        return probe.records_of(study, device)
    return [
        f"results/{study}/report.html",
        f"results/{study}/measurement/{device}.json",
    ]


def extra_rules():
    return sorted(map(str, Path(workflow.basedir, "rules/extra").glob("*.smk")))
