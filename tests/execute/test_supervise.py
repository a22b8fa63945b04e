"""A child that crashes, hangs or ends early costs the task at fault and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from occupancy_probe.execute import supervise as supervision
from occupancy_probe.execute.supervise import supervise

TESTS = Path(__file__).parents[1]


@pytest.fixture
def run(tmp_path):
    def start(*tasks, limit_s=30.0, **job):
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        job = {"pids": str(tmp_path), **job}
        return supervise("execute.worker", job, list(tasks), limit_s, {"PYTHONPATH": path})

    return start


def children(folder):
    """Tasks that each child was given."""
    return sorted((path.read_text() for path in folder.iterdir()), key=len, reverse=True)


def alive(folder):
    """Children that still run."""
    return [p.name for p in folder.iterdir() if Path("/proc", p.name).exists()]


def test_all_goes_well_in_one_child(run, tmp_path):
    found = dict(run("a", "bb"))
    assert {k: v["value"] for k, v in found.items()} == {"a": 1, "bb": 2}
    assert children(tmp_path) == ["a bb"]
    assert alive(tmp_path) == []


def test_no_tasks_no_child(run, tmp_path):
    assert list(run()) == []
    assert children(tmp_path) == []


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("abort", "ended its process (exit status -6): LLVM ERROR: out of ideas"),
        ("exit", "ended its process (exit status 7): no message"),
        ("mute", "ended its process (exit status 5): no message"),
    ],
)
def test_a_child_that_dies_costs_its_task(run, tmp_path, bad, words):
    found = dict(run("a", bad, "z"))
    assert found["a"]["done"] == "a"
    assert found["z"]["done"] == "z"
    assert found[bad] == {
        "begin": bad,
        "arm": f"arm of {bad}",
        "failed": bad,
        "reason": words,
        "kind": "error",
    }
    assert children(tmp_path) == [f"a {bad} z", "z"]


def test_a_child_that_hangs_costs_its_task(run, tmp_path):
    found = dict(run("a", "hang", "z", limit_s=2))
    assert found["hang"]["reason"] == "no answer in 2 s"
    assert found["hang"]["kind"] == "no answer"
    assert found["hang"]["arm"] == "arm of hang"
    assert (found["a"]["done"], found["z"]["done"]) == ("a", "z")
    assert alive(tmp_path) == []


def test_every_task_bad(run):
    found = dict(run("abort1", "exit2", "abort3"))
    assert [m["kind"] for m in found.values()] == ["error"] * 3
    assert list(found) == ["abort1", "exit2", "abort3"]


def test_a_task_that_says_that_it_failed(run, tmp_path):
    found = dict(run("fail", "z"))
    assert found["fail"] == {"failed": "fail", "reason": "not today", "kind": "error"}
    assert found["z"]["done"] == "z"
    assert children(tmp_path) == ["fail z"]


@pytest.mark.parametrize(("status", "starts"), [(0, 1), (1, 2)])
def test_a_child_that_never_starts_gives_every_task_the_reason(run, tmp_path, status, starts):
    found = dict(run("a", "b", never_starts=status + 1))
    assert {m["reason"] for m in found.values()} == {
        "the worker ended before any task: no module named luck"
    }
    assert list(found) == ["a", "b"]
    assert children(tmp_path) == ["a b"] * starts


def test_what_a_kernel_prints_is_no_message(run):
    found = dict(run("noise", "z"))
    assert found["noise"]["value"] == 5
    assert found["z"]["done"] == "z"


def test_a_child_that_lingers_after_its_last_task_is_ended(run, tmp_path, monkeypatch):
    monkeypatch.setattr(supervision, "START_LIMIT_S", 1.0)
    monkeypatch.setattr(supervision._Child.end, "__defaults__", (0.5,))
    found = dict(run("a", "b", lingers=True))
    assert [m["done"] for m in found.values()] == ["a", "b"]
    assert alive(tmp_path) == []


def test_who_stops_listening_leaves_no_child_behind(run, tmp_path):
    messages = run("a", "hang")
    assert next(messages)[0] == "a"
    assert len(alive(tmp_path)) == 1
    messages.close()
    assert alive(tmp_path) == []
