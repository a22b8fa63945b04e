"""Compile one traced specialization for one target; runs in a worker process, without torch."""

from __future__ import annotations

import contextlib
import io
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from occupancy_probe.gpu import Target
from occupancy_probe.launch.load import load_file
from occupancy_probe.records import Specialization


@dataclass(frozen=True)
class Binary:
    """What the compiler made: the cubin with its metadata and ptxas' own words.

    shared_bytes: dynamic shared memory per CTA. tensor_memory_columns: 0 before sm_100.
    ptxas_log: output of ``ptxas -v`` (registers, stack frame, spill stores and loads in bytes).
    """

    cubin: bytes
    shared_bytes: int
    tensor_memory_columns: int
    num_warps: int
    num_ctas: int
    ptxas_log: str
    seconds: float


def compile_specialization(folder: Path, spec: Specialization, target: Target) -> Binary:
    """Real code for ``target`` from the kernel source in ``folder``; no GPU and no driver needed.

    Raises whatever Triton raises (CompilationError, PTXASError, AssertionError …).
    """
    import triton
    from triton import knobs
    from triton.compiler import ASTSource

    from occupancy_probe.launch.driver import gpu_target

    knobs.nvidia.dump_ptxas_log = True
    function = _function(folder / spec.file, spec.kernel)
    source = ASTSource(
        function,
        {k: _decode(v, folder) for k, v in spec.signature.items()},
        {tuple(p): _decode(v, folder) for p, v in spec.constants},
        {tuple(p): v for p, v in spec.attributes},
    )
    started = time.perf_counter()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        compiled = triton.compile(source, target=gpu_target(target), options=dict(spec.options))
    seconds = time.perf_counter() - started
    log = said.getvalue()
    if "Used " not in log:  # taken from Triton's cache: ptxas did not run now
        log = _ptxas_verbose(compiled.asm["ptx"], target)
    meta = compiled.metadata
    return Binary(
        cubin=compiled.asm["cubin"],
        shared_bytes=meta.shared,
        tensor_memory_columns=getattr(meta, "tmem_size", 0) or 0,
        num_warps=meta.num_warps,
        num_ctas=meta.num_ctas,
        ptxas_log=log,
        seconds=seconds,
    )


def compiler_versions(target: Target) -> Mapping[str, str]:
    """Versions that decide what comes out: Triton and the ptxas it uses for ``target``."""
    import triton
    from triton.backends.nvidia.compiler import get_ptxas

    return {"triton": triton.__version__, "ptxas": get_ptxas(target.arch).version}


@cache
def _function(path: Path, name: str) -> Any:
    from occupancy_probe.launch.force import unwrap

    return unwrap(getattr(load_file(path), name))


def _decode(value: Any, folder: Path) -> Any:
    """Inverse of the encoding in :mod:`.trace`."""
    import triton.language as tl

    if isinstance(value, dict) and "dtype" in value:
        return tl.dtype(value["dtype"])
    if isinstance(value, dict) and "jit" in value:
        return _function(Path(value["file"]), value["jit"])
    if isinstance(value, list):
        return tuple(_decode(v, folder) for v in value)
    return value


def _ptxas_verbose(ptx: str, target: Target) -> str:
    from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

    with tempfile.TemporaryDirectory() as work:
        source = Path(work, "kernel.ptx")
        source.write_text(ptx)
        command = [get_ptxas(target.arch).path, "-v", "-lineinfo"]
        command += [f"--gpu-name={sm_arch_from_capability(target.arch)}", str(source)]
        done = subprocess.run(
            [*command, "-o", str(Path(work, "kernel.o"))],
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stderr
