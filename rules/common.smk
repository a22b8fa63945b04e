"""Study and path helpers, no rules.

Gives STUDIES (name → study, chosen by `--config study=…`), DEVICE (the GPU here, or None) and the
look-ups that rules share.
"""

import sys
from pathlib import Path

from occupancy_probe import workflow as probe
from occupancy_probe.exc import ProbeError

try:
    STUDIES = probe.select_studies(config["study"])
except ProbeError as fault:
    sys.exit("\n".join(f"error: {line}" for line in str(fault).splitlines()))

DEVICE = probe.device_slug()
CHECKED_ON = DEVICE or probe.INTERPRETER
TEMPLATES = f"{workflow.basedir}/templates"


wildcard_constraints:
    study="|".join(STUDIES),
    target=r"(sm|gfx)_?\w+",
    device=r"[a-z0-9-]+",


def study_file(wildcards):
    return str(STUDIES[wildcards.study].path)


def kernel_files(wildcards):
    return [str(p) for p in STUDIES[wildcards.study].kernel_files]


def targets_of(wildcards):
    return STUDIES[wildcards.study].file.targets


def extra_rules():
    return sorted(map(str, Path(workflow.basedir, "rules/extra").glob("*.smk")))
