"""Force and record inside a program that nobody edits: what a started interpreter does by itself.

``occupancy-probe run`` starts the program with :data:`SITE` in front of ``PYTHONPATH``. The
``sitecustomize`` there runs in the program and in every Python child it starts, and calls
:func:`begin`. Nothing is imported but the standard library until the program imports Triton.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.util import Finalize
from pathlib import Path
from types import ModuleType
from typing import Any

from occupancy_probe.exc import ForceError

FORCE = "OCCUPANCY_PROBE_FORCE"
"""``module:kernel={"num_warps": 8}``, several on lines of their own, or one JSON object of them."""
NOTES = "OCCUPANCY_PROBE_NOTES"
"""Folder in which every process leaves what it forced and launched."""
RECORD = "OCCUPANCY_PROBE_RECORD"
"""Set: launches are recorded."""
SITE = Path(__file__).with_name("site")


def parse_rules(text: str) -> dict[str, dict[str, Any]]:
    """Config by ``module:kernel``; ForceError with an example where ``text`` is neither form."""
    example = """write module:kernel='{"num_warps": 8}'"""
    rules: dict[str, dict[str, Any]] = {}
    if text.lstrip().startswith("{"):
        pairs = _object(text, example).items()
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        split = [line.partition("=") for line in lines]
        pairs = ((name, _object(config, example)) for name, _, config in split)  # type: ignore[assignment]
    for name, config in pairs:
        module, _, kernel = name.strip().partition(":")
        if not module or not kernel or not isinstance(config, dict) or not config:
            raise ForceError(f"{FORCE}: {name!r} is no kernel with a config; {example}")
        if name.strip() in rules:
            raise ForceError(f"{FORCE}: {name.strip()} is given twice; write its config in one")
        rules[name.strip()] = config
    return rules


def begin() -> None:
    """Called when an interpreter starts: force and record from Triton's import on."""
    rules = parse_rules(os.environ.get(FORCE, ""))
    if rules or os.environ.get(RECORD):
        sys.meta_path.insert(0, _AfterTriton(rules))


_installed = False


def install(rules: Mapping[str, Mapping[str, Any]]) -> None:
    """Intercept the launches of this process; once, however often the program loads Triton again."""
    global _installed
    if _installed:
        return
    from occupancy_probe.launch import intercept, record_launches
    from occupancy_probe.launch.override import Overrides, Rule, log

    notes = _Notes()
    if os.environ.get(RECORD):
        notes.recorder = record_launches.Recorder(notes.launched)
        intercept.install(notes.recorder)
    if rules:
        if not log.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("occupancy-probe: %(message)s"))
            log.addHandler(handler)
            log.setLevel(logging.INFO)
        made = [Rule(name, config) for name, config in rules.items()]
        intercept.install(Overrides(made, lambda rule: notes.launched()))
        notes.follow(made)
    if notes.recorder:
        intercept.install(notes.recorder.keys)
    _installed = True


class _Notes:
    """What one process did, left in the folder :data:`NOTES`; a forked child starts its own."""

    def __init__(self) -> None:
        self.rules: Sequence[Any] = ()
        self.recorder: Any = None
        self._pid = 0
        self._file = ""
        self._next = 1
        self._events = 0

    def follow(self, rules: Sequence[Any]) -> None:
        """Report on ``rules``; a forked child counts from nothing."""
        self.rules = rules
        for rule in rules:
            os.register_at_fork(after_in_child=rule.forget_launches)

    def launched(self) -> None:
        """Written at every doubling and at the end: a process that is killed has left something."""
        if self._pid != os.getpid():
            self._pid, self._next, self._events = os.getpid(), 1, 0
            self._file = f"{self._pid}-{os.urandom(4).hex()}.json"  # ids come again, also by exec
            atexit.register(self._end, os.getpid())
            Finalize(None, self._end, (os.getpid(),), exitpriority=0)  # multiprocessing's children
        self._events += 1
        if self._events >= self._next:
            self._next *= 2
            self._write()

    def _end(self, pid: int) -> None:
        if pid == os.getpid() and self._events:
            self._write()
            self._events = 0
            for rule in self.rules:
                if rule.launches:
                    print(f"occupancy-probe: {rule} (process {pid})", file=sys.stderr)

    def _write(self) -> None:
        if not (folder := os.environ.get(NOTES)):
            return
        content = {
            "forced": [
                {
                    "kernel": r.name,
                    "config": r.config,
                    "launches": r.launches,
                    "bypassed": r.bypassed,
                }
                for r in self.rules
                if r.launches
            ],
            "launches": self.recorder.launches() if self.recorder else [],
        }
        path = Path(folder, self._file)
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(content), encoding="utf-8")
        temporary.replace(path)


class _AfterTriton(importlib.abc.MetaPathFinder):
    """Finds ``triton`` as everybody else does, and installs once the package has been executed.

    It stays: libraries ask for the spec of Triton to know whether it is there, long before they import it.
    """

    def __init__(self, rules: Mapping[str, Mapping[str, Any]]) -> None:
        self._rules = rules

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "triton":
            return None
        others = [f for f in sys.meta_path if f is not self and hasattr(f, "find_spec")]
        found = (f.find_spec(name, path, target) for f in others)
        spec = next((s for s in found if s is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Installing(spec.loader, self._rules)
        return spec


class _Installing(importlib.abc.Loader):
    def __init__(self, loader: Any, rules: Mapping[str, Mapping[str, Any]]) -> None:
        self._loader, self._rules = loader, rules

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        install(self._rules)


def _object(text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as e:
        raise ForceError(f"{FORCE}: {text.strip()!r} is no JSON ({e}); {example}") from e
    if not isinstance(found, dict):
        raise ForceError(f"{FORCE}: {text.strip()!r} is no JSON object; {example}")
    return found
