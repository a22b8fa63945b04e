"""What the feasibility stage costs beyond compiling: the whole command against a bare loop.

    python benchmarks/compile_overhead.py                       24 arms × 3 targets of the flagship
    python benchmarks/compile_overhead.py --arms 1000           a small kernel × 1 target

Everything happens in one run, on the same cores, each time with an empty TRITON_CACHE_DIR:

whole    `snakemake feasibility` in a scratch project: start, trace, compile, judge, records
bare     one Python process per core that calls `triton.compile` over its share of the same
         specializations and does nothing else; it tells Triton the target as we do, since kernels
         may ask for it (`tl.target_info`), and must end with the same binaries
again    the same command with nothing changed, against the start of Snakemake on an empty Snakefile
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
FLAGSHIP = REPOSITORY / "studies" / "dsv4_attn_occupancy.yaml"
SMALL = REPOSITORY / "tests" / "fixtures" / "tiny.yaml"

BARE = """
import json, sys
from pathlib import Path
from occupancy_probe.gpu import target
from occupancy_probe.launch.compile import compiled_kernel
from occupancy_probe.launch.driver import compile_only
from occupancy_probe.records import Specialization
folder, share = json.load(sys.stdin)
for name, spec in share:
    with compile_only(target(name)):
        compiled_kernel(Path(folder), Specialization.model_validate(spec), target(name))
"""


def flagship_study() -> dict:
    """24 arms of the flagship kernel: 2 tiles × 2 warps × 6 stages."""
    content = yaml.safe_load(FLAGSHIP.read_text(encoding="utf-8"))
    content["kernel"]["path"] = str(REPOSITORY / "kernels" / "sparse_mla_decode")
    content["arms"] = [
        {
            "grid": {"BLOCK_T": [16, 32], "num_warps": [4, 8], "num_stages": [1, 2, 3, 4, 5, 6]},
            "name": "t{BLOCK_T}-w{num_warps}-s{num_stages}",
            "why": "benchmark",
        }
    ]
    return _plain(content, ["sm_90", "sm_100", "sm_120"])


def small_study(arms: int) -> dict:
    """``arms`` arms of a kernel that compiles in no time; every one is another specialization."""
    content = yaml.safe_load(SMALL.read_text(encoding="utf-8"))
    content["kernel"]["path"] = str(REPOSITORY / "tests" / "fixtures" / "tiny")
    stages = list(range(1, -(-arms // 20) + 1))
    content["arms"] = [
        {
            "grid": {"BLOCK": [512, 1024, 2048, 4096, 8192], "num_warps": [1, 2, 4, 8], "num_stages": stages},
            "name": "b{BLOCK}-w{num_warps}-s{num_stages}",
            "why": "benchmark",
        }
    ]  # fmt: skip
    return _plain(content, ["sm_90"])


def _plain(content: dict, targets: list[str]) -> dict:
    """Without what refers to arms or targets that the benchmark does not have."""
    for key in ("projection", "assume", "dose", "must_fit", "throughput"):
        content.pop(key, None)
    return content | {"name": "benchmark", "targets": targets}


class Cost:
    """Seconds on the clock, and CPU seconds of all processes: the latter bear a busy machine."""

    def __init__(self) -> None:
        self._started, self._used = time.perf_counter(), self._cpu()

    @staticmethod
    def _cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def stop(self) -> Cost:
        self.wall, self.cpu = time.perf_counter() - self._started, self._cpu() - self._used
        return self

    def __str__(self) -> str:
        return f"{self.wall:.1f} s ({self.cpu:.1f} s CPU)"


def timed(command: list[str], cache: Path, **more: object) -> Cost:
    cost = Cost()
    done = subprocess.run(
        command,
        env={**os.environ, "TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        **more,  # type: ignore[call-overload]
    )
    cost.stop()
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return cost


def snakemake(folder: Path, cores: int, *words: str) -> list[str]:
    profile = str(REPOSITORY / "profiles" / "default")
    command = [sys.executable, "-m", "snakemake", "-s", str(REPOSITORY / "Snakefile")]
    command += ["--profile", profile, "--directory", str(folder), "--cores", str(cores)]
    return [*command, *words, "--config", "study=study.yaml", "commit=False"]


def bare(folder: Path, jobs: list[tuple[str, dict]], cores: int, cache: Path) -> Cost:
    """Until every core has compiled its share, imports included."""
    cost = Cost()
    children = []
    for core in range(cores):
        child = subprocess.Popen(
            [sys.executable, "-c", BARE],
            stdin=subprocess.PIPE,
            text=True,
            env={**os.environ, "TRITON_CACHE_DIR": str(cache)},
        )
        assert child.stdin
        child.stdin.write(json.dumps([str(folder), jobs[core::cores]]))
        child.stdin.close()
        children.append(child)
    if any(child.wait() for child in children):
        raise SystemExit("the bare loop failed")
    return cost.stop()


def binaries(cache: Path) -> set[str]:
    """Digests of all machine code in a cache of Triton's."""
    return {hashlib.sha256(p.read_bytes()).hexdigest() for p in cache.rglob("*.cubin")}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--arms", type=int, help="of the small kernel, instead of the flagship's 24"
    )
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    study = small_study(options.arms) if options.arms else flagship_study()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        folder = Path(scratch, "project")
        folder.mkdir()
        (folder / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
        (folder / "Snakefile").write_text("rule all:\n    input: 'study.yaml'\n")
        whole = timed(snakemake(folder, options.cores, "feasibility"), Path(scratch, "whole"))
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        start = timed(
            [sys.executable, "-m", "snakemake", "-s", "Snakefile", "-n"], folder, cwd=folder
        )
        again = timed(snakemake(folder, options.cores, "feasibility"), Path(scratch, "whole"))
        trace = json.loads((folder / "results/benchmark/trace.json").read_text(encoding="utf-8"))
        jobs = list(
            {
                (launch["target"], call["specialization"]): None
                for launch in trace["launches"]
                for call in launch["calls"]
            }
        )
        specs = trace["specializations"]
        alone = bare(
            Path(study["kernel"]["path"]),
            [(t, specs[s]) for t, s in jobs],
            options.cores,
            Path(scratch, "bare"),
        )
        if binaries(Path(scratch, "whole")) != binaries(Path(scratch, "bare")):
            raise SystemExit("the bare loop made other machine code")
        arms = len({launch["arm"] for launch in trace["launches"]})
        pairs = arms * len(study["targets"])
    print(
        f"{arms} arms × {len(study['targets'])} targets, {len(jobs)} compiles, {options.cores} cores"
    )
    print(
        f"whole {whole}, bare {alone}: ratio {whole.wall / alone.wall:.2f} ({whole.cpu / alone.cpu:.2f} CPU)"
    )
    print(f"beyond compiling {1e3 * (whole.wall - alone.wall) / pairs:.0f} ms per arm and target"
          f" ({1e3 * (whole.cpu - alone.cpu) / pairs:.0f} ms CPU)")  # fmt: skip
    print(f"again {again}, Snakemake's start {start}: {again.wall - start.wall:.2f} s over it")
    print(f"largest process {largest:.0f} MiB")


if __name__ == "__main__":
    main()
