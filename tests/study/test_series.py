"""Series of step times: the bundled ones with their source, and files of one's own."""

from __future__ import annotations

import pytest

from occupancy_probe.exc import StudyError
from occupancy_probe.study.series import bundled, read_series


def test_every_bundled_series_names_source_and_licence():
    found = bundled()
    assert len(found) == 6
    for series in found.values():
        assert "github.com/jasl/vllm-ds4-sm120-harness" in series.source
        assert "MIT License" in series.source
        assert len(series.tokens_per_s) == len(series.step_ms)


def test_a_bundled_series_is_found_by_name(tmp_path):
    series = read_series("b200_tp4_nomtp_20260502", tmp_path)
    assert series.concurrency[-1] == 24 and series.step_ms[-1] == 23.24


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.csv", "concurrency,step_ms\n1,10\n8,17\n64,70\n"),
        ("s.json", '{"concurrency": [1, 8, 64], "step_ms": [10, 17, 70], "source": "here"}'),
        ("s.yaml", "concurrency: [1, 8, 64]\nstep_ms: [10, 17, 70]\n"),
    ],
)
def test_a_file_holds_the_same_in_three_forms(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    series = read_series(name, tmp_path)
    assert series.concurrency == (1, 8, 64) and series.step_ms == (10, 17, 70)
    assert series.tokens_per_s is None


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("nothing", "", "no series 'nothing' and no such file; bundled: sm120"),
        ("a.csv", "c,t\n1,2\n", "no 'concurrency'"),
        ("a.csv", "concurrency,step_ms\n1,fast\n2,2\n3,3\n", "could not convert"),
        ("a.csv", "concurrency,step_ms\n1,2\n2,3\n", "at least 3 points"),
        ("a.csv", "concurrency,step_ms\n1,2\n1,3\n2,4\n", "stands twice"),
        ("a.csv", "concurrency,step_ms\n1,2\n2,-3\n3,4\n", "positive"),
        ("a.json", '{"concurrency": [1, 2, 3], "step_ms": [1, 2]}', "differ in length"),
        ("a.yaml", "[1, 2]", "not a mapping"),
    ],
)
def test_what_is_wrong_with_a_series_is_said(tmp_path, name, text, said):
    if text:
        (tmp_path / name).write_text(text)
    with pytest.raises(StudyError, match=said):
        read_series(name, tmp_path)
