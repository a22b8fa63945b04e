"""Names of arms and workloads, made from their values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from occupancy_probe.exc import StudyError

_SLUG = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")


def make_name(template: str | None, values: Mapping[str, Any], place: str) -> str:
    """``template`` with ``{key}`` replaced, or ``key-value_key-value``; StudyError if no slug."""

    def value(match: re.Match[str]) -> str:
        key = match.group(1)
        if key not in values:
            raise StudyError(
                f"{place}.name: {{{key}}} is not one of {', '.join(values)}; correct the name"
            )
        return str(values[key])

    name = (
        re.sub(r"\{(\w+)\}", value, template)
        if template is not None
        else "_".join(f"{k}-{v}" for k, v in values.items())
    )
    if not _SLUG.fullmatch(name):
        raise StudyError(
            f"{place}.name: {name!r} is not a plain name; use letters, digits, '-', '_', '.'"
        )
    return name
