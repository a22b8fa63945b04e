"""What ``snakemake --config`` may say: names and types, so that a typo is an error and not a silence."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from occupancy_probe.exc import StudyError


class Options(BaseModel):
    """The workflow's options; other keys belong to rules of the user's own and pass."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    study: str = "dsv4_attn_occupancy"
    """Names in ``studies/`` or paths, separated by commas."""
    commit: bool = True
    """False: commit nothing; results are then exploratory."""
    allow_dirty: bool = False
    """True: commit the plan although its inputs are not committed; exploratory too."""
    amend: str = ""
    """Why a committed plan is changed; goes into the commit."""
    device: str | None = None
    """Publish the local records of this device, which need not be here."""
    triton: str | None = None
    """Other Tritons, as environments or folders, separated by commas."""
    drift: Literal["fail"] | None = None
    """``fail``: exit non-zero when an arm's verdict changed since the evidence."""
    runs: int = Field(default=20, ge=1)
    """Real first calls of the autotuner, each in a fresh process."""
    arms: str = ""
    """Arms to paste or serve, separated by commas; empty: the rule's choice."""
    rev: Any = None
    """Revision to reproduce: a commit, a tag, or ``STUDY@N``."""
    repository: str | None = None
    """Repository to reproduce from, if not this one."""
    env: str = "present"
    """``locked``: reproduce in an environment built from the revision's own pins."""


_KINDS = {
    "bool": "True or False",
    "literal": "fail",
    "int": "a whole number",
    "greater": "a number of at least 1",
}


def read_options(config: Mapping[str, Any]) -> Options:
    """Options from Snakemake's ``config``; StudyError names the key, what it takes, and a near miss."""
    known = list(Options.model_fields)
    for key in config:
        if key not in known and (near := difflib.get_close_matches(key, known, 1, 0.75)):
            raise StudyError(f"--config {key}: unknown option; did you mean {near[0]!r}?")
    try:
        return Options.model_validate({k: v for k, v in config.items() if k in known})
    except ValidationError as e:
        fault = e.errors(include_url=False)[0]
        name, given = fault["loc"][0], fault["input"]
        if isinstance(given, Mapping | list):  # Snakemake reads a value as YAML
            raise StudyError(
                f"--config {name}: takes text, and YAML reads more in this; quote it twice:"
                f""" --config '{name}="…"'"""
            ) from e
        kind = next((k for t, k in _KINDS.items() if t in fault["type"]), "text")
        raise StudyError(f"--config {name}={given}: takes {kind}") from e
