"""Try a past revision again in a work tree of its own: a table, a verdict, an exit status."""

from __future__ import annotations

import signal
from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "try a past revision again and say what still holds"
STUDY = False
STATUS = {"reproduced": 0, "reproduced in part": 3, "reversed": 4, "gone": 5}


def add_arguments(parser: ArgumentParser) -> None:
    """The revision, and where and how to run it."""
    parser.add_argument("revision", help="a commit, a tag, or STUDY@N")
    parser.add_argument("--study", help="which study, where the revision holds several")
    parser.add_argument("--env", choices=("present", "locked"), default="present")
    parser.add_argument("--into", type=Path, default=Path("results/reproduce"))
    parser.add_argument(
        "--repository", type=Path, default=Path(), help="any clone, also a bare one"
    )
    parser.add_argument(
        "--workflow", type=Path, default=Path("Snakefile"), help="for revisions without a Snakefile"
    )


def run(options: Namespace) -> int:
    """See the module; 0 reproduced, 3 in part, 4 reversed, 5 gone."""
    from occupancy_probe.outcome import judged_again
    from occupancy_probe.plan.difference import differences
    from occupancy_probe.repository import Repository
    from occupancy_probe.reproduce.reproduction import Today, reproduce
    from occupancy_probe.reproduce.rerun import stop
    from occupancy_probe.reproduce.revision import find_revision
    from occupancy_probe.reproduce.show import show_reproduction

    signal.signal(signal.SIGTERM, stop)
    repository = Repository.around(options.repository)
    revision = find_revision(repository, options.revision, options.study)
    today = Today(judged_again, differences, options.workflow)
    found = reproduce(repository, revision, options.into, today, options.env)
    show_reproduction(found, str(options.into / revision.short / "reproduction.json"))
    return STATUS[found.verdict]
