"""One sub-command per stage; each imports only the rooms it needs, so that cheap ones stay cheap."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from occupancy_probe.exc import ProbeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one stage; 0 on success, 2 with one line per fault on standard error."""
    options = _parser().parse_args(arguments)
    try:
        from occupancy_probe import stages

        status: int | None = getattr(stages, options.command)(options)
        return status or 0
    except ProbeError as e:
        for line in str(e).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="occupancy-probe", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help_: str, study: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help_, description=help_)
        if study:
            made.add_argument("study", type=Path, help="the study file")
            made.add_argument(
                "--results", type=Path, required=True, help="the study's folder of results"
            )
        return made

    command("trace", "note every launch of a study; nothing is compiled")
    plan = command("plan", "render the plan and see that a commit holds it")
    plan.add_argument("--templates", type=Path, default=Path("templates"))
    plan.add_argument("--no-commit", action="store_true", help="leave history alone")
    plan.add_argument("--allow-dirty", action="store_true", help="commit though inputs are not")
    compile_ = command("compile", "compile every arm for one target and judge it")
    compile_.add_argument("--target", required=True)
    compile_.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    command("audit", "what the autotuner around the kernel sees, and which launches it covers")
    check = command("check", "every arm against float64, on the GPU here or in the interpreter")
    check.add_argument("--device", required=True, help="the GPU's name here, or 'interpreter'")
    command("measure", "time the right arms by replicates on the GPU here")
    command("judge", "statistics, verdicts, decision")
    report = command("report", "report.html, and the document with its table filled")
    report.add_argument("--templates", type=Path, default=Path("templates"))
    publish = command("publish", "commit records and filled document as evidence")
    publish.add_argument("--templates", type=Path, default=Path("templates"))
    command("schema", "the JSON schema of study files, for editors", study=False)
    return parser
