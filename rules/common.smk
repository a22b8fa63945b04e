"""Study and path helpers, no rules.

Gives OPTIONS (what `--config` said), STUDIES (name → study), ENVIRONMENTS (other Tritons per study),
DEVICE (the GPU here, or None) and the look-ups that rules share.
"""

import sys
from pathlib import Path

from occupancy_probe import workflow as probe
from occupancy_probe.exc import ProbeError

try:
    OPTIONS = probe.read_options(config)
    REVISION = probe.revision("HEAD" if OPTIONS.rev is None else OPTIONS.rev)
    STUDIES = probe.select_studies(
        OPTIONS.study, needed=OPTIONS.rev is None and OPTIONS.repository is None
    )
    ENVIRONMENTS = probe.environments(STUDIES, OPTIONS.triton)
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
    study = STUDIES[wildcards.study]
    return [str(p) for p in (*study.kernel_files, *study.rule_files)]


def targets_of(wildcards):
    return STUDIES[wildcards.study].file.targets


def device_matrix(wildcards):
    return probe.device_matrix(STUDIES[wildcards.study])


def place_of(wildcards):
    return ENVIRONMENTS[wildcards.study].get(wildcards.environment, "no-such-place")


def environment_digest(wildcards):
    return probe.environment_digest(
        STUDIES[wildcards.study], place_of(wildcards), wildcards.get("target")
    )


def drift_files(study):
    return [f"results/{study}/drift@{name}.json" for name in ENVIRONMENTS[study]]


def matrices_that_fit():
    wanted = {True: "must_fit_met", False: "feasibility.json"}
    return [
        f"results/{s.name}/{wanted[bool(s.file.must_fit)]}" for s in STUDIES.values()
    ]


def drift_gates():
    gates = expand("results/{study}/drift_checked", study=STUDIES)
    return gates if OPTIONS.drift == "fail" else []


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
    if OPTIONS.device and device != DEVICE:
        # brought from another machine: taken as they are, nothing is made again
        return [
            f"results/{study}/plan_commit.json",
            *probe.records_of(STUDIES[study], device),
        ]
    return [
        f"results/{study}/report.html",
        f"results/{study}/measurement/{device}.json",
    ]


def extra_rules():
    return sorted(map(str, Path(workflow.basedir, "rules/extra").glob("*.smk")))
