"""Processes that end with the one that started them, even when that one is killed (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """From now on the kernel kills this process when the thread that started it ends."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def begin_worker(parent: int) -> None:
    """First act of a worker of the process ``parent``: end with it, and take everything along.

    Compilers hang and abort. A worker that is killed for that must not leave the ptxas that it
    waits for behind, so whatever the worker starts ends with the worker.
    """
    end_with_parent()
    if os.getppid() != parent:  # it ended before the call above
        os._exit(1)
    original = subprocess.Popen.__init__

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) < 6:  # preexec_fn is the sixth argument
            kwargs.setdefault("preexec_fn", end_with_parent)
        original(self, *args, **kwargs)

    subprocess.Popen.__init__ = start  # type: ignore[method-assign]
