"""The outcome as code: the winner, a key that sees what matters, the autotune cache, the warm-up."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from occupancy_probe.records import Audit, DeviceVerdict, Verdict, write_text
from occupancy_probe.study import BASELINE, Study
from occupancy_probe.study.workloads import make_workloads
from occupancy_probe.templating import one_line, percent
from occupancy_probe.validate.adoption import (
    arm_in_force,
    condition,
    loss_elsewhere,
    threshold,
    times,
)
from occupancy_probe.validate.autotune_cache import cache_files, installer, main_on_gpu

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")


def write_exports(study: Study, verdict: Verdict, folder: Path) -> list[Path]:
    """Write ``folder`` (``exports/``) and return its files; what was not measured is not exported.

    The README also lists what `snakemake paste` has written there, see :func:`list_pasted`.
    """
    files: dict[str, str] = {}
    lines: list[str] = []
    audit = verdict.audit
    if audit is not None and audit.buckets:
        files["warmup.py"] = warmup(study, audit, verdict.devices, folder)
        lines.append(
            "`warmup.py`: call `warm_up(kernel)` with the kernel object that your program launches, before"
            " the first graph capture; it reaches every key that is captured."
        )
    for device in verdict.devices:
        winner = study.arm(device.adopted or BASELINE).config
        place = device.device
        files[f"{place}/config.py"] = winning_config(study, device, winner)
        lines.append(f"`{place}/config.py`: {_config_line(study, device)}")
        if audit is not None and audit.configs:
            files[f"{place}/autotune.py"] = autotune_list(study, device, audit, winner)
            lines.append(
                f"`{place}/autotune.py`: `tune` in place of your kernel's `@triton.autotune`: every config"
                f" that is within {percent(study.file.decision.margin)} of the best at some workload, and a"
                f" key that sees what matters{_note(study, device)}."
            )
        if cached := cache_files(study, device, audit):
            files |= {f"{place}/{c.name}": c.content for c in cached}
            files[f"{place}/install_cache.py"] = installer(study, folder / place)
            lines.append(
                f"`{place}/autotune_cache/*/*.autotune.json`: one config per key, in the form of Triton's"
                " autotune cache: each config stands with a time of its worst-case loss over the key's"
                f" workloads, so Triton takes the one that loses least; `python {place}/install_cache.py`"
                " puts them where Triton looks (it hashes compiler, GPU and kernel), then run with"
                " TRITON_CACHE_AUTOTUNING=1."
            )
            lines += [f"`{place}/{c.name}`: {c.says}." for c in cached]
    head = (
        f"# Exports of {study.name}\n\nMade from the verdict; made again by `snakemake export`.\n\n"
    )
    body = "\n".join(f"- {line}" for line in lines) or "Nothing was measured and nothing is tuned."
    files["README.md"] = head + body + "\n" + _pasted(folder)
    for name, content in files.items():
        write_text(folder / name, content)
    return [folder / name for name in files]


PASTED = {
    "pull_request.md": "the answer for a pull request or an issue: hypothesis, one table, verdict",
    "*/t4/*.json": "one per workload: every arm with its samples, in Kernel Tuner's T4 format",
    "*/nvbench/*.json": "one per arm, for `nvbench_compare`; its samples lie beside it",
    "*/samples.csv": "every sample as a line, with arm, workload, process and verdict",
}
"""What `snakemake paste` writes into the same folder, by pattern."""
PASTED_HEAD = "\n## Written by `snakemake paste`\n\n"


def list_pasted(folder: Path) -> None:
    """Bring the README of ``folder`` up to what `snakemake paste` has written beside the exports.

    Without a README nothing was exported yet, and it is the export's to write.
    """
    path = folder / "README.md"
    if path.is_file():
        exported = path.read_text(encoding="utf-8").partition(PASTED_HEAD)[0]
        write_text(path, exported + _pasted(folder))


def _pasted(folder: Path) -> str:
    found = {p: says for p, says in PASTED.items() if any(folder.glob(p))}
    lines = "".join(f"- `{p}`: {says}.\n" for p, says in found.items())
    return PASTED_HEAD + lines if lines else ""


def config_code(config: Mapping[str, Any]) -> str:
    """``triton.Config(…)`` of a config."""
    named = {k: v for k, v in config.items() if k not in OPTIONS}
    options = "".join(f", {k}={config[k]!r}" for k in OPTIONS if config.get(k) is not None)
    return f"triton.Config({named!r}{options})"


def winning_config(study: Study, device: DeviceVerdict, winner: Mapping[str, Any]) -> str:
    """``CONFIG``, where it is adopted, and ``PINNED`` per workload where one for all is not advised."""
    text = (
        f"# {study.file.kernel.function} on {one_line(device.device_name)}: {one_line(device.decision)}\n\n"
        "import triton\n\n"
    )
    if at := threshold(study, device):
        text += (
            f"# Adopted {condition(study, device)}{_loss(study, device)}.\n"
            f"CONFIG = {config_code(winner)}\n"
            f"BASELINE = {config_code(study.arm(BASELINE).config)}\n\n\n"
            "def config_at(value):\n"
            f'    """The config for a launch; value: its {one_line(at[0])}."""\n'
            f"    return CONFIG if value >= {at[1]:g} else BASELINE\n\n"
        )
    else:
        text += f"CONFIG = {config_code(winner)}\n"
    advice = device.tuning_advice
    if advice is not None and advice.per_workload:
        axes = {w.name: w.axes for w in study.workloads}
        rows = "".join(
            f"    ({axes[w]!r}, {config_code(c)}),{_beside(study, device, w, c)}\n"
            for w, c in advice.per_workload.items()
            if w in axes
        )
        text += (
            "\n# The best of the autotuner's own list at each workload, for a program that keeps that list;"
            f"\n# beside it, what the decision would use there.\nPINNED = [\n{rows}]\n"
        )
    if advice is not None and advice.config is not None:
        found = [_slower(study, device, w.name, advice.config) for w in study.workloads]
        worst = max((f for f in found if f), default=None)
        loss = f"; {_words(*worst)}" if worst else ""
        text += (
            f"\n# The one config of the autotuner's own list that is good everywhere{loss}.\n"
            f"PINNED = {config_code(advice.config)}\n"
        )
    return text


def autotune_list(
    study: Study, device: DeviceVerdict, audit: Audit, winner: Mapping[str, Any]
) -> str:
    """The decorator: what is adopted, every config that is (nearly) best somewhere, the widened key."""
    kept = [study.arm(BASELINE).config] if threshold(study, device) else []
    configs: list[Mapping[str, Any]] = []
    for config in (winner, *kept, *_near_best(study, device)):
        if not any(_same(config, c) for c in configs):
            configs.append(config)
    wider = audit.wider_key
    alive = [k for k in audit.key if k not in audit.dead_names and k not in audit.unread]
    key = [*alive, *(wider.added if wider else [])]
    note = ""
    if wider and not wider.is_argument:
        note = (
            f"\n# {', '.join(wider.added)} must become an argument of the kernel for the key to see it: add it to\n"
            "# the signature (it need not be read; list it in do_not_specialize) and pass it.\n"
        )
    rows = "".join(f"        {config_code(c)},\n" for c in configs)
    return (
        f'"""Autotuning of {study.file.kernel.function} on {device.device_name}{_note(study, device)}."""\n\n'
        f"import triton\n{note}\n"
        f"tune = triton.autotune(\n    configs=[\n{rows}    ],\n    key={key!r},\n)\n"
    )


def warmup(study: Study, audit: Audit, devices: Sequence[DeviceVerdict], folder: Path) -> str:
    """The module whose ``warm_up`` launches one workload per key that is captured.

    What is launched first decides for its bucket, so where first touches were measured the one that
    costs the others least is taken.
    """
    axes = {w.name: w.axes for w in study.workloads}
    names = [b.workloads[0] for b in audit.buckets]
    if audit.capture is not None and study.file.autotune is not None:
        axes = {
            w.name: w.axes for w in make_workloads(study.file.autotune.capture, "autotune.capture")
        }
        names = audit.capture.calls
    chosen = [_kindest(name, axes, devices) for name in names]
    rows = "".join(f"    {axes[name]!r},  # {name}{why}\n" for name, why in chosen)
    return (
        f'"""Calls to make before the first graph capture of {study.file.kernel.function}: one per key."""\n\n'
        "from pathlib import Path\n\nfrom occupancy_probe.launch.warmup import warm_up as _warm_up\n\n"
        f"STUDY = Path(__file__).resolve().parent / {_relative(study.path, folder)!r}\n"
        f"CALLS = [\n{rows}]\n\n\n"
        'def warm_up(kernel=None, device="cuda"):\n'
        '    """Tune every key; kernel: the object your program launches. Returns the configs in use."""\n'
        "    return _warm_up(STUDY, CALLS, kernel, device)\n\n\n"
        + main_on_gpu("warmup.py", 'print(*warm_up(), sep="\\n")')
    )


def _config_line(study: Study, device: DeviceVerdict) -> str:
    """What config.py holds, under which condition, and how to use it."""
    if device.adopted is None:
        what = f"`CONFIG` is the baseline, as no arm was adopted on {device.device_name}"
    else:
        what = f"`CONFIG` is the adopted arm {device.adopted} on {device.device_name}"
    if at := threshold(study, device):
        what += (
            f", {condition(study, device)}{_loss(study, device)}: `config_at({at[0]})` gives the baseline"
            f" there; force `CONFIG` on a whole program only if no launch has a smaller {at[0]}"
        )
    use = "`CONFIG.all_kwargs()` goes into a launch, or to `occupancy_probe.force`"
    pinned = [
        (worst, w)
        for w, c in (device.tuning_advice.per_workload if device.tuning_advice else {}).items()
        if (worst := _slower(study, device, w, c)) and worst[0] > 0
    ]
    if pinned:
        use += (
            ". `PINNED` is the best of the autotuner's own list at each workload:"
            f" {_words(*max(pinned)[0])}"
        )
    return f"{what}; {use}."


def _note(study: Study, device: DeviceVerdict) -> str:
    found = condition(study, device)
    return f"; {device.adopted} is adopted {found}" if found else ""


def _loss(study: Study, device: DeviceVerdict) -> str:
    """What the adopted arm costs where it is not adopted, if it was measured there."""
    lost = loss_elsewhere(study, device)
    return (
        f" (elsewhere up to {percent(lost[0])} slower than the baseline, at {lost[1]})"
        if lost
        else ""
    )


def _slower(
    study: Study, device: DeviceVerdict, workload: str, config: Mapping[str, Any]
) -> tuple[float, str, str] | None:
    """Loss of ``config`` to the arm that the decision wants at a workload, that arm, the workload."""
    axes = {w.name: w.axes for w in study.workloads}
    timed = times(device).get(workload, {})
    if workload not in axes:
        return None
    wanted = arm_in_force(study, device, axes[workload])
    own = next((t for a, t in timed.items() if _same(study.arm(a).config, config)), None)
    if own is None or wanted not in timed:
        return None
    return own / timed[wanted] - 1, wanted, workload


def _words(loss: float, arm: str, workload: str) -> str:
    return (
        f"up to {percent(loss)} slower than {arm} ({workload})"
        if loss > 0
        else f"never slower than {arm}"
    )


def _beside(study: Study, device: DeviceVerdict, workload: str, config: Mapping[str, Any]) -> str:
    """The comment behind a pinned config."""
    found = _slower(study, device, workload, config)
    if found is None:
        return ""
    loss, arm, _ = found
    if loss == 0:
        return f"  # {workload}: as fast as {arm}"
    way = "slower" if loss > 0 else "faster"
    return f"  # {workload}: {percent(abs(loss))} {way} than {arm}"


def _kindest(
    name: str, axes: Mapping[str, Any], devices: Sequence[DeviceVerdict]
) -> tuple[str, str]:
    """A workload of ``name``'s bucket whose first touch costs the others least, and how much."""
    best, why = (math.inf, name), ""
    for device in devices:
        for touch in device.first_touch:
            if name not in touch.workloads:
                continue
            costs = [(max(row), w) for row, w in zip(touch.losses, touch.workloads, strict=True)]
            least = min(c for c in costs if c[1] in axes)
            if least < best:
                best, why = (
                    least,
                    f": costs the others at most {percent(least[0])} on {device.device_name}",
                )
    return best[1], why


def _near_best(study: Study, device: DeviceVerdict) -> list[Mapping[str, Any]]:
    """Configs within the study's margin of the best time at some workload, whatever list they are of."""
    found: dict[str, list[tuple[float, Mapping[str, Any]]]] = {
        w: [(t, study.arm(a).config) for a, t in by.items()] for w, by in times(device).items()
    }
    for touch in device.first_touch:
        for config, row in zip(touch.configs, touch.times_us, strict=True):
            for workload, time in zip(touch.workloads, row, strict=True):
                found.setdefault(workload, []).append((time, config))
    near = []
    for timed in found.values():
        limit = min(t for t, _ in timed) * (1 + study.file.decision.margin)
        near += [c for t, c in sorted(timed, key=lambda x: x[0]) if t <= limit]
    return near


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    default = {"num_ctas": 1, "num_warps": 4, "num_stages": 3}
    return {**default, **one} == {**default, **other}


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path.resolve(), folder.resolve())
