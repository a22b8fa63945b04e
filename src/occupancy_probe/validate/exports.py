"""The outcome as code: the winner, a key that sees what matters, the autotune cache, the warm-up."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from occupancy_probe.records import Audit, Bucket, DeviceVerdict, FirstTouch, Verdict, write_text
from occupancy_probe.study import BASELINE, Study
from occupancy_probe.study.workloads import make_workloads
from occupancy_probe.templating import one_line, percent

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")


def write_exports(study: Study, verdict: Verdict, folder: Path) -> list[Path]:
    """Write ``folder`` (``exports/``) and return its files; what was not measured is not exported."""
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
        lines.append(
            f"`{place}/config.py`: `CONFIG` is {'the adopted arm' if device.adopted else 'the baseline, as no arm was adopted'}"
            f" on {device.device_name}; `CONFIG.all_kwargs()` goes into a launch, or to"
            " `occupancy_probe.force`."
        )
        if audit is not None and audit.configs:
            files[f"{place}/autotune.py"] = autotune_list(study, device, audit, winner)
            lines.append(
                f"`{place}/autotune.py`: `tune` in place of your kernel's `@triton.autotune`: the configs"
                " that win somewhere, and a key that sees what matters."
            )
        for name, content in cache_files(study, device, audit):
            files[f"{place}/{name}"] = content
        if any(name.startswith(f"{place}/autotune_cache") for name in files):
            files[f"{place}/install_cache.py"] = cache_installer(study, folder / place)
            lines.append(
                f"`{place}/autotune_cache/*.autotune.json`: the measured times as Triton's autotune cache"
                f" holds them, one file per key; `python {place}/install_cache.py` puts them where Triton"
                " looks (it hashes compiler, GPU and kernel), then run with TRITON_CACHE_AUTOTUNING=1."
            )
    head = (
        f"# Exports of {study.name}\n\nMade from the verdict; made again by `snakemake export`.\n\n"
    )
    body = "\n".join(f"- {line}" for line in lines) or "Nothing was measured and nothing is tuned."
    files["README.md"] = head + body + "\n"
    for name, content in files.items():
        write_text(folder / name, content)
    return [folder / name for name in files]


def config_code(config: Mapping[str, Any]) -> str:
    """``triton.Config(…)`` of a config."""
    named = {k: v for k, v in config.items() if k not in OPTIONS}
    options = "".join(f", {k}={config[k]!r}" for k in OPTIONS if config.get(k) is not None)
    return f"triton.Config({named!r}{options})"


def winning_config(study: Study, device: DeviceVerdict, winner: Mapping[str, Any]) -> str:
    """``CONFIG``, and ``PINNED`` per workload where one config for all is not advised."""
    text = (
        f"# {study.file.kernel.function} on {one_line(device.device_name)}: {one_line(device.decision)}\n\n"
        f"import triton\n\nCONFIG = {config_code(winner)}\n"
    )
    advice = device.tuning_advice
    if advice is not None and advice.per_workload:
        axes = {w.name: w.axes for w in study.workloads}
        rows = "".join(
            f"    ({axes[w]!r}, {config_code(c)}),\n"
            for w, c in advice.per_workload.items()
            if w in axes
        )
        text += f"\n# The best of the autotuner's list at each workload.\nPINNED = [\n{rows}]\n"
    if advice is not None and advice.config is not None:
        text += f"\n# The one config of the autotuner's list that is good everywhere.\nPINNED = {config_code(advice.config)}\n"
    return text


def autotune_list(
    study: Study, device: DeviceVerdict, audit: Audit, winner: Mapping[str, Any]
) -> str:
    """The decorator: configs that win at some workload, the winner first, and the widened key."""
    winning = [t.configs[i] for t in device.first_touch for i in dict.fromkeys(t.chosen)]
    configs: list[Mapping[str, Any]] = []
    for config in (winner, *_fastest(study, device), *winning):
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
        f'"""Autotuning of {study.file.kernel.function} on {device.device_name}."""\n\nimport triton\n{note}\n'
        f"tune = triton.autotune(\n    configs=[\n{rows}    ],\n    key={key!r},\n)\n"
    )


def cache_files(study: Study, device: DeviceVerdict, audit: Audit | None) -> list[tuple[str, str]]:
    """Per measured bucket: name and content, in the form of Triton's ``<kernel>.autotune.json``."""
    if audit is None:
        return []
    found = []
    for touch in device.first_touch:
        bucket = next((b for b in audit.buckets if set(touch.workloads) <= set(b.workloads)), None)
        if bucket is None:
            continue
        timings = [
            [_config_record(config), [ms, ms, ms]]
            for config, ms in zip(touch.configs, _mean_ms(touch), strict=True)
            if math.isfinite(ms)
        ]
        content = {"key": _triton_key(bucket), "configs_timings": timings}
        name = "-".join(str(v) for v in bucket.key.values()) or "any"
        found.append(
            (
                f"autotune_cache/{name}/{study.file.kernel.function[:150]}.autotune.json",
                json.dumps(content, indent=1) + "\n",
            )
        )
    return found


def cache_installer(study: Study, folder: Path) -> str:
    """A script that puts the files beside it where this machine's Triton looks for them."""
    return (
        '"""Put autotune_cache/ where Triton looks for it on this machine and GPU."""\n\n'
        "import json\nfrom pathlib import Path\n\n"
        "from occupancy_probe.launch.launches import study_problem\n"
        "from occupancy_probe.launch.warmup import install_timings\n"
        "from occupancy_probe.study import load_study\n\n"
        "HERE = Path(__file__).resolve().parent\n"
        f"STUDY = HERE / {_relative(study.path, folder)!r}\n\n\n"
        "def install(kernel=None):\n"
        '    """kernel: the autotuned object of your program; by default that of the study\'s Problem."""\n'
        "    kernel = study_problem(load_study(STUDY)).kernel if kernel is None else kernel\n"
        '    for path in sorted(HERE.glob("autotune_cache/*/*.autotune.json")):\n'
        "        content = json.loads(path.read_text())\n"
        "        timings = [\n"
        '            ({**c["kwargs"], **{k: v for k, v in c.items() if k != "kwargs" and v is not None}}, ms[0])\n'
        '            for c, ms in content["configs_timings"]\n'
        "        ]\n"
        '        install_timings(kernel, content["key"], timings)\n\n\n'
        'if __name__ == "__main__":\n    install()\n'
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
        'if __name__ == "__main__":\n    for config in warm_up():\n        print(config)\n'
    )


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


def _fastest(study: Study, device: DeviceVerdict) -> list[Mapping[str, Any]]:
    """Configs of the arms that are faster than the baseline by the rule, at some workload."""
    names = dict.fromkeys(r.arm for r in device.results if r.verdict == "faster")
    best: dict[str, tuple[float, str]] = {}
    for r in device.results:
        if r.arm in names and r.time_us is not None:
            best[r.workload] = min(best.get(r.workload, (math.inf, "")), (r.time_us, r.arm))
    return [study.arm(arm).config for arm in dict.fromkeys(a for _, a in best.values())]


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    default = {"num_ctas": 1, "num_warps": 4, "num_stages": 3}
    return {**default, **one} == {**default, **other}


def _mean_ms(touch: FirstTouch) -> list[float]:
    """Per config its mean time over the bucket's workloads, in ms: the least is the best for all."""
    return [sum(row) / len(row) / 1e3 for row in touch.times_us]


def _triton_key(bucket: Bucket) -> list[Any]:
    return [*bucket.key.values(), *(f"torch.{d}" for d in bucket.dtypes)]


def _config_record(config: Mapping[str, Any]) -> dict[str, Any]:
    """A ``triton.Config`` as its ``__dict__``."""
    options = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None, "ir_override": None}
    return {
        "kwargs": {k: v for k, v in config.items() if k not in OPTIONS},
        **{k: config.get(k, v) for k, v in options.items()},
        "pre_hook": None,
    }


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path.resolve(), folder.resolve())
