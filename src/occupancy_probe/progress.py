"""Progress on standard error: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_EVERY_S = 10.0


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Yields ``report(done, total, what)``."""
    if not sys.stderr.isatty():
        started, last = time.monotonic(), [0.0]

        def line(done: int, total: int, what: str) -> None:
            now = time.monotonic()
            if done == total or now - last[0] > _EVERY_S:
                last[0] = now
                left = (now - started) / done * (total - done) if done else 0.0
                rest = f", about {left:.0f} s left" if left >= 1 else ""
                print(f"{title}: {done}/{total} {what}{rest}", file=sys.stderr, flush=True)

        yield line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=None, what="")
        yield lambda done, total, what: bars.update(task, completed=done, total=total, what=what)
