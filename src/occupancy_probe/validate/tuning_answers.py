"""What the audit and the measurements answer, question by question, for document and report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from occupancy_probe.records import Answer, Audit, AutotuneRuns, DeviceVerdict, FirstTouch
from occupancy_probe.study import Study
from occupancy_probe.templating import config_text, percent, plain, size
from occupancy_probe.validate.conclusions import span
from occupancy_probe.validate.first_touch import mean_first_call

_UNMEASURED = "not measured: that takes times of two of the autotuner's configs at least"


def answers(study: Study, audit: Audit | None, devices: Sequence[DeviceVerdict]) -> list[Answer]:
    """The questions that an autotuner around the kernel raises, with figures and where they are from.

    Empty where there is no autotuner or no audit.
    """
    if audit is None or not audit.configs:
        return []
    return [
        Answer(question="What is the key?", answer=_key(audit)),
        Answer(question=_blind_question(audit), answer=_blind(audit, devices)),
        *_warps(study, audit, devices),
        Answer(question="Is capture safe?", answer=_capture(audit)),
        Answer(question="Can tuning corrupt results?", answer=_corruption(audit)),
        Answer(question=_wider_question(audit), answer=_wider(audit, devices)),
        Answer(question="What to do about it?", answer=_advice(devices)),
    ]


def _key(audit: Audit) -> str:
    named = ", ".join(audit.key) or "nothing"
    dtypes = sorted({d for b in audit.buckets for d in b.dtypes})
    text = f"{named}; Triton adds the element types of the tensor arguments ({', '.join(dtypes) or 'none'})"
    if audit.dead_names:
        text += f"; {', '.join(audit.dead_names)} is no argument: ignored up to Triton 3.8, an error from 3.9"
    if audit.unread:
        text += f"; never read by the kernel: {', '.join(audit.unread)}"
    workloads = sum(len(b.workloads) for b in audit.buckets)
    return (
        f"{text}. {workloads} workloads fall into {len(audit.buckets)} bucket{_s(audit.buckets)}."
    )


def _blind_question(audit: Audit) -> str:
    return (
        f"Does {', '.join(audit.grid_blind)} matter?" if audit.grid_blind else "Is the key blind?"
    )


def _blind(audit: Audit, devices: Sequence[DeviceVerdict]) -> str:
    if not audit.grid_blind:
        return "No: nothing that shapes the grid varies inside a bucket here."
    head = f"{', '.join(audit.grid_blind)} shapes the grid and is not in the key, so the first touch decides for all. "
    said = []
    for device in devices:
        for touch in device.first_touch:
            where = f"{device.device_name}{_bucket(touch, device)}"
            said.append(
                f"{where}: yes, up to {percent(touch.worst)} at {touch.worst_at} if touched"
                f" first at {touch.worst_first}{_coin(touch)}"
                if touch.worst > 0
                else f"{where}: no, the same config wins everywhere"
            )
    return head + ("; ".join(said) or f"What that costs is {_UNMEASURED}") + "."


def _bucket(touch: FirstTouch, device: DeviceVerdict) -> str:
    """Which bucket is meant, where the device has several."""
    if len(device.first_touch) < 2:
        return ""
    ends = dict.fromkeys((touch.workloads[0], touch.workloads[-1]))
    return f", bucket of {' … '.join(ends)}"


def _coin(touch: FirstTouch) -> str:
    """How sure the choice at the worst first touch is, where repeats differ."""
    won = touch.winners[touch.workloads.index(touch.worst_first)] if touch.winners else {}
    if len(won) < 2:
        return ""
    total = sum(won.values())
    said = ", ".join(
        f"{config_text(touch.configs[int(i)])} wins {n} of {total} repeats" for i, n in won.items()
    )
    return f" (where it is a toss: {said})"


def _warps(study: Study, audit: Audit, devices: Sequence[DeviceVerdict]) -> list[Answer]:
    """One question per warp count of the list that is not the baseline's."""
    baseline = study.file.baseline.get("num_warps")
    counts = dict.fromkeys(c.config.get("num_warps") for c in audit.configs)
    return [
        Answer(question=f"Would num_warps={n} ever be chosen?", answer=_ever(n, audit, devices))
        for n in counts
        if n != baseline
    ]


def _ever(n: object, audit: Audit, devices: Sequence[DeviceVerdict]) -> str:
    said = []
    for device in devices:
        for touch in device.first_touch:
            where = [
                w
                for w, i in zip(touch.workloads, touch.chosen, strict=True)
                if touch.configs[i].get("num_warps") == n
            ]
            text = (
                f"yes, if touched first at {span(where, touch.workloads)}, and is then used for all"
                if where
                else "no, at no first touch"
            )
            where_from = f"{device.device_name}{_bucket(touch, device)}"
            said.append(f"{where_from}: {text}{_unlisted(touch)}")
        if device.autotune_runs is not None:
            said.append(
                f"{device.device_name}, real autotune runs: {runs_text(device.autotune_runs)}"
            )
    if said:
        return ". ".join(said) + "."
    dying = [
        t
        for c in audit.configs
        if c.config.get("num_warps") == n
        for t, f in c.fate.items()
        if f != "fits"
    ]
    known = f"; a config with it does not fit on {', '.join(dict.fromkeys(dying))}" if dying else ""
    return f"{_UNMEASURED.capitalize()}{known}."


def _unlisted(touch: FirstTouch) -> str:
    if not touch.unlisted:
        return ""
    worst = max(touch.unlisted, key=touch.unlisted.__getitem__)
    loss = touch.unlisted[worst]
    if loss <= 0:
        return ""
    return (
        f". The list itself costs more: its best is {percent(loss)} slower at {worst} than"
        f" {touch.unlisted_arm}, which is not in it"
    )


def runs_text(runs: AutotuneRuns) -> str:
    """Winners of real runs, as counts per first workload, and the seconds that they took."""
    parts = []
    for workload in dict.fromkeys(r.workload for r in runs.runs):
        mine = [r for r in runs.runs if r.workload == workload]
        won = Counter(config_text(_short(r.winner)) or f"failed: {r.error}" for r in mine)
        said = ", ".join(f"{config} {n} of {len(mine)}" for config, n in won.most_common())
        seconds = sorted(r.seconds for r in mine)
        parts.append(
            f"first at {workload}: {said} ({plain(seconds[len(seconds) // 2])} s a first call, {plain(seconds[-1])}"
            " s at most)"
        )
    return "; ".join(parts)


def _short(config: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in config.items() if (k, v) != ("num_ctas", 1)}


def _capture(audit: Audit) -> str:
    if not any(b.configs for b in audit.buckets):
        return "Yes: one config, nothing is timed."
    if audit.capture is None:
        return (
            "Only for keys that were launched before: the first launch of a bucket times its configs, which a"
            " capture does not allow. The study names no warm-up and capture lists."
        )
    first = audit.capture.first_in_capture
    if not first:
        calls = ", ".join(audit.capture.warmup)
        return (
            f"Yes: the warm-up list ({calls}) reaches every key of the {len(audit.capture.capture)} captured"
            " workloads. It also decides for all of them."
        )
    keys = ", ".join(f"{k.workload} ({config_text(k.key)})" for k in first)
    return f"No: first reached inside capture: {keys}. exports/warmup.py has the calls to make before it."


def _corruption(audit: Audit) -> str:
    if not audit.in_place_known:
        return "Not known: no config could be compiled."
    if not audit.in_place:
        return "No: the kernel updates no argument in place (def-use on TTIR)."
    parts = []
    for i in audit.in_place:
        by = f" by {i.protection}" if i.protection else ""
        left = (
            ""
            if i.after_first_call is None
            else f", 10 becomes {i.after_first_call:g} instead of 11"
        )
        parts.append(
            f"{i.argument}: {i.status}{by} ({i.by}{left}; restore_value would clone {size(i.bytes)})"
        )
    return "; ".join(parts) + "."


def _wider_question(audit: Audit) -> str:
    added = ", ".join(audit.wider_key.added) if audit.wider_key else "more"
    return f"What would {added} in the key cost?"


def _wider(audit: Audit, devices: Sequence[DeviceVerdict]) -> str:
    wider = audit.wider_key
    if wider is None:
        return "Nothing to add: no bucket holds different grids."
    text = (
        f"{wider.buckets} buckets instead of {len(audit.buckets)}: {wider.tuning_launches} tuned configs instead of"
        f" {audit.tuning_launches}, {plain(wider.seconds)} s instead of {plain(audit.tuning_seconds)} s of timing"
        " (compiling comes on top)"
    )
    if not wider.is_argument:
        text += f"; {', '.join(wider.added)} must first become an argument of the kernel"
    if wider.not_warmed:
        text += f"; captured and not warmed up then: {', '.join(wider.not_warmed)}"
    for d in devices:
        if mean := mean_first_call(d.autotune_runs):
            text += (
                f"; first calls on {d.device_name} took {plain(mean)} s on average, binaries cached after the first:"
                f" {plain(wider.buckets * mean)} s instead of {plain(len(audit.buckets) * mean)} s"
            )
    removed = [
        f"{percent(touch.worst)} on {d.device_name}{_bucket(touch, d)}"
        for d in devices
        for touch in d.first_touch
    ]
    return f"{text}. It removes a worst loss of {'; '.join(removed)}." if removed else f"{text}."


def _advice(devices: Sequence[DeviceVerdict]) -> str:
    said = [
        f"{d.device_name}: {d.tuning_advice.advice}: {d.tuning_advice.why}"
        for d in devices
        if d.tuning_advice is not None
    ]
    return ("; ".join(said) or "No advice: what a first touch costs is not measured") + "."


def _s(items: Sequence[object]) -> str:
    return "" if len(items) == 1 else "s"
