"""Print the JSON schema of study files."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace

HELP = "the JSON schema of study files, for editors"
STUDY = False


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.study.schema import StudyFile

    schema = StudyFile.model_json_schema(by_alias=True)
    try:
        print(json.dumps(schema, indent=2, ensure_ascii=False), flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
