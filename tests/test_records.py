"""Records: written as a whole or not at all, read back as they were, refused with a reason."""

from __future__ import annotations

import json
import math
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_probe.exc import RecordError
from occupancy_probe.records import (
    Correctness,
    Feasibility,
    Measurement,
    OutputError,
    Reason,
    Record,
    Replicate,
    Specialization,
    read_if_fresh,
    read_record,
    to_json,
    write_record,
    write_text,
)
from occupancy_probe.records import base as records


def feasibility(**changes):
    fields = {
        "study": "s",
        "arm": "w8",
        "config": {"num_warps": 8},
        "target": "sm_90",
        "verdict": "fits",
        "depends": {"launch": "abc"},
    }
    return Feasibility(**fields | changes)


def measurement(samples):
    return Measurement(
        study="s",
        plan_commit=None,
        device="h200",
        device_name="NVIDIA H200",
        device_uuid="u",
        workload="c1",
        regime="cold",
        input_sets=4,
        replicates=[Replicate(process=0, allocation=0, arms=samples)],
        started_at="2026-01-02T00:00:00Z",
        gpu_seconds=1.0,
    )


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_what_a_killed_run_left_of_a_file_goes_when_it_is_written_again(tmp_path):
    left = tmp_path / ".record.json.nc9js97d"
    left.write_text("{")
    os.utime(left, (0, 0))
    fresh = tmp_path / ".record.json.written"
    fresh.write_text("{")
    other = tmp_path / ".record.json2.abc"
    other.write_text("{")
    write_text(tmp_path / "record.json", "{}")
    assert not left.exists() and other.exists() and fresh.exists()


def test_a_record_says_what_it_is(tmp_path):
    path = tmp_path / "deep" / "folder" / "w8.json"
    write_record(path, feasibility())
    content = json.loads(path.read_text())
    assert content["schema"] == "occupancy-probe/1"
    assert "schema_" not in content
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_the_contract_of_a_feasibility_record():
    content = json.loads(to_json(feasibility()))
    assert content.keys() >= {
        *("schema", "study", "arm", "config", "target", "verdict", "reasons", "shared_bytes"),
        *("tensor_memory_columns", "threads", "registers", "stack_bytes", "spill_store_bytes"),
        *("spill_load_bytes", "ctas_per_sm", "warps_per_sm", "occupancy", "limiter"),
        *("same_code_as", "code_sha256", "variants", "compile_seconds", "versions"),
    }


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "w8.json"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["w8.json"]


def test_a_rename_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "w8.json"
    write_text(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records.Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["w8.json"]


def test_nothing_to_write_over_is_made_of_a_record_that_is_no_json(tmp_path):
    with pytest.raises(TypeError):
        write_record(tmp_path / "w8.json", feasibility(config={"x": object()}))
    assert names(tmp_path) == []


def test_H5_truncated_at_any_length_names_the_file(tmp_path):
    path = tmp_path / "w8.json"
    whole = to_json(feasibility(reasons=[Reason(limit="threads", text="2,048 > 1,024")]))
    for length in range(0, len(whole.rstrip()), 7):
        path.write_text(whole[:length])
        with pytest.raises(RecordError, match=r"w8\.json: ") as raised:
            read_record(path, Feasibility)
        assert "\n" not in str(raised.value)
        assert read_if_fresh(path, Feasibility, {"launch": "abc"}) is None


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b"null", b"[]", b"7"])
def test_H5_what_is_no_record(tmp_path, content):
    path = tmp_path / "w8.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"w8\.json: "):
        read_record(path, Feasibility)


def test_another_schema(tmp_path):
    path = tmp_path / "w8.json"
    path.write_text(to_json(feasibility()).replace("occupancy-probe/1", "occupancy-probe/2"))
    with pytest.raises(RecordError, match=r"schema 'occupancy-probe/2', this version reads"):
        read_record(path, Feasibility)


def test_another_kind_of_record(tmp_path):
    path = tmp_path / "w8.json"
    write_record(path, feasibility())
    with pytest.raises(RecordError, match=r"w8\.json: .*delete it"):
        read_record(path, Correctness)


def test_no_such_record(tmp_path):
    with pytest.raises(RecordError, match="No such file"):
        read_record(tmp_path / "none.json", Feasibility)
    assert read_if_fresh(tmp_path / "none.json", Feasibility, {}) is None


def test_fresh_is_a_comparison_of_hashes_not_of_time(tmp_path):
    path = tmp_path / "w8.json"
    write_record(path, feasibility())
    os.utime(path, (1, 1))
    assert read_if_fresh(path, Feasibility, {"launch": "abc"}) == feasibility()
    assert read_if_fresh(path, Feasibility, {"launch": "abd"}) is None
    assert read_if_fresh(path, Feasibility, {"launch": "abc", "arm": "x"}) is None


floats = st.floats(allow_nan=True, allow_infinity=True)


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


@given(st.dictionaries(st.text(max_size=5), st.lists(floats, max_size=5), max_size=4))
def test_samples_come_back_as_they_were(tmp_path_factory, samples):
    path = tmp_path_factory.getbasetemp() / "samples.json"
    write_record(path, measurement(samples))
    back = read_record(path, Measurement).replicates[0].arms
    assert back.keys() == samples.keys()
    for arm, values in samples.items():
        assert len(back[arm]) == len(values)
        assert all(same(x, y) for x, y in zip(back[arm], values, strict=True))
    assert to_json(read_record(path, Measurement)) == path.read_text()


@given(floats, floats)
def test_errors_may_be_nan_or_infinite(a, b):
    error = OutputError(
        max_absolute=a, gate_used=b, one_minus_cosine=a, relative_norm=b, not_written=0
    )
    back = OutputError.model_validate(json.loads(records._render(error.model_dump(), 0)))
    assert same(back.max_absolute, a)
    assert same(back.gate_used, b)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@given(json_values)
def test_the_readable_form_is_the_same_json(value):
    assert json.loads(records._render(value, 0)) == value


def test_raw_samples_stand_on_one_line():
    text = to_json(measurement({"baseline": [1.25] * 200}))
    assert max(line.count("1.25") for line in text.splitlines()) == 200


def test_specializations_are_told_apart_by_what_the_compiler_sees():
    one = Specialization(
        file="kernel.py",
        kernel="gemm",
        signature={"a": "*bf16", "n": "i32", "B": "constexpr"},
        constants=[([2], 64)],
        attributes=[([0], [["tt.divisibility", 16]])],
        options={"num_warps": 4},
    )
    other = one.model_copy(update={"attributes": []})
    assert one.key != other.key
    assert one.words() == "a: *bf16/16, n: i32, B=64"
    assert other.words() == "a: *bf16, n: i32, B=64"


def test_a_key_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="Extra inputs"):
        Record(study="s", colour="red")
