"""What a killed process started ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own call is Linux'")

PROGRAM = """
import multiprocessing, os, subprocess, sys, time
from occupancy_probe.lifetime import begin_worker

def work(parent):
    begin_worker(parent)
    print(os.getpid(), flush=True)
    subprocess.run(["sleep", "1000"])

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    context.Process(target=work, args=(os.getpid(),)).start()
    time.sleep(1000)
"""


def gone(processes, seconds=10):
    return not psutil.wait_procs(processes, timeout=seconds)[1]


@pytest.fixture
def family(tmp_path):
    """The parent, its worker, and what the worker runs."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    worker = psutil.Process(int(parent.stdout.readline()))
    deadline = time.monotonic() + 10
    while not (tools := worker.children()) and time.monotonic() < deadline:
        time.sleep(0.01)
    yield parent, worker, tools
    parent.kill()
    parent.wait()
    parent.stdout.close()


def test_a_killed_parent_takes_worker_and_tool_along(family):
    parent, worker, tools = family
    assert [t.name() for t in tools] == ["sleep"]
    os.kill(parent.pid, signal.SIGKILL)
    assert gone([worker, *tools])


def test_a_killed_worker_takes_its_tool_along(family):
    _, worker, tools = family
    worker.kill()
    assert gone(tools)


def test_a_worker_whose_parent_is_another_process_ends_at_once():
    program = "from occupancy_probe.lifetime import begin_worker; begin_worker(1); print('on')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
