"""Run a program that nobody edits with kernels forced to a config, or record what it launches.

occupancy-probe run --force module:kernel='{"num_warps": 8}' -- python server.py …
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path
from typing import Any

from occupancy_probe import records
from occupancy_probe.exc import ForceError

HELP = "run a program with kernels forced to a config, or record its launches"
STUDY = False


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument(
        "--force",
        action="append",
        default=[],
        metavar="MODULE:KERNEL=JSON",
        help="launch this kernel under this config only; OCCUPANCY_PROBE_FORCE says the same",
    )
    parser.add_argument("--record", type=Path, help="write what is launched to this file")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="-- and the command line")


def run(options: Namespace) -> int:
    """See the module; returns the program's own status, 2 where nothing was there to be forced."""
    from occupancy_probe.launch.program import FORCE, NOTES, RECORD, SITE, parse_rules

    command = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not command:
        raise ForceError("no program given; write `occupancy-probe run … -- python server.py`")
    given = os.environ.get(FORCE, "")
    rules = {**parse_rules(given), **parse_rules("\n".join(options.force))}
    if not rules and options.record is None:
        raise ForceError("nothing to do; give --force, OCCUPANCY_PROBE_FORCE or --record FILE")
    with tempfile.TemporaryDirectory(prefix="occupancy-probe-") as notes:
        environment = {**os.environ, FORCE: json.dumps(rules), NOTES: notes}
        environment.pop(RECORD, None)
        if options.record is not None:
            environment[RECORD] = "1"
        path = [str(SITE), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        status = _status(command, environment)
        found = [json.loads(p.read_text()) for p in sorted(Path(notes).glob("*.json"))]
    if options.record is not None:
        launches = merge([entry for note in found for entry in note["launches"]])
        content = {"schema": "occupancy-probe-launches/1", "command": command, "launches": launches}
        records.write_text(options.record, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        print(
            f"occupancy-probe: {len(launches)} distinct launches in {options.record}",
            file=sys.stderr,
        )
    used = Counter[str]()
    for note in found:
        used.update({rule["kernel"]: rule["launches"] for rule in note["forced"]})
    for name, config in rules.items():
        print(
            f"occupancy-probe: {name} {json.dumps(config)}: {used[name]} launches", file=sys.stderr
        )
    idle = [name for name in rules if not used[name]]
    if idle and not status:
        raise ForceError(
            f"never launched: {', '.join(idle)}; the module is named as the program imports it, and the"
            " kernel as it is called there"
        )
    return status


def _status(command: list[str], environment: dict[str, str]) -> int:
    """The program's exit status; an interrupt is the program's to handle."""
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as e:
        raise ForceError(f"{command[0]}: {e.strerror}; name a program that can be run") from e
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = child.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return status if status >= 0 else 128 - status


def merge(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The launches of all processes, equal ones counted together."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        identity = json.dumps({k: v for k, v in entry.items() if k != "count"}, sort_keys=True)
        if identity in found:
            found[identity]["count"] += entry["count"]
        else:
            found[identity] = dict(entry)
    return list(found.values())
