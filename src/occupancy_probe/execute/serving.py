"""A/B of a real server: one arm per start of the server, forced through its environment.

Every round starts the server once per arm, in a fresh random order, runs the load at every workload
and reads its tokens per second; a round is a replicate. A start that fails, a load that hangs or says
nothing, and a server that never launched the forced kernel give no figure, and the record says why.
What the server and the load print is kept beside the record.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from occupancy_probe.execute.device import GpuTurn
from occupancy_probe.gpu import PresentDevice
from occupancy_probe.launch.program import FORCE, NOTES, RECORD, SITE
from occupancy_probe.records import Plan, PlanCommit, Replicate, Serving, write_record
from occupancy_probe.study import Study, Workload
from occupancy_probe.study.schema import Load, Serve

POLL_S = 0.1
LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The server is on this machine: no proxy of the environment stands between."""


class NoFigure(Exception):
    """Why one start gave nothing to compare."""


def serve_arms(
    study: Study,
    plan: Plan,
    commit: PlanCommit,
    arms: Sequence[str],
    folder: Path,
    turn: GpuTurn,
    versions: Mapping[str, str],
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> dict[str, Serving]:
    """Records by workload in ``folder``, written after every round; logs in ``folder/logs``.

    arms: with the baseline. turn: taken for every start of the server, which sees that GPU only,
    unless the study's ``serve.environment`` names the server's GPUs itself.
    """
    serve, load = study.file.serve, study.file.load
    assert serve is not None and load is not None
    device, own = turn.device, "CUDA_VISIBLE_DEVICES" in serve.environment
    pinned, uuid = ({}, None) if own else (the_gpu_alone(device), device.uuid)
    names = study.selects(load.where or study.file.decision.improve)
    workloads = [w for w in study.workloads if w.name in names]
    started = time.monotonic()
    rng = random.Random(study.file.measurement.seed)
    rounds: dict[str, list[Replicate]] = {w.name: [] for w in workloads}
    failures: dict[str, list[str]] = {w.name: [] for w in workloads}
    at = datetime.now(UTC).isoformat(timespec="seconds")
    total, done = serve.restarts * len(arms), 0
    for number in range(serve.restarts):
        found: dict[str, dict[str, list[float]]] = {w.name: {} for w in workloads}
        for arm in rng.sample(list(arms), len(arms)):
            place = folder / "logs" / f"{number}-{arm}"
            config = study.arm(arm).config
            turn.enter()
            try:
                figures = measure_once(
                    serve, load, workloads, config, study.path.parent, place, pinned
                )
            finally:
                turn.leave()
            for workload, figure in figures.items():
                if isinstance(figure, str):
                    failures[workload].append(f"round {number}, {arm}: {figure}")
                else:
                    found[workload][arm] = [1e6 / figure]
            done += 1
            progress(done, total, f"round {number + 1} of {serve.restarts}: {arm}")
        records = {}
        for w in workloads:
            taken = Replicate(process=number, allocation=0, arms=found[w.name], device_uuid=uuid)
            rounds[w.name].append(taken)
            records[w.name] = Serving(
                study=study.name,
                depends={"plan": plan.plan_hash, "launch": study.launch_digest},
                versions=dict(versions),
                plan_commit=commit.commit,
                device=device.slug,
                device_name=device.name,
                device_uuid=uuid,
                workload=w.name,
                kernel=serve.kernel,
                restarts=serve.restarts,
                replicates=rounds[w.name],
                failures=failures[w.name],
                started_at=at,
                seconds=round(time.monotonic() - started, 3),
            )
            write_record(folder / f"{w.name}.json", records[w.name])
    return records


def measure_once(
    serve: Serve,
    load: Load,
    workloads: Sequence[Workload],
    config: Mapping[str, Any],
    here: Path,
    place: Path,
    pinned: Mapping[str, str],
) -> dict[str, float | str]:
    """Tokens per second by workload from one start of the server under ``config``, or why there is none.

    here: working folder of the commands. place: folder for logs, and for what the server's processes
    note of the launches they forced. pinned: variables that name the GPU, whatever the study says.
    """
    notes = place / "forced"
    notes.mkdir(parents=True, exist_ok=True)
    for old in notes.glob("*.json"):
        old.unlink()
    environment = forced_environment(serve, config, notes, pinned)
    found: dict[str, float | str] = {}
    try:
        with _running(serve, environment, here, place / "server.log") as port:
            for w in workloads:
                try:
                    found[w.name] = _tokens_per_second(load, w, port, here, place)
                except NoFigure as e:
                    found[w.name] = str(e)
    except NoFigure as e:
        return {w.name: str(e) for w in workloads}
    if not _launches(notes):
        reason = f"the server never launched {serve.kernel} under the forced config"
        return {w: f if isinstance(f, str) else reason for w, f in found.items()}
    return found


def the_gpu_alone(device: PresentDevice) -> dict[str, str]:
    """Variables under which a server sees ``device`` only: by index, as vLLM reads no UUID there."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(device.index)}


def forced_environment(
    serve: Serve, config: Mapping[str, Any], notes: Path, pinned: Mapping[str, str]
) -> dict[str, str]:
    """The server's environment: the kernel forced in every Python process that it starts."""
    given = {**os.environ, **serve.environment, **pinned}
    given.pop(RECORD, None)
    path = os.pathsep.join(filter(None, [str(SITE), given.get("PYTHONPATH", "")]))
    force = json.dumps({serve.kernel: dict(config)})
    return {**given, "PYTHONPATH": path, FORCE: force, NOTES: str(notes.resolve())}


def tokens_per_second(load: Load, output: str) -> float:
    """The figure in what the load printed; NoFigure if there is none or it is no positive number."""
    value: Any
    if load.regex is not None:
        matches = re.findall(load.regex, output)
        last = matches[-1] if matches else None
        value = last[0] if isinstance(last, tuple) else last
    else:
        value = _last_object(output)
        for key in (load.json_path or "").split("."):
            value = value.get(key) if isinstance(value, dict) else None
    try:
        figure = float(str(value).replace(",", ""))
    except ValueError:
        figure = 0.0
    if not 0 < figure < float("inf"):
        raise NoFigure(f"no tokens per second in the load's output (found {value!r})")
    return figure


def _last_object(output: str) -> Any:
    """The JSON object that ``output`` ends with, whatever was printed before it."""
    decoder = json.JSONDecoder()
    for i in (m.start() for m in re.finditer(r"^\{", output, re.MULTILINE)):
        with suppress(ValueError):
            value, end = decoder.raw_decode(output, i)
            if not output[end:].strip():
                return value
    return None


def _tokens_per_second(load: Load, workload: Workload, port: int, here: Path, place: Path) -> float:
    command = _filled(load.command, {"port": port, **workload.axes})
    log = place / f"load-{workload.name}.log"
    try:
        with log.open("w", encoding="utf-8") as stream:
            done = subprocess.run(
                command,
                cwd=here,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=load.limit_s,
                stdin=subprocess.DEVNULL,
            )
    except subprocess.TimeoutExpired as e:
        raise NoFigure(f"the load did not end in {load.limit_s:g} s; see {log}") from e
    except OSError as e:
        raise NoFigure(f"load.command: {command[0]}: {e.strerror}") from e
    output = log.read_text(encoding="utf-8", errors="replace")
    if done.returncode:
        raise NoFigure(f"the load ended with status {done.returncode}: {_last_line(output)}")
    return tokens_per_second(load, output)


@contextmanager
def _running(serve: Serve, environment: Mapping[str, str], here: Path, log: Path) -> Iterator[int]:
    """The server, healthy, as the leader of a process group that is gone afterwards; gives its port."""
    port = _free_port()
    command = _filled(serve.command, {"port": port})
    with log.open("w", encoding="utf-8") as stream:
        try:
            server = subprocess.Popen(
                command,
                cwd=here,
                env=dict(environment),
                stdout=stream,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as e:
            raise NoFigure(f"serve.command: {command[0]}: {e.strerror}") from e
        try:
            _wait_until_healthy(server, serve, port, log)
            yield port
        finally:
            _stop(server, serve.stop_s)


def _wait_until_healthy(
    server: subprocess.Popen[bytes], serve: Serve, port: int, log: Path
) -> None:
    url = _filled([serve.health], {"port": port})[0]
    until = time.monotonic() + serve.start_s
    while time.monotonic() < until:
        if (status := server.poll()) is not None:
            words = _last_line(log.read_text(encoding="utf-8", errors="replace"))
            raise NoFigure(f"the server ended with status {status} before it was healthy: {words}")
        with (
            suppress(urllib.error.URLError, OSError, ValueError),
            LOOPBACK.open(url, timeout=5) as answer,
        ):
            if answer.status == 200:
                return
        time.sleep(POLL_S)
    raise NoFigure(f"{url} did not answer with 200 in {serve.start_s:g} s; see {log}")


def _stop(server: subprocess.Popen[bytes], limit_s: float) -> None:
    """Ask the whole group to end, then insist."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            server.wait(limit_s)
            if sent == signal.SIGTERM:
                with suppress(ProcessLookupError):  # children that outlived the leader
                    os.killpg(server.pid, signal.SIGKILL)
            return


def _launches(notes: Path) -> int:
    """Forced launches over all processes of the server."""
    found = [json.loads(p.read_text(encoding="utf-8")) for p in notes.glob("*.json")]
    return sum(rule["launches"] for note in found for rule in note["forced"])


def _filled(command: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """``{name}`` replaced where it is one of ``values``; other braces stay. ``python`` is this one."""
    filled = [re.sub(r"\{(\w+)\}", lambda m: str(values.get(m[1], m[0])), part) for part in command]
    return [sys.executable if filled[0] == "python" else filled[0], *filled[1:]]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no message"
