"""Worker processes for everything that may abort, hang or fill memory: compiling and disassembling."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessPool

from occupancy_probe.gpu import Target
from occupancy_probe.lifetime import begin_worker
from occupancy_probe.records import Reason, Specialization
from occupancy_probe.research.code import digest_codes
from occupancy_probe.research.feasibility import Compiled, compile_variant

COMPILE_TIME = "compile time"
"""The limit of an arm that got no answer."""

BATCH, BATCH_S = 64, 5.0
"""Kernels disassembled at once, and seconds after which fewer are: nvdisasm takes 0.3 s to start."""

CALL_S = 600.0
"""Limit of what is not a compile: tracing imports torch and the Problem, disassembling is quick."""

Key = TypeVar("Key", bound=Hashable)


class Workers:
    """A pool that starts with its first job; a context manager."""

    def __init__(self, folder: Path, workers: int, limit_s: float) -> None:
        self._folder, self._workers = folder, workers
        self._limit_s = limit_s
        self._pool: ProcessPool | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._pool is not None:
            self._pool.stop() if kind else self._pool.close()
            self._pool.join()

    def compile_all(
        self, jobs: Mapping[Key, tuple[Specialization, Target]]
    ) -> Iterator[tuple[Key, Compiled]]:
        """Figures and code digest of each job, in the order they become known.

        A compile that aborts or never ends costs only its own job. Few are queued at a time, so that
        disassembling takes its turn among them and memory does not grow with their number.
        """
        done: SimpleQueue[Any] = SimpleQueue()
        todo = iter(jobs)
        compiling: dict[Any, Key] = {}
        digesting: dict[Any, dict[Key, Compiled]] = {}
        open_ = Counter(target.name for _, target in jobs.values())
        waiting: dict[str, dict[Key, Compiled]] = {name: {} for name in open_}
        flushed = dict.fromkeys(open_, time.monotonic())

        def schedule(function: Callable[..., Any], *arguments: Any, limit_s: float) -> Any:
            future = self._schedule(function, arguments, limit_s)
            future.add_done_callback(done.put)
            return future

        while True:
            for key in islice(todo, max(0, 2 * self._workers - len(compiling))):
                spec, target = jobs[key]
                given = (self._folder, spec, target)
                compiling[schedule(compile_variant, *given, limit_s=self._limit_s)] = key
            for name, batch in waiting.items():
                late = time.monotonic() - flushed[name] > BATCH_S
                if batch and (late or not open_[name] or len(batch) >= BATCH):
                    materials = [one.material for one in batch.values()]
                    target = jobs[next(iter(batch))][1]
                    future = schedule(digest_codes, materials, target, limit_s=CALL_S)
                    digesting[future] = batch
                    waiting[name], flushed[name] = {}, time.monotonic()
            if not compiling and not digesting:
                return
            try:
                future = done.get(timeout=BATCH_S)
            except Empty:  # one hangs: the others' records need not wait for it
                continue
            if future in compiling:
                key, result = compiling.pop(future), self._compiled(future)
                name = jobs[key][1].name
                open_[name] -= 1
                if result.material is None:
                    yield key, result
                else:
                    waiting[name][key] = result
            else:
                batch = digesting.pop(future)
                try:
                    codes = future.result()
                except Exception as e:  # a digest is a comfort: no arm is lost for want of it
                    if len(batch) > 1:  # whose fault it is shows one by one
                        for key, one in batch.items():
                            alone, of = [one.material], jobs[key][1]
                            future = schedule(digest_codes, alone, of, limit_s=CALL_S)
                            digesting[future] = {key: one}
                        continue
                    codes = [None]
                    said = f"its machine code cannot be read: {type(e).__name__}: {e}"[:200]
                    batch = {k: dataclasses.replace(c, warning=said) for k, c in batch.items()}
                for (key, one), code in zip(batch.items(), codes, strict=True):
                    figures = {**(one.figures or {}), "code": code}
                    yield key, dataclasses.replace(one, figures=figures, material=None)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """``function`` in a worker process; raises what it raised, TimeoutError after CALL_S."""
        return self._schedule(function, arguments, CALL_S).result()

    def _schedule(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], limit_s: float
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
        return self._pool.schedule(function, arguments, timeout=limit_s)

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
