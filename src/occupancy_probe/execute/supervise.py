"""Run tasks in a child process that may crash or hang, and lose nothing but the task at fault.

The child prints one JSON object per line: ``{"begin": task}``, ``{"done": task, …}``,
``{"failed": task, "reason": …}``. What it does not finish is given to a fresh child.

A child that needs the GPU says ``{"ready": true}`` when it has imported all it needs, waits for its
turn, and is through with it when it tells its last task.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

START_LIMIT_S = 600.0
"""For a child to import, allocate and compute references before its first task ends."""

_WORDS = {"ready", "begin", "done", "failed"}

END_LIMIT_S = 10.0
"""For a child to end after it closed its output or told its last task."""


class Turn(Protocol):
    """What children take one after another; see :class:`.device.GpuTurn`."""

    environment: Mapping[str, str]
    """Variables of the children's environment."""

    def enter(self) -> dict[str, Any]:
        """Wait for it, and say what the child is told."""

    def leave(self) -> None:
        """Give it back; does nothing without it."""


def supervise(
    module: str,
    job: Mapping[str, Any],
    tasks: list[str],
    limit_s: float,
    environment: Mapping[str, str] | None = None,
    turn: Turn | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ``(task, message)`` for every task, in order of completion.

    module: run as ``python -m module`` with ``job`` and the open ``tasks`` as one line of JSON on
    stdin. turn: entered when the child is ready, left when its last task is told or it has ended.
    limit_s: seconds without a word from the child during a task. A task that ends its child or
    exceeds the limit yields ``{"failed": task, "reason": …, "kind": "error" | "no answer"}`` with
    whatever its last ``begin`` said beside the task.
    """
    remaining = list(tasks)
    idle_deaths = 0
    if turn:
        environment = {**(environment or {}), **turn.environment}
    while remaining:
        current: str | None = None
        last: dict[str, Any] = {}
        finished = 0
        child = _Child(module, {**job, "tasks": remaining}, environment, waits=turn is not None)
        try:
            for message in child.messages(limit_s):
                if "ready" in message and turn:
                    child.say(turn.enter())
                    continue
                if "begin" in message:
                    current, last = message["begin"], message
                    continue
                task = message.get("done") or message.get("failed")
                if task in remaining:
                    if "failed" in message:
                        message.setdefault("kind", "error")
                    remaining.remove(task)
                    finished += 1
                    current = None
                    if turn and not remaining:  # before anything is done with the message
                        turn.leave()
                    yield task, message
                    if not remaining:  # a child that hangs while it is torn down does no harm
                        child.end()
                        return
        except TimeoutError:
            child.kill()
            blamed = current or remaining[0]
            remaining.remove(blamed)
            reason = f"no answer in {limit_s:g} s" if current else "the worker did not start"
            yield blamed, {**last, "failed": blamed, "reason": reason, "kind": "no answer"}
            continue
        except BaseException:  # nobody wants the rest: leave no child behind
            child.kill()
            raise
        finally:
            if turn and child.ended:
                turn.leave()
        status = child.end()
        if turn:
            turn.leave()
        if current is not None:
            remaining.remove(current)
            reason = f"ended its process (exit status {status}): {child.last_words()}"
            yield current, {**last, "failed": current, "reason": reason, "kind": "error"}
        elif finished == 0:
            idle_deaths += 1
            if idle_deaths > 1 or status == 0:
                reason = f"the worker ended before any task: {child.last_words()}"
                for task in remaining:
                    yield task, {"failed": task, "reason": reason, "kind": "error"}
                return


class _Child:
    def __init__(
        self,
        module: str,
        job: Mapping[str, Any],
        environment: Mapping[str, str] | None,
        waits: bool,
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self.say(job)
        if not waits:
            self._close_input()

    def say(self, message: Mapping[str, Any]) -> None:
        """One line on the child's standard input."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _close_input(self) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def _read_output(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            self._errors = [*self._errors[-50:], line.rstrip()]

    def messages(self, limit_s: float) -> Iterator[dict[str, Any]]:
        """Messages until the child closes its output.

        TimeoutError after ``limit_s`` of silence during a task, ``START_LIMIT_S`` between tasks.
        """
        busy = False
        while True:
            try:
                line = self._lines.get(timeout=limit_s if busy else START_LIMIT_S)
            except queue.Empty:
                raise TimeoutError from None
            if line is None:
                return
            if message := _message(line):
                busy = "begin" in message
                yield message

    def end(self, grace_s: float = END_LIMIT_S) -> int:
        """Exit status, after at most ``grace_s`` more seconds of life."""
        self._close_input()
        try:
            status = self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        for reader in self._readers:
            reader.join(timeout=5)
        return status

    def kill(self) -> None:
        self.end(grace_s=0)

    def last_words(self) -> str:
        """The last line on the child's standard error."""
        said = [line for line in self._errors if line.strip()]
        return said[-1].strip() if said else "no message"


def _message(line: str) -> dict[str, Any] | None:
    """The message in a line of the child's output; None for whatever else a kernel may print."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    known = isinstance(found, dict) and _WORDS & found.keys()
    return found if known else None


def tell(**message: Any) -> None:
    """In the child: say one message to the supervisor, on a line of its own."""
    print(f"\n{json.dumps(message)}", flush=True)
