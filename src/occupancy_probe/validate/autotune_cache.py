"""Measured times in the form of Triton's autotune cache, so that it picks what costs least anywhere.

Triton takes the least of the timings that it finds, whatever its list is, and uses it for the whole
bucket. So each config stands with one time for the bucket: that of a launch which always has the
config's worst-case loss. The config with the smallest one is picked.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from occupancy_probe.records import Audit, Bucket, DeviceVerdict, FirstTouch
from occupancy_probe.study import BASELINE, Study
from occupancy_probe.templating import config_text, percent
from occupancy_probe.validate.adoption import arm_in_force, condition, times


@dataclass(frozen=True)
class CacheFile:
    """One bucket's file below the device's folder, and what becomes of a launch that reads it."""

    name: str
    content: str
    says: str


def cache_files(study: Study, device: DeviceVerdict, audit: Audit | None) -> list[CacheFile]:
    """One ``<kernel>.autotune.json`` per measured bucket."""
    found = []
    for touch in device.first_touch if audit else []:
        assert audit is not None
        bucket = next((b for b in audit.buckets if set(touch.workloads) <= set(b.workloads)), None)
        rows = _rows(study, device, touch)
        if bucket is None or not rows:
            continue
        best = [min(column) for column in zip(*(t for _, t in rows), strict=True)]
        worst = [max(t / b for t, b in zip(row, best, strict=True)) for _, row in rows]
        typical_ms = fmean(best) / 1e3
        timings = [
            [_record(config), [typical_ms * loss] * 3]
            for (config, _), loss in zip(rows, worst, strict=True)
        ]
        name = "-".join(str(v) for v in bucket.key.values()) or "any"
        found.append(
            CacheFile(
                f"autotune_cache/{name}/{study.file.kernel.function[:150]}.autotune.json",
                json.dumps({"key": _key(bucket), "configs_timings": timings}, indent=1) + "\n",
                _says(study, device, touch, *rows[worst.index(min(worst))], best),
            )
        )
    return found


def installer(study: Study, folder: Path) -> str:
    """A script that puts the files beside it where this machine's Triton looks for them."""
    path = os.path.relpath(study.path.resolve(), folder.resolve())
    return (
        '"""Put autotune_cache/ where Triton looks for it on this machine and GPU."""\n\n'
        "import json\nfrom pathlib import Path\n\n"
        "from occupancy_probe.launch.launches import study_problem\n"
        "from occupancy_probe.launch.tuning_cache import install_file\n"
        "from occupancy_probe.study import load_study\n\n"
        "HERE = Path(__file__).resolve().parent\n"
        f"STUDY = HERE / {path!r}\n"
        "SAYS = {\n"
        '    "installed": "installed",\n'
        '    "replaced": "replaced what an earlier install had left",\n'
        '    "kept": "kept: this machine has tuned that key itself; delete its file to install this one",\n'
        '    "impossible": "impossible: Triton caches nothing where a config has a pre_hook or the key is empty",\n'
        "}\n\n\n"
        "def install(kernel=None):\n"
        '    """kernel: the autotuned object of your program; by default that of the study\'s Problem."""\n'
        "    kernel = study_problem(load_study(STUDY)).kernel if kernel is None else kernel\n"
        "    written = 0\n"
        '    for path in sorted(HERE.glob("autotune_cache/*/*.autotune.json")):\n'
        "        content = json.loads(path.read_text())\n"
        '        done = install_file(kernel, content["key"], content["configs_timings"])\n'
        '        written += done in ("installed", "replaced")\n'
        '        print(f"{path.parent.name}: {SAYS[done]}")\n'
        "    if not written:\n"
        '        print("nothing was written")\n\n\n' + main_on_gpu("install_cache.py", "install()")
    )


def main_on_gpu(file: str, call: str) -> str:
    """The end of an exported script: ``call``, or one line that says that it takes a GPU."""
    return (
        'if __name__ == "__main__":\n'
        "    import torch\n\n"
        "    if not torch.cuda.is_available():\n"
        f'        raise SystemExit("{file} needs an NVIDIA GPU and none was found; run it where the program runs")\n'
        f"    {call}\n"
    )


def _rows(
    study: Study, device: DeviceVerdict, touch: FirstTouch
) -> list[tuple[Mapping[str, Any], list[float]]]:
    """Configs with their µs per workload: those of the list that run everywhere, and the adopted arm
    where it is adopted for all of the bucket."""
    rows: list[tuple[Mapping[str, Any], list[float]]] = [
        (config, row)
        for config, row in zip(touch.configs, touch.times_us, strict=True)
        if all(map(math.isfinite, row))
    ]
    timed = times(device)
    own = [timed.get(w, {}).get(device.adopted or "") for w in touch.workloads]
    if _holds_throughout(study, device, touch) and None not in own:
        config = study.arm(device.adopted or BASELINE).config
        if not any(_record(config) == _record(c) for c, _ in rows):
            rows.append((config, [t for t in own if t is not None]))
    return rows


def _holds_throughout(study: Study, device: DeviceVerdict, touch: FirstTouch) -> bool:
    axes = {w.name: w.axes for w in study.workloads}
    arms = {arm_in_force(study, device, axes[w]) for w in touch.workloads}
    return arms == {device.adopted}


def _says(
    study: Study,
    device: DeviceVerdict,
    touch: FirstTouch,
    config: Mapping[str, Any],
    row: list[float],
    best: list[float],
) -> str:
    """Which config wins, and its largest loss to the others of the file and to all that was measured."""
    loss, at = max((t / b - 1, w) for t, b, w in zip(row, best, touch.workloads, strict=True))
    text = f"{config_text(config)} wins, and loses nothing to the others of the file"
    if loss > 0:
        text = text.replace("nothing", f"at most {percent(loss)} ({at})")
    timed = times(device)
    known = [
        (t / least - 1, w, arm)
        for t, w in zip(row, touch.workloads, strict=True)
        for least, arm in [min(((t, a) for a, t in timed.get(w, {}).items()), default=(t, ""))]
    ]
    most, at, arm = max(known)
    if most > loss:
        text += f", {percent(most)} ({at}) to {arm}, the best that was measured there"
    if device.adopted and not _holds_throughout(study, device, touch):
        text += (
            f"; {device.adopted} is not in it, as it is adopted {condition(study, device)} and the key"
            " does not tell"
        )
    return text


def _key(bucket: Bucket) -> list[Any]:
    return [*bucket.key.values(), *(f"torch.{d}" for d in bucket.dtypes)]


def _record(config: Mapping[str, Any]) -> dict[str, Any]:
    """A ``triton.Config`` as its ``__dict__``."""
    options = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None, "ir_override": None}
    return {
        "kwargs": {k: v for k, v in config.items() if k not in options},
        **{k: config.get(k, v) for k, v in options.items()},
        "pre_hook": None,
    }
