"""The serving hook against real servers: one that decodes, and ones that misbehave."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from execute.conftest import simulated
from occupancy_probe.execute.device import GpuTurn
from occupancy_probe.execute.serving import (
    NoFigure,
    forced_environment,
    measure_once,
    serve_arms,
    the_gpu_alone,
    tokens_per_second,
)
from occupancy_probe.launch.program import FORCE, NOTES, SITE
from occupancy_probe.records import Plan, PlanCommit, Serving, read_record
from occupancy_probe.study import load_study
from occupancy_probe.study.schema import Load, Serve
from occupancy_probe.study.workloads import Workload

HERE = Path(__file__).resolve().parent
KERNEL = "kernel:_mma_sparse_decode_split_kernel"
STUDY = f"""
name: served
title: t
document: D
hypothesis: {{what: w, why: w, how: h}}
kernel: {{path: {HERE.parents[1]}/kernels/sparse_mla_decode, problem: SparseMlaDecode, function: f}}
baseline: {{BLOCK_T: 16, num_warps: 4, num_stages: 2}}
arms: [{{list: [{{BLOCK_T: 32}}], name: t32, why: x}}]
targets: [sm_90]
workloads: [{{grid: {{steps: [1, 2]}}, name: "n{{steps}}"}}]
checks: {{logic: [{{grid: {{steps: [1]}}}}]}}
decision: {{improve: steps >= 2}}
serve:
  command: [python, {HERE}/decode_server.py, "{{port}}"]
  kernel: {KERNEL}
  environment: {{TRITON_INTERPRET: "1"}}
  restarts: 2
  start_s: 120
load:
  command: [python, {HERE}/decode_load.py, "{{port}}", "{{steps}}"]
  limit_s: 60
  regex: 'throughput \\(tok/s\\): ([0-9.]+)'
"""


def test_a_server_that_decodes_is_served_arm_by_arm_and_every_restart_is_a_replicate(tmp_path):
    (tmp_path / "s.yaml").write_text(STUDY)
    study = load_study(tmp_path / "s.yaml")
    plan = Plan(
        study="served", plan_hash="P", title="t", document="D", sections={}, arms=[], workloads=[],
        targets=[], autotune=None,
    )  # fmt: skip
    commit = PlanCommit(
        study="served", plan_hash="P", commit="c", committed_at=None, preregistered=True, note=""
    )
    seen, turn = [], GpuTurn(simulated(7), tmp_path)
    found = serve_arms(
        study, plan, commit, ["baseline", "t32"], tmp_path / "serving", turn, {},
        lambda done, total, what: seen.append((done, total)),
    )  # fmt: skip
    assert {r.device_uuid for x in found.values() for r in (x, *x.replicates)} == {"GPU-7"}
    assert 0 < turn.held_s <= found["n2"].seconds
    assert list(found) == ["n2"]  # the load runs where the rule wants a gain
    record = read_record(tmp_path / "serving" / "n2.json", Serving)
    assert record == found["n2"] and not record.failures and record.plan_commit == "c"
    assert [r.process for r in record.replicates] == [0, 1] and seen[-1] == (4, 4)
    for r in record.replicates:
        assert set(r.arms) == {"baseline", "t32"}
        assert all(0 < us < 60e6 for (us,) in r.arms.values())
    for arm, tile in (("baseline", 16), ("t32", 32)):
        place = tmp_path / "serving" / "logs" / f"0-{arm}"
        assert "throughput (tok/s)" in (place / "load-n2.log").read_text()
        (note,) = [json.loads(p.read_text()) for p in (place / "forced").glob("*.json")]
        (rule,) = note["forced"]
        assert rule["config"]["BLOCK_T"] == tile and rule["launches"] >= 2


HEALTHY = """
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response({status}); self.send_header("Content-Length", "0"); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""


SEEN = ["VISIBLE_DEVICES", "DEVICE_ORDER"]
"""Variables of CUDA that say what a process sees."""


def once(tmp_path, server, load, **limits):
    serve = Serve(
        command=["python", "-S", "-c", server, "{port}", *limits.get("words", [])],
        kernel="kernel:f",
        start_s=limits.get("start_s", 20),
        stop_s=2,
    )
    of = Load(
        command=["python", "-S", "-c", load], limit_s=limits.get("limit_s", 20), regex="rate (.*)"
    )
    point = [Workload("w", {"c": 1})]
    return measure_once(
        serve, of, point, {"num_warps": 8}, tmp_path, tmp_path / "logs", limits.get("pinned", {})
    )["w"]


def test_a_server_that_ends_gives_its_last_words(tmp_path):
    said = once(tmp_path, "raise SystemExit('no such model')", "")
    assert said == "the server ended with status 1 before it was healthy: no such model"


def test_a_server_that_is_never_healthy_is_given_up_and_is_gone(tmp_path):
    server = f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))"
    server += HEALTHY.format(status=503)
    said = once(tmp_path, server, "", start_s=2)
    assert "did not answer with 200 in 2 s; see" in said and "server.log" in said
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_load_that_hangs_is_ended(tmp_path):
    started = time.monotonic()
    said = once(tmp_path, HEALTHY.format(status=200), "import time; time.sleep(60)", limit_s=1)
    assert said.startswith("the load did not end in 1 s; see")
    assert time.monotonic() - started < 30


def test_a_figure_of_a_server_that_never_launched_the_forced_kernel_does_not_count(tmp_path):
    said = once(tmp_path, HEALTHY.format(status=200), "print('rate 100')")
    assert said == "the server never launched kernel:f under the forced config"


def test_a_command_that_is_not_there_is_named(tmp_path):
    serve = Serve(command=["/no/such/server"], kernel="m:k")
    load = Load(command=["x"], json_path="a")
    found = measure_once(serve, load, [Workload("w", {})], {}, tmp_path, tmp_path / "l", {})
    assert found["w"] == "serve.command: /no/such/server: No such file or directory"


def test_the_arm_is_forced_through_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "mine")
    serve = Serve(command=["x"], kernel=KERNEL, environment={"A": "b", "C": "d"})
    found = forced_environment(serve, {"num_warps": 8}, tmp_path, {"C": "the GPU's"})
    assert json.loads(found[FORCE]) == {KERNEL: {"num_warps": 8}}
    assert found["PYTHONPATH"].split(os.pathsep) == [str(SITE), "mine"]
    assert (found["A"], found["C"]) == ("b", "the GPU's")
    assert found[NOTES] == str(tmp_path) and "PATH" in found


@pytest.mark.parametrize(
    ("load", "output", "figure"),
    [
        ({"regex": r"tok/s: ([0-9.,]+)"}, "tok/s: 1.0\nnoise\ntok/s: 1,234.5\n", 1234.5),
        ({"json_path": "summary.rate"}, 'log {x}\n{"summary": {"rate": 7}}\n', 7.0),
        ({"json_path": "rate"}, '{"rate": 1}\n{\n "rate": 2\n}\n', 2.0),
    ],
)
def test_tokens_per_second_are_read_as_the_study_says(load, output, figure):
    assert tokens_per_second(Load(command=["x"], **load), output) == figure


@pytest.mark.parametrize(
    ("load", "output"),
    [
        ({"regex": r"tok/s: (\S+)"}, "nothing"),
        ({"regex": r"tok/s: (\S+)"}, "tok/s: nan"),
        ({"json_path": "a.b"}, '{"a": 3}'),
        ({"json_path": "a"}, '{"a": 0}'),
        ({"json_path": "a"}, '{"a": 3} and more'),
    ],
)
def test_no_figure_is_no_zero(load, output):
    with pytest.raises(NoFigure, match="no tokens per second"):
        tokens_per_second(Load(command=["x"], **load), output)


def test_python_means_the_one_that_runs_the_workflow(tmp_path):
    said = once(tmp_path, "import sys; sys.exit(sys.executable)", "")
    assert said.endswith(sys.executable)


def test_the_server_sees_the_gpu_of_its_job_only(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    server = "import os, sys; sys.exit(' '.join(os.environ[f'CUDA_{x}'] for x in sys.argv[2:]))"
    said = once(tmp_path, server, "", words=SEEN, pinned=the_gpu_alone(simulated(5)))
    assert said.endswith(": 5 PCI_BUS_ID")


@pytest.mark.parametrize(
    ("environment", "seen", "uuid"),
    [
        ("{A: b}", "5 PCI_BUS_ID", "GPU-5"),
        ("{CUDA_DEVICE_ORDER: FASTEST_FIRST}", "5 PCI_BUS_ID", "GPU-5"),  # 5 counts in PCI order
        ('{CUDA_VISIBLE_DEVICES: "4,5"}', "4,5 the user's", None),
    ],
)
def test_a_server_is_told_its_gpu_by_index_unless_the_study_names_the_servers_gpus(
    tmp_path, monkeypatch, environment, seen, uuid
):
    """Servers take the variable for numbers (vLLM); they count in PCI order, whoever set another."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "the user's")
    server = f"import os; raise SystemExit(' '.join(os.environ['CUDA_' + x] for x in {SEEN}))"
    text = STUDY.replace('{TRITON_INTERPRET: "1"}', environment).replace(
        f"[python, {HERE}/decode_server.py", f'[python, -c, "{server}"'
    )
    (tmp_path / "s.yaml").write_text(text)
    plan = Plan(
        study="served", plan_hash="P", title="t", document="D", sections={}, arms=[], workloads=[],
        targets=[], autotune=None,
    )  # fmt: skip
    commit = PlanCommit(
        study="served", plan_hash="P", commit="c", committed_at=None, preregistered=True, note=""
    )
    study, turn = load_study(tmp_path / "s.yaml"), GpuTurn(simulated(5), tmp_path)
    found = serve_arms(study, plan, commit, ["baseline"], tmp_path / "serving", turn, {})["n2"]
    assert [f.rsplit(": ", 1)[1] for f in found.failures] == [seen] * 2
    assert [r.device_uuid for r in (found, *found.replicates)] == [uuid] * 3
