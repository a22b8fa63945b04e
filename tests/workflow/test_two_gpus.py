"""Two studies' jobs side by side, each on a GPU of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from conftest import git

from occupancy_probe.gpu import all_present
from occupancy_probe.records import Measurement, Verdict, read_record

ROOT = Path(__file__).parents[2]
PAIR = ("left", "right")


def same_model_here():
    return [g for g in all_present() if g.slug == all_present()[0].slug]


def small_flagship(name: str) -> str:
    """The flagship's kernel with arms that differ by a lot, at two workloads."""
    content = yaml.safe_load((ROOT / "studies" / "dsv4_attn_occupancy.yaml").read_text())
    for key in ("projection", "assume", "dose", "throughput", "autotune", "commit"):
        content.pop(key)
    content["checks"].pop("device")
    axes = {"concurrency": [48, 96], "topk": [512], "window": [128]}
    content |= {
        "name": name,
        "document": f"{name.upper()}_AB",
        "arms": [{"list": [{"num_warps": 8}, {"BLOCK_T": 16}], "why": "slower, by the flagship"}],
        "targets": ["sm_90"],
        "workloads": [{"grid": axes, "name": "c{concurrency}"}],
        "measurement": {"processes": 4, "allocations": 1, "blocks": 24},
    }
    return yaml.safe_dump(content)


@pytest.mark.gpu
@pytest.mark.skipif(
    len(same_model_here()) < 2,
    reason="needs two NVIDIA GPUs of one model",
)
def test_two_studies_run_side_by_side_on_two_gpus_and_their_verdicts_agree(work):
    shutil.copytree(ROOT / "kernels" / "sparse_mla_decode", work / "kernels" / "sparse_mla_decode")
    (work / "studies").mkdir()
    for name in PAIR:
        (work / "studies" / f"{name}.yaml").write_text(small_flagship(name))
    (work / ".gitignore").write_text("results/*/*\n!results/*/plan.json\n!results/*/*.md\n")
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "--message", "studies")
    command = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile")]
    command += ["--directory", str(work), "--cores", "8"]
    done = subprocess.run(
        [*command, "ab_report", "--config", f"study={','.join(PAIR)}", "--resources", "gpu=2"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    spans, gpus, verdicts = [], [], []
    for name in PAIR:
        results = work / "results" / name
        files = sorted(results.glob("measurement/*/*.json"))
        records = [read_record(f, Measurement) for f in files]
        [uuid] = {r.device_uuid for m in records for r in m.replicates}
        assert {m.device_uuid for m in records} == {uuid}
        gpus.append(uuid)
        spans.append((min(m.started_at for m in records), max(f.stat().st_mtime for f in files)))
        [judged] = read_record(results / "verdict.json", Verdict).devices
        found = {(r.arm, r.workload): (r.verdict, r.ratio) for r in judged.results}
        assert found
        verdicts.append(found)
        print(name, uuid, found)
    assert gpus[0] != gpus[1]
    starts, ends = zip(*spans, strict=True)
    assert max(datetime.fromisoformat(s).timestamp() for s in starts) < min(ends), (
        "they did not run at the same time"
    )
    left, right = ({key: verdict for key, (verdict, _) in v.items()} for v in verdicts)
    assert left == right
    assert left["num_warps-8", "c96"] == "slower"
