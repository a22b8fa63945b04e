"""One Jinja environment for every document: sandboxed, strict, and escaping what studies say."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, StrictUndefined, TemplateError, TemplateNotFound, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

from occupancy_probe.exc import ProbeError, StudyError

NOT_MEASURED = "not measured"


def render(folder: Path, template: str, **context: Any) -> str:
    """``folder/template`` over ``context``; ProbeError names the template and what is wrong.

    Text other than HTML is tidied: no trailing blanks, no runs of empty lines, one newline at the
    end, so that the same records give the same bytes whatever a template's layout is.
    """
    try:
        text = environment(folder).get_template(template).render(**context)
    except TemplateNotFound as e:
        raise ProbeError(
            f"{folder}: no template {e.name}; restore it or name another folder"
        ) from e
    except (TemplateError, SecurityError) as e:
        line = getattr(e, "lineno", None)
        place = folder / template if line is None else f"{folder / template} line {line}"
        raise ProbeError(f"{place}: {e}; correct the template") from e
    return text if template.endswith(".html.j2") else _tidy(text)


def render_string(text: str, **context: Any) -> str:
    """A study's one-line template, such as a commit subject; StudyError if it is not one.

    Studies come from strangers: only values, conditions and a few filters are allowed, no loops,
    calls or arithmetic, which a sandbox alone would let run for ever.
    """
    env = environment(None)
    try:
        for node in env.parse(text).find_all(nodes.Node):
            _refuse_unless_plain(node, text)
        rendered = env.from_string(text).render(**context)
    except (TemplateError, SecurityError) as e:
        raise StudyError(f"commit subject {text!r}: {e}; known names: {', '.join(context)}") from e
    if not (line := one_line(rendered)):
        raise StudyError(f"commit subject {text!r}: renders to nothing; give it some words")
    return line


def environment(folder: Path | None) -> ImmutableSandboxedEnvironment:
    """The environment over the templates of ``folder``; None for strings only."""
    env = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(folder) if folder is not None else None,
        undefined=StrictUndefined,
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters.update(_FILTERS)
    return env


def percent(value: float | None, digits: int = 1, sign: bool = False) -> str:
    """A fraction in percent: 0.083 → ``8.3 %``."""
    if value is None:
        return "–"
    return f"{100 * value:{'+' if sign else ''}.{digits}f} %".replace("-", "−")


def number(value: float | None) -> str:
    """Thousands separated: 82176 → ``82,176``; fractions keep three significant digits."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else _significant(value)


def plain(value: float, digits: int = 3) -> str:
    """Significant digits as ``%.3g`` gives them, but no exponent: 3771.2 → ``3,771``, 0.5 → ``0.5``."""
    text = _significant(value, digits)
    return re.sub(r"\.?0+(?=$|·)", "", text) if "." in text else text


def size(value: int | None) -> str:
    """Bytes, in full: 82176 → ``82,176 B``."""
    return "–" if value is None else f"{value:,} B"


def scaled(value: float | None, unit: str = "") -> str:
    """Three significant digits and a decimal prefix: 26738688, "B" → ``26.7 MB``."""
    if value is None:
        return "–"
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{_significant(value / factor)} {prefix}{unit}".rstrip()
    return f"{_significant(float(value))} {unit}".rstrip()


def microseconds(value: float | None) -> str:
    """Three significant digits: 46.789 → ``46.8 µs``."""
    return NOT_MEASURED if value is None else f"{_significant(value)} µs"


def interval(low: float | None, high: float | None) -> str:
    """``0.881–0.893``; empty where there is none."""
    return "" if low is None or high is None else f"{low:.3f}–{high:.3f}".replace("inf", "∞")


def interval_percent(of: Any, digits: int = 1, sign: bool = False) -> str:
    """An interval of fractions in percent: ``6.1 % [5.9–6.3]``; only the value where it has no width."""
    if of is None:
        return "–"
    low, high = (f"{100 * v:{'+' if sign else ''}.{digits}f}" for v in (of.low, of.high))
    text = percent(of.value, digits, sign)
    return text if low == high else f"{text} [{low}–{high}]".replace("-", "−")


def measured_interval(of: Any) -> str:
    """A value with its interval, three significant digits: ``4.21 [4.07–4.35]``."""
    if of is None:
        return "–"
    value, low, high = (plain(v) for v in (of.value, of.low, of.high))
    return f"{value} [{low}–{high}]".replace("inf", "∞")


def step_share(share: Mapping[str, Any]) -> str:
    """How a study says that it knows the kernel's share of the step."""
    if share["value"] is not None:
        return f"{percent(share['value'])}, given"
    if share["range"] is not None:
        return " to ".join(percent(v) for v in share["range"]) + ", given"
    if share["profile"] is not None:
        return f"from the profile {share['profile']}"
    return f"{share['launches']:g} launches per step"


def config_text(config: Mapping[str, Any]) -> str:
    """``BLOCK_T=32 num_warps=8``, in the config's own order."""
    return " ".join(f"{key}={value}" for key, value in config.items())


def values_text(values: Any) -> str:
    """A value out of a record in words: mappings as ``a = 1, b = 2``, long floats cut."""
    if isinstance(values, Mapping):
        return ", ".join(f"{key} = {values_text(value)}" for key, value in values.items())
    if isinstance(values, (list, tuple)):
        return "[" + ", ".join(values_text(value) for value in values) + "]"
    if isinstance(values, bool) or values is None:
        return {True: "yes", False: "no", None: "–"}[values]
    return number(values) if isinstance(values, (int, float)) else str(values)


def one_line(text: Any) -> str:
    """White space collapsed and control characters gone: fit for a subject or a trailer."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def markdown_inline(text: Any) -> str:
    """Text as itself inside a Markdown line or table cell: no HTML, markup, column or new line."""
    escaped = re.sub(r"([\\`*~|\[\]])", r"\\\1", one_line(text))
    escaped = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", escaped)
    return _at_line_start(_without_html(escaped))


def markdown_code(text: Any) -> str:
    """A short value as code; escaped text where backticks or bars would end the code or the cell."""
    line = one_line(text)
    return markdown_inline(line) if not line or re.search(r"[`|]", line) else f"`{line}`"


def markdown_prose(text: Any) -> str:
    """Paragraphs, lists, emphasis and `code` stay; HTML, links, headings, quotes, tables do not."""
    return "\n".join(_prose_line(line) for line in str(text).strip().splitlines())


def _prose_line(line: str) -> str:
    mark = re.match(r"\s*(?:[-*+]|\d{1,9}[.)])\s+(?=\S)", line)
    if mark and not re.fullmatch(r"[-*\s]+", line):
        return mark.group() + _prose_line(line[mark.end() :])
    parts = line.strip().split("`")
    paired = "``" not in line and len(parts) % 2 == 1
    if not paired:
        return _at_line_start(_prose(line.strip()).replace("`", "\\`"))
    return _at_line_start("`".join(p if i % 2 else _prose(p) for i, p in enumerate(parts)))


def _prose(text: str) -> str:
    text = re.sub(r"([\\|])", r"\\\1", text)
    return re.sub(r"\](?=[(:\[])", r"]\\", _without_html(text))


def _without_html(text: str) -> str:
    return re.sub(r"&(?=#|\w+;)", "&amp;", text).replace("<", "&lt;")


def _at_line_start(text: str) -> str:
    """Disarm what means a block only at the start of a line: heading, quote, rule, fence, list."""
    text = re.sub(
        r"^(#+(?:\s|$)|>|[-+](?:\s|$)|-+\s*$|=+\s*$|~~~|\*\s|\*{3,}\s*$|_{3,}\s*$)", r"\\\1", text
    )
    return re.sub(r"^(\d{1,9})([.)](?:\s|$))", r"\1\\\2", text)


def _significant(value: float, digits: int = 3) -> str:
    """Thousands separated; very large and very small as ``1.23·10⁻⁷``, never ``1.23e-07``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:,.0f}"
    power = math.floor(math.log10(abs(value)))
    if not -5 <= power < 9:
        return f"{value / 10.0**power:.{digits - 1}f}·10{str(power).translate(_SUPERSCRIPT)}"
    return f"{value:,.{max(0, digits - 1 - power)}f}"


def _tidy(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n") + "\n"


def _refuse_unless_plain(node: nodes.Node, text: str) -> None:
    what = node.name if isinstance(node, nodes.Filter) else type(node).__name__.lower()
    if not isinstance(node, _PLAIN) or (
        isinstance(node, nodes.Filter) and what not in _PLAIN_FILTERS
    ):
        raise StudyError(
            f"commit subject {text!r}: {what} is not allowed; use values, if and the filters"
            f" {', '.join(sorted(_PLAIN_FILTERS))}"
        )


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN_FILTERS = {"capitalize", "default", "lower", "percent", "title", "trim", "truncate", "upper"}
_PLAIN = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Getattr,
    nodes.Getitem, nodes.Filter, nodes.If, nodes.CondExpr, nodes.Compare, nodes.Operand,
    nodes.And, nodes.Or, nodes.Not,
)  # fmt: skip
_FILTERS = {
    "percent": percent,
    "number": number,
    "plain": plain,
    "bytes": size,
    "scaled": scaled,
    "us": microseconds,
    "interval": interval,
    "interval_percent": interval_percent,
    "measured_interval": measured_interval,
    "step_share": step_share,
    "config": config_text,
    "values": values_text,
    "one_line": one_line,
    "short": lambda text, length=12: str(text)[:length],
    "date": lambda text: str(text)[:10],
    "cell": markdown_inline,
    "code": markdown_code,
    "prose": markdown_prose,
}
