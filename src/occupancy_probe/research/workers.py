"""Worker processes for everything that may abort, hang or fill memory: compiling and disassembling."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from pebble import ProcessExpired, ProcessPool

from occupancy_probe.gpu import Target
from occupancy_probe.lifetime import begin_worker
from occupancy_probe.records import Reason, Specialization
from occupancy_probe.research.code import digest_codes
from occupancy_probe.research.feasibility import Compiled, compile_variant

COMPILE_TIME = "compile time"
"""The limit of an arm that got no answer."""

BATCH, BATCH_S = 64, 5.0
"""Kernels disassembled at once, and seconds after which fewer are: nvdisasm takes 0.4 s to start."""


CALL_S = 600.0
"""Limit of what is not a compile: tracing imports torch and the Problem, disassembling is quick."""


class Workers:
    """A pool that starts with its first job; a context manager."""

    def __init__(self, folder: Path, target: Target, workers: int, limit_s: float) -> None:
        self._folder, self._target, self._workers = folder, target, workers
        self._limit_s = limit_s
        self._pool: ProcessPool | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._pool is not None:
            self._pool.stop() if kind else self._pool.close()
            self._pool.join()

    def compile_all(self, specs: Mapping[str, Specialization]) -> Iterator[tuple[str, Compiled]]:
        """Figures and code digest of each specialization, in the order they become known.

        A compile that aborts or never ends costs only its own specialization.
        """
        done: SimpleQueue[Any] = SimpleQueue()
        compiling: dict[Any, str] = {}
        digesting: dict[Any, dict[str, Compiled]] = {}
        waiting: dict[str, Compiled] = {}
        for key, spec in specs.items():
            future = self._schedule(compile_variant, (self._folder, spec, self._target))
            compiling[future] = key
            future.add_done_callback(done.put)
        flushed = time.monotonic()
        while compiling or digesting or waiting:
            late = time.monotonic() - flushed > BATCH_S
            if waiting and (late or not compiling or len(waiting) >= BATCH):
                batch, waiting, flushed = waiting, {}, time.monotonic()
                materials = [one.material for one in batch.values()]
                future = self._schedule(digest_codes, (materials, self._target), CALL_S)
                digesting[future] = batch
                future.add_done_callback(done.put)
            try:
                future = done.get(timeout=BATCH_S)
            except Empty:  # one hangs: the others' records need not wait for it
                continue
            if future in compiling:
                key, result = compiling.pop(future), self._compiled(future)
                if result.material is None:
                    yield key, result
                else:
                    waiting[key] = result
            else:
                batch = digesting.pop(future)
                try:
                    codes = future.result()
                except Exception:  # a digest is a comfort: no arm is lost for want of it
                    codes = [None] * len(batch)
                for (key, one), code in zip(batch.items(), codes, strict=True):
                    figures = {**(one.figures or {}), "code": code}
                    yield key, dataclasses.replace(one, figures=figures, material=None)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """``function`` in a worker process; raises what it raised, TimeoutError after CALL_S."""
        return self._schedule(function, arguments, CALL_S).result()

    def _schedule(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], limit_s: float | None = None
    ) -> Any:
        if self._pool is None:
            os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPool(
                max_workers=self._workers,
                context=context,
                initializer=begin_worker,
                initargs=(os.getpid(),),
            )
        return self._pool.schedule(function, arguments, timeout=limit_s or self._limit_s)

    def _compiled(self, future: Any) -> Compiled:
        try:
            result: Compiled = future.result()
        except TimeoutError:
            text = f"no answer from the compiler in {self._limit_s:g} s"
            return Compiled(None, Reason(limit=COMPILE_TIME, text=text))
        except ProcessExpired as e:
            text = f"the compiler ended its process (exit status {e.exitcode})"
            return Compiled(None, Reason(limit="compiler", text=text))
        except Exception as e:  # an assembler's listing that nobody foresaw is this kernel's alone
            text = f"cannot be read: {type(e).__name__}: {e}"[:300]
            return Compiled(None, Reason(limit="compiler", text=text))
        return result
