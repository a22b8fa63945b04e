"""Templates are strict and sandboxed; what a study says is data, in every format."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from markdown_it import MarkdownIt

from occupancy_probe.exc import ProbeError, StudyError
from occupancy_probe.templating import (
    config_text,
    interval,
    markdown_code,
    markdown_inline,
    markdown_prose,
    microseconds,
    number,
    percent,
    plain,
    render,
    render_string,
    scaled,
    size,
    values_text,
)

TEMPLATES = Path(__file__).parents[1] / "templates"
EVIL = [
    "<script>alert(1)</script>",
    "# not a heading",
    "a | b | c",
    "[click](javascript:alert(1))",
    "![spy](http://example.invalid/x.png)",
    "one\n# two\n===\n---\n> three",
    "```\n<b>fence</b>",
    "`unpaired <b>bold</b>",
    "``two`` <i>x</i> `one`",
    "- # heading in a list\n- <b>x</b>",
    "[a]: http://example.invalid\n\n[a]",
    "&lt;b&gt; &#60;b>",
    "<http://example.invalid>",
    "\\<b>x</b> \\`<b>y</b>`",
    "<",
]


def _html(markdown: str) -> str:
    return MarkdownIt("commonmark").enable("table").render(markdown)


@pytest.mark.parametrize("text", EVIL)
@pytest.mark.parametrize("escape", [markdown_inline, markdown_prose, markdown_code])
def test_no_text_becomes_html_a_heading_a_link_or_an_image(escape, text: str) -> None:
    html = _html(escape(text) + "\n\nafter\n")
    for tag in ("<script", "<b>", "<i>", "<h1", "<h2", "<a ", "<img", "<blockquote", "<hr", "<pre"):
        assert tag not in html, html
    assert "<p>after</p>" in html


@pytest.mark.parametrize("text", EVIL)
@pytest.mark.parametrize("escape", [markdown_inline, markdown_code])
def test_no_text_leaves_its_table_cell(escape, text: str) -> None:
    html = _html(f"| a | b |\n| - | - |\n| {escape(text)} | last |\n")
    assert html.count("<tr>") == 2 and html.count("<td>") == 2
    assert "<td>last</td>" in html


def test_inline_text_reads_as_it_was_written() -> None:
    text = "raise warps/SM (num_warps=8), C < 24 & *more* `code` [0.9, 1.1] _kernel"
    expected = (
        "<p>raise warps/SM (num_warps=8), C &lt; 24 &amp; *more* `code` [0.9, 1.1] _kernel</p>\n"
    )
    assert _html(markdown_inline(text)) == expected
    assert markdown_inline("num_warps=8/num_stages") == "num_warps=8/num_stages"


def test_prose_keeps_lists_emphasis_and_code() -> None:
    html = _html(markdown_prose("Force `a < b`, **now**:\n\n- one\n- two\n\n1. first"))
    assert "<code>a &lt; b</code>" in html and "<strong>now</strong>" in html
    assert html.count("<li>") == 3


def test_figures_read_alike_everywhere() -> None:
    assert percent(0.0833) == "8.3 %" and percent(-0.07, 0, True) == "−7 %" and percent(None) == "–"
    assert size(82176) == "82,176 B" and number(1200) == "1,200" and number(0.27) == "0.270"
    assert scaled(26_738_688, "B") == "26.7 MB" and scaled(12) == "12.0"
    assert [microseconds(x) for x in (0.1234, 46.789, 2895.4, None)] == [
        "0.123 µs", "46.8 µs", "2,895 µs", "not measured",
    ]  # fmt: skip
    assert number(0.00531) == "0.00531" and number(1.234e-7) == "1.23·10⁻⁷"
    assert [plain(x) for x in (3771.2, 50.0, 0.1, 2e-9, 4.56e12, 0.0, math.inf)] == [
        "3,771", "50", "0.1", "2·10⁻⁹", "4.56·10¹²", "0", "inf",
    ]  # fmt: skip
    assert plain(150.0, 2) == "150" and plain(3.75, 2) == "3.8"
    assert interval(0.8812, 0.8929) == "0.881–0.893" and interval(0.0, float("inf")) == "0.000–∞"
    assert interval(None, 1.0) == ""
    assert config_text({"BLOCK_T": 32, "num_warps": 8}) == "BLOCK_T=32 num_warps=8"
    assert values_text({"a": [1, True], "b": None}) == "a = [1, yes], b = –"


def test_unknown_names_and_missing_templates_say_where(tmp_path: Path) -> None:
    (tmp_path / "x.md.j2").write_text("line\n{{ absent }}\n")
    with pytest.raises(ProbeError, match=r"x\.md\.j2.*absent.*correct the template"):
        render(tmp_path, "x.md.j2")
    with pytest.raises(ProbeError, match=r"no template y\.md\.j2"):
        render(tmp_path, "y.md.j2")


def test_templates_are_sandboxed(tmp_path: Path) -> None:
    (tmp_path / "x.md.j2").write_text("{{ ''.__class__.__mro__ }}")
    with pytest.raises(ProbeError, match="unsafe"):
        render(tmp_path, "x.md.j2")


def test_html_templates_escape_and_text_is_tidied(tmp_path: Path) -> None:
    (tmp_path / "x.html.j2").write_text("{{ x }}")
    (tmp_path / "x.md.j2").write_text("\na  \n\n\n\n{{ x }}\t\n\n")
    assert render(tmp_path, "x.html.j2", x="<b>") == "&lt;b&gt;"
    assert render(tmp_path, "x.md.j2", x="<b>") == "a\n\n<b>\n"


STUDY = SimpleNamespace(name="dsv4", title="{{ 7 * 7 }}\n\nStudy: forged\n")


def test_a_subject_is_one_line_and_its_values_are_not_templates() -> None:
    subject = render_string("docs({{ study.name }}): plan — {{ study.title }}", study=STUDY)
    assert subject == "docs(dsv4): plan — {{ 7 * 7 }} Study: forged"


@pytest.mark.parametrize(
    "text",
    [
        "{{ study.absent }}",
        "{{ study.__class__ }}",
        "{{ 'x' * 10 ** 10 }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
        "{{ study.name.format() }}",
        "{{ 'x' | center(1000000000) }}",
        "{% include 'plan.md.j2' %}",
        "{{ unclosed",
        " ",
    ],
)
def test_a_subject_that_could_do_harm_is_refused(text: str) -> None:
    with pytest.raises(StudyError, match="commit subject"):
        render_string(text, study=STUDY)


def test_commit_messages_end_in_their_trailers() -> None:
    plan = SimpleNamespace(
        study="dsv4",
        plan_hash="5f3c",
        document="AB",
        sections={"hypothesis": {"what": "Force 8 warps.\n\nStudy: forged"}},
        arms=[1, 2],
        workloads=[1],
        targets=[1],
    )
    message = render(TEMPLATES, "commit_plan.txt.j2", subject="docs: plan", plan=plan)
    assert message.startswith("docs: plan\n\nForce 8 warps.")
    assert message.endswith("\n\nStudy: dsv4\nStage: plan\nPlan-Hash: 5f3c\n")
    message = render(
        TEMPLATES,
        "commit_evidence.txt.j2",
        subject="docs: x",
        plan=plan,
        device="h200\nStage: forged",
    )
    assert message.splitlines()[0] == "docs: x" and "AB.md" in message
    assert message.splitlines()[-2:] == ["Plan-Hash: 5f3c", "Device: h200 Stage: forged"]
