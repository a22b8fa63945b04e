"""Compile one traced specialization for one target; runs in a worker process, without torch."""

from __future__ import annotations

import contextlib
import io
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_probe.gpu import Target
from occupancy_probe.launch.load import decoded, load_function
from occupancy_probe.records import Specialization


@dataclass(frozen=True)
class Binary:
    """What the compiler made: an ELF file with its metadata, and the texts on the way to it.

    cubin: the ELF file, a hsaco on AMD. shared_bytes: dynamic shared memory (LDS) per CTA.
    tensor_memory_columns: 0 but on sm_100 and sm_103. ptxas_log: output of ``ptxas -v`` (registers,
    stack frame, spill stores and loads in bytes), empty on AMD. texts: by Triton's names, ``ttgir``
    and either ``ptx`` or ``llir`` and ``amdgcn``.
    """

    cubin: bytes
    shared_bytes: int
    tensor_memory_columns: int
    num_warps: int
    num_ctas: int
    ptxas_log: str
    texts: Mapping[str, str]
    seconds: float


_TEXTS = {"cuda": ("ttgir", "ptx"), "hip": ("ttgir", "llir", "amdgcn")}


def compile_specialization(folder: Path, spec: Specialization, target: Target) -> Binary:
    """Real code for ``target`` from the kernel source in ``folder``; no GPU and no driver needed.

    Raises whatever Triton raises (CompilationError, PTXASError, AssertionError …).
    """
    from triton import knobs

    from occupancy_probe.launch.driver import compile_only

    started = time.perf_counter()
    said = io.StringIO()
    # Kernels may ask what they are compiled for (tl.target_info): the driver must answer `target`.
    # A knob is also an environment variable: without the scope every later child would print logs.
    with knobs.nvidia.scope(), compile_only(target), contextlib.redirect_stdout(said):
        knobs.nvidia.dump_ptxas_log = True
        compiled = compiled_kernel(folder, spec, target)
    seconds = time.perf_counter() - started
    log = said.getvalue()
    if target.backend != "cuda":
        log = ""
    elif "Used " not in log:  # taken from Triton's cache: ptxas did not run now
        log = _ptxas_verbose(compiled.asm["ptx"], target)
    meta = compiled.metadata
    return Binary(
        cubin=compiled.asm["cubin" if target.backend == "cuda" else "hsaco"],
        shared_bytes=meta.shared,
        tensor_memory_columns=getattr(meta, "tmem_size", 0) or 0,
        num_warps=meta.num_warps,
        num_ctas=meta.num_ctas,
        ptxas_log=log,
        texts={name: compiled.asm[name] for name in _TEXTS[target.backend]},
        seconds=seconds,
    )


def compiled_kernel(folder: Path, spec: Specialization, target: Target) -> Any:
    """Triton's own compiled kernel of ``spec``, not loaded onto a device."""
    import triton
    from triton.compiler import ASTSource

    from occupancy_probe.launch.driver import gpu_target

    source = ASTSource(
        load_function(folder, spec),
        {k: decoded(v, folder, spec) for k, v in spec.signature.items()},
        {tuple(p): decoded(v, folder, spec) for p, v in spec.constants},
        {tuple(p): v for p, v in spec.attributes},
    )
    return triton.compile(source, target=gpu_target(target), options=dict(spec.options))


def compiler_versions(target: Target) -> Mapping[str, str]:
    """Versions that decide what comes out: Triton, and on NVIDIA the ptxas it uses for ``target``."""
    import triton

    if target.backend != "cuda":  # LLVM's AMD back end is a part of Triton
        return {"triton": triton.__version__}
    from triton.backends.nvidia.compiler import get_ptxas

    return {"triton": triton.__version__, "ptxas": get_ptxas(target.arch).version}


def disassemble(code: bytes, target: Target) -> str | None:
    """SASS of bare NVIDIA machine code, one instruction a line; None where nvdisasm cannot.

    Nearly all of its time goes into its start, so the code of many kernels is better given at once.
    """
    from triton import knobs

    with tempfile.TemporaryDirectory() as work:
        path = Path(work, "code.bin")
        path.write_bytes(code)
        try:
            command = [knobs.nvidia.nvdisasm.path, "--binary", f"SM{target.arch}", str(path)]
            done = subprocess.run(command, capture_output=True, text=True)
        except (OSError, RuntimeError):  # a Triton without its own tools
            return None
    return done.stdout if done.returncode == 0 else None


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
