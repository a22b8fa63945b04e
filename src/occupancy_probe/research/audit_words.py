"""The audit in sentences, each with the numbers it rests on."""

from __future__ import annotations

from collections import Counter

from occupancy_probe.records import Audit
from occupancy_probe.templating import config_text, size


def findings(a: Audit) -> list[str]:
    """Everything that a reader has to act on, the key first."""
    parts = (_cost, _blind, _dead, _unread, _in_place, _capture, _wider, _configs, _lists, _errors)
    return [sentence for part in parts for sentence in part(a)]


def _cost(a: Audit) -> list[str]:
    tuned = [b for b in a.buckets if b.configs]
    if not tuned:
        return [f"{len(a.configs)} config: nothing is timed"] if len(a.configs) == 1 else []
    counts = "/".join(sorted({str(b.configs) for b in tuned}))
    seconds = f"{a.tuning_seconds:.3g} s of timing, compiling comes on top"
    return [
        f"{counts} configs × {len(tuned)} bucket{'s' if len(tuned) != 1 else ''} = {a.tuning_launches} tuned configs, {seconds}"
    ]


def _blind(a: Audit) -> list[str]:
    found = []
    for bucket in a.buckets:
        if len({tuple(g) for g in bucket.grids}) > 1 and len(a.configs) > 1:
            low, high = min(bucket.grids), max(bucket.grids)
            found.append(
                f"key {a.key} puts {_some(bucket.workloads)} into one bucket although their grids differ"
                f" ({low} … {high}): what wins at the first is used for all"
            )
    if a.grid_blind:
        found.append(f"in the grid and not in the key: {', '.join(a.grid_blind)}")
    if a.blind_to:
        found.append(f"arguments that vary inside a bucket: {', '.join(a.blind_to)}")
    return found


def _dead(a: Audit) -> list[str]:
    if not a.dead_names:
        return []
    return [
        f"key names that are no argument: {', '.join(a.dead_names)}; ignored up to Triton 3.8, ValueError"
        " from 3.9"
    ]


def _unread(a: Audit) -> list[str]:
    return [
        f"key argument {name} is never read by the kernel: it fragments the cache, its {values} values"
        f" cost {values} tunings for one binary"
        for name, values in a.unread.items()
        if values > 1
    ] + [
        f"key argument {name} is never read by the kernel"
        for name, values in a.unread.items()
        if values <= 1
    ]


def _in_place(a: Audit) -> list[str]:
    if not a.in_place_known:
        return ["no config could be compiled: in-place updates are not known"]
    found = []
    for i in a.in_place:
        head = f"{i.argument} is updated in place ({i.by})"
        if i.status == "latent":
            found.append(f"{head}: latent, one config is not timed; adding an arm switches it on")
        elif i.status == "unsafe":
            left = "" if i.after_first_call is None else f": {i.after_first_call:g} instead of 11"
            found.append(
                f"{head} and timing is unprotected: unsafe{left}; restore_value would clone"
                f" {size(i.bytes)} before every timed call"
            )
        elif i.protection == "reset_to_zero":
            found.append(
                f"{head}: protected by reset_to_zero, which also clears what the program had in it"
                " before the call that tunes"
            )
        else:
            found.append(f"{head}: protected by {i.protection} ({size(i.bytes)})")
    return found


def _capture(a: Audit) -> list[str]:
    if not any(b.configs for b in a.buckets):
        return []
    if a.capture is None:
        return [
            "the first launch of a bucket tunes: inside CUDA-graph capture it fails, so each bucket must"
            " be launched once before capture; the study names no capture list"
        ]
    if not a.capture.first_in_capture:
        return ["capture-safe: every key of the capture list is reached by the warm-up list"]
    keys = [f"{k.workload} ({config_text(k.key)})" for k in a.capture.first_in_capture]
    return [f"first reached inside capture, where tuning fails: {', '.join(keys)}"]


def _wider(a: Audit) -> list[str]:
    if a.wider_key is None or not any(b.configs for b in a.buckets):
        return []
    w = a.wider_key
    how = "" if w.is_argument else "; no argument of the kernel says it, so its signature grows"
    found = [
        f"{', '.join(w.added)} in the key: {w.buckets} buckets, {w.tuning_launches} tuned configs,"
        f" {w.seconds:.3g} s of timing{how}"
    ]
    if w.not_warmed:
        found.append(f"the warm-up list would then not reach: {', '.join(w.not_warmed)}")
    return found


def _configs(a: Audit) -> list[str]:
    found = []
    words = {
        "skipped": "dies in silence and counts as infinitely slow",
        "aborts": "ends the launch that tunes",
        "pruned": "is taken out by a prune function",
    }
    for fate, said in words.items():
        for c in a.configs:
            where = [t for t, f in c.fate.items() if f == fate]
            if where:
                why = next((c.reasons[t] for t in where if t in c.reasons), "")
                found.append(
                    f"{config_text(c.config)} {said} on {', '.join(where)}"
                    + (f": {why}" if why else "")
                )
    doomed = Counter(
        t for c in a.configs for t, f in c.fate.items() if f in ("skipped", "aborts", "pruned")
    )
    found += [
        f"no config of the list fits on {t}: the first one is 'best' and its error is raised"
        for t, n in doomed.items()
        if n == len(a.configs)
    ]
    return found


def _lists(a: Audit) -> list[str]:
    found = []
    if a.asks:
        found.append(f"the list is made by asking the GPU at import: {', '.join(a.asks)}")
    found += [f"another list on {t}: {len(configs)} configs" for t, configs in a.lists.items()]
    if a.prune_asks:
        found.append(f"prune functions or hooks ask the GPU: {', '.join(a.prune_asks)}")
    return [*found, *a.conflicts]


def _errors(a: Audit) -> list[str]:
    by_words = Counter(a.errors.values())
    return [
        f"{n} of the workloads cannot be launched through it: {said}"
        for said, n in by_words.items()
    ]


def _some(names: list[str]) -> str:
    return (
        ", ".join(names)
        if len(names) <= 8
        else f"{', '.join(names[:3])} … {names[-1]} ({len(names)})"
    )
