"""What differs between two plans, in lines that a reader can follow."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from occupancy_probe.records import Plan
from occupancy_probe.templating import one_line

_MADE_FROM_ARMS = {"arms", "commit"}
"""Sections that are told elsewhere (arms one by one) or are no part of what is measured."""


def differences(old: Plan, new: Plan) -> list[str]:
    """One line per difference, ``decision.margin: 0.01 → 0.02``; empty if the plans mean the same.

    Sections that one tool writes down and another does not, with nothing in them, are no difference.
    """
    return [
        *_mapping("", _stated(old.sections), _stated(new.sections)),
        *_named("arm", {a.name: a.config for a in old.arms}, {a.name: a.config for a in new.arms}),
        *_named(
            "workload",
            {w.name: w.axes for w in old.workloads},
            {w.name: w.axes for w in new.workloads},
        ),
        *_mapping("", _sources(old), _sources(new)),
        *_value("autotuner", old.autotune, new.autotune),
    ]


def _stated(sections: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in sections.items() if k not in _MADE_FROM_ARMS and k != "workloads"}


def _sources(plan: Plan) -> dict[str, str]:
    names = {"kernel": "kernel's source", "step": "series and profile"}
    return {names.get(k, k): v[:12] for k, v in plan.depends.items()}


def _mapping(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys((*old, *new)):
        a, b = old.get(key), new.get(key)
        name = f"{prefix}{key}"
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _mapping(f"{name}.", a, b)
        else:
            yield from _value(name, a, b)


def _value(name: str, old: Any, new: Any) -> Iterator[str]:
    if old == new or (_empty(old) and _empty(new)):
        return
    if isinstance(old, str) and isinstance(new, str) and len(old) + len(new) > 120:
        yield f"{name}: {_changed_words(old, new)}"
    elif isinstance(old, list) and isinstance(new, list) and len(str(old)) + len(str(new)) > 120:
        yield from _entries(name, old, new)
    else:
        yield f"{name}: {_short(old)} → {_short(new)}"


def _entries(name: str, old: list[Any], new: list[Any]) -> Iterator[str]:
    """Long lists entry by entry; as many new ones as old ones in one place are changed ones."""
    keys, others = ([repr(x) for x in side] for side in (old, new))
    for kind, i, j, k, m in difflib.SequenceMatcher(None, keys, others, False).get_opcodes():
        if kind == "equal":
            continue
        if j - i == m - k:
            for before, after in zip(old[i:j], new[k:m], strict=True):
                yield from _value(name, before, after)
        else:
            yield from (f"{name}: {_short(x)} removed" for x in old[i:j])
            yield from (f"{name}: {_short(x)} added" for x in new[k:m])


def _named(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*old, *new)):
        if name not in new:
            yield f"{what} {name} removed"
        elif name not in old:
            yield f"{what} {name} added: {_short(new[name])}"
        elif old[name] != new[name]:
            yield f"{what} {name}: {_short(old[name])} → {_short(new[name])}"


def _empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        value = " ".join(f"{k}={v}" for k, v in value.items())
    text = "nothing" if _empty(value) else one_line(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _changed_words(old: str, new: str) -> str:
    """The words of a long text that changed, with the rest left out."""
    a, b = old.split(), new.split()
    parts = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind != "equal":
            before, after = _short(" ".join(a[i:j])), _short(" ".join(b[k:m]))
            parts.append(f"“{before}” → “{after}”")
    return "; ".join(parts)
