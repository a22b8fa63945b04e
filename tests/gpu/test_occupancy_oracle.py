"""Our occupancy formula against NVIDIA's own header, which Triton ships, where a compiler is here."""

import importlib.util
import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from occupancy_probe.gpu import Target, occupancy, targets

PROGRAM = r"""
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
  int cc, threads, warps, shared, block, reserved, r, w, s;
  while (scanf("%d %d %d %d %d %d %d %d %d", &cc, &threads, &warps, &shared, &block, &reserved,
               &r, &w, &s) == 9) {
    cudaOccDeviceProp p;
    p.computeMajor = cc / 10; p.computeMinor = cc % 10; p.maxThreadsPerBlock = threads;
    p.maxThreadsPerMultiprocessor = warps * 32; p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.warpSize = 32; p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = shared;
    p.numSms = 100; p.sharedMemPerBlockOptin = block; p.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes a;
    a.maxThreadsPerBlock = 1024; a.numRegs = r; a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    a.maxDynamicSharedSizeBytes = s; a.numBlockBarriers = 1;
    cudaOccDeviceState state;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult result;
    int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &p, &a, &state, w * 32, s);
    printf("%d\n", error ? -error : result.activeBlocksPerMultiprocessor);
  }
}
"""
NVIDIA = [t for t in targets().values() if t.backend == "cuda"]
UNKNOWN_DEVICE = -2


@pytest.fixture(scope="module")
def header_says(tmp_path_factory):
    compiler = shutil.which("g++") or shutil.which("clang++")
    triton = importlib.util.find_spec("triton")
    if compiler is None or triton is None or triton.origin is None:
        pytest.skip("needs a C++ compiler and Triton's copy of cuda_occupancy.h")
    include = Path(triton.origin).parent / "backends/nvidia/include"
    if not (include / "cuda_occupancy.h").exists():
        pytest.skip("this Triton ships no cuda_occupancy.h")
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "oracle.cpp").write_text(PROGRAM)
    command = [compiler, "-w", f"-I{include}", "-o", folder / "oracle", folder / "oracle.cpp"]
    subprocess.run(command, check=True)

    def ask(t: Target, kernels):
        device = (
            f"{t.arch} {t.max_threads_per_cta} {t.max_warps_per_sm} {t.shared_per_sm_bytes} "
            f"{t.shared_per_block_bytes} {t.reserved_shared_bytes}"
        )
        lines = "".join(f"{device} {r} {w} {s}\n" for r, w, s in kernels)
        done = subprocess.run(
            [folder / "oracle"], input=lines, text=True, capture_output=True, check=True
        )
        return [int(line) for line in done.stdout.split()]

    return ask


@pytest.mark.parametrize("t", NVIDIA, ids=lambda t: t.name)
def test_ctas_per_sm_agree_with_nvidias_header(header_says, t):
    registers = [*range(16, 256, 13), 128, 168, 248, 255]
    num_warps = [1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 31, 32]
    shared = [
        0,
        1,
        1024,
        7_000,
        9_300,
        16_384,
        33_000,
        49_152,
        65_536,
        82_176,
        101_376,
        101_377,
        232_448,
    ]
    kernels = list(itertools.product(registers, num_warps, shared))
    expected = header_says(t, kernels)
    if UNKNOWN_DEVICE in expected:
        pytest.skip(f"this header does not know {t.name}")
    assert [occupancy(t, *kernel).ctas_per_sm for kernel in kernels] == expected
