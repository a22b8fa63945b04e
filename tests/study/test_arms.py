"""Config rules become arms: one per distinct config, with every reason."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_probe.exc import StudyError
from occupancy_probe.study.arms import make_arms
from occupancy_probe.study.schema import ConfigRule

BASELINE = {"BLOCK": 64, "num_warps": 4, "num_stages": 2}


def arms(*rules, root=Path()):
    made = make_arms([ConfigRule(**{"why": "w"} | r) for r in rules], BASELINE, "today", root)
    return {a.name: a for a in made}


def fault(*rules, root=Path()):
    with pytest.raises(StudyError) as raised:
        arms(*rules, root=root)
    return str(raised.value)


def test_vary_changes_one_factor_at_a_time():
    made = arms({"vary": {"num_warps": [1, 8], "num_stages": [3]}})
    assert list(made) == ["baseline", "null", "num_warps-1", "num_warps-8", "num_stages-3"]
    assert made["num_warps-8"].config == {**BASELINE, "num_warps": 8}
    assert made["num_stages-3"].config == {**BASELINE, "num_stages": 3}


def test_grid_is_the_product_and_keeps_the_rest():
    made = arms({"grid": {"BLOCK": [32, 128], "num_warps": [8]}})
    assert [a.config for a in made.values()][2:] == [
        {**BASELINE, "BLOCK": 32, "num_warps": 8},
        {**BASELINE, "BLOCK": 128, "num_warps": 8},
    ]


def test_list_gives_differences_from_the_baseline():
    made = arms({"list": [{"num_warps": 8, "num_stages": 3}], "name": "both"})
    assert made["both"].config == {"BLOCK": 64, "num_warps": 8, "num_stages": 3}


def test_use_calls_the_function_beside_the_study(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def configs(baseline):\n    return [{'BLOCK': baseline['BLOCK'] * 2}]\n"
    )
    made = arms({"use": "mine:configs"}, root=tmp_path)
    assert made["BLOCK-128"].config == {**BASELINE, "BLOCK": 128}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_module_anywhere\n", "ModuleNotFoundError"),
        ("def configs(:\n", "SyntaxError"),
        ("x = 1\n", "AttributeError"),
        ("def configs(baseline):\n    return 1 / 0\n", "ZeroDivisionError"),
        ("def configs(baseline):\n    return 7\n", "TypeError"),
        ("def configs(baseline):\n    return [7]\n", "TypeError"),
    ],
)
def test_use_that_fails_names_its_file(tmp_path, source, words):
    (tmp_path / "mine.py").write_text(source)
    said = fault({"use": "mine:configs"}, root=tmp_path)
    assert said.startswith(f"arms[0].use: {tmp_path / 'mine.py'}: {words}")


@pytest.mark.parametrize("reference", ["mine", "none:configs", "mine:"])
def test_use_that_names_no_function(tmp_path, reference):
    (tmp_path / "mine.py").write_text("def configs(baseline):\n    return []\n")
    said = fault({"use": reference}, root=tmp_path)
    assert "names no function; expected" in said or f"no file {tmp_path}/none.py" in said


def test_where_keeps_configs():
    rule = {"grid": {"BLOCK": [16, 128], "num_warps": [1, 8]}, "where": "BLOCK >= 16 * num_warps"}
    assert list(arms(rule))[2:] == [
        "BLOCK-16_num_warps-1",
        "BLOCK-128_num_warps-1",
        "BLOCK-128_num_warps-8",
    ]


def test_where_with_an_unknown_name_names_its_rule():
    said = fault({"vary": {"num_warps": [8]}}, {"vary": {"num_stages": [3]}, "where": "BLOKC > 1"})
    assert said.startswith("arms[1].where: ")
    assert "known names: BLOCK, num_stages, num_warps" in said


def test_why_is_kept():
    assert arms({"vary": {"num_warps": [8]}, "why": "latency"})["num_warps-8"].why == ("latency",)


def test_overlap_gives_one_arm_with_both_reasons():
    made = arms(
        {"vary": {"num_warps": [8]}, "why": "hypothesis"},
        {"grid": {"num_warps": [4, 8], "num_stages": [2]}, "why": "neighbourhood"},
    )
    assert list(made) == ["baseline", "null", "num_warps-8"]
    assert made["num_warps-8"].why == ("hypothesis", "neighbourhood")
    assert made["baseline"].why == ("today", "neighbourhood")


def test_a_chosen_name_wins_over_a_made_one():
    made = arms({"grid": {"num_warps": [8]}}, {"list": [{"num_warps": 8}], "name": "w8"})
    assert list(made) == ["baseline", "null", "w8"]


def test_two_chosen_names_for_one_config():
    said = fault(
        {"list": [{"num_warps": 8}], "name": "one"}, {"list": [{"num_warps": 8}], "name": "two"}
    )
    assert said == "arms[1].name: 'two' and 'one' are the same config; keep one name"


@pytest.mark.parametrize("name", ["w", "null", "baseline"])
def test_one_name_for_two_configs(name):
    said = fault({"vary": {"num_warps": [1, 8]}, "name": name})
    assert said.startswith(f"arms: the name {name!r} stands for two configs")


def test_name_template():
    made = arms({"vary": {"num_warps": [8]}, "name": "b{BLOCK}-w{num_warps}"})
    assert list(made)[2:] == ["b64-w8"]
    said = fault({"vary": {"num_warps": [8]}, "name": "{warps}"})
    assert said.startswith("arms[0].name: {warps} is not one of BLOCK, num_warps, num_stages")


def test_key_that_is_neither_in_baseline_nor_a_launch_option():
    assert "arms[0]: BLOKC is neither in baseline nor a launch option" in fault(
        {"vary": {"BLOKC": [1]}}
    )
    assert "maxnreg-128" in arms({"vary": {"maxnreg": [128]}})


def test_null_arm_is_a_twin_of_the_baseline():
    made = arms({"vary": {"num_warps": [8]}})
    assert made["null"].config == made["baseline"].config
    assert made["null"].twin
    assert not made["baseline"].twin


@pytest.mark.parametrize(
    "rule",
    [
        {"list": []},
        {"vary": {"num_warps": []}},
        {"vary": {"num_warps": [4]}},
    ],
)
def test_no_arm_beside_the_baseline(rule):
    assert "no rule leaves an arm beside the baseline" in fault(rule)


def test_a_rule_whose_where_keeps_nothing_is_named():
    rule = {"vary": {"num_warps": [8]}, "where": "num_warps > 8"}
    assert "arms[0].where: 'num_warps > 8' keeps none of 1 configs" in fault(rule)


values = st.lists(st.integers(0, 40), min_size=1, max_size=4, unique=True)


@given(st.dictionaries(st.sampled_from(["BLOCK", "num_warps", "num_stages"]), values, min_size=1))
def test_a_grid_has_the_size_of_its_product_and_distinct_configs(grid):
    size = math.prod(len(v) for v in grid.values())
    holds_baseline = all(BASELINE[k] in v for k, v in grid.items())
    if size == 1 and holds_baseline:
        return
    made = arms({"grid": grid})
    assert len(made) == 2 + size - holds_baseline
    configs = [tuple(sorted(a.config.items())) for a in made.values() if not a.twin]
    assert len(set(configs)) == len(configs)
    assert all(a.config.keys() == BASELINE.keys() for a in made.values())


@given(st.lists(st.dictionaries(st.sampled_from(["BLOCK", "num_warps"]), values), min_size=1))
def test_overlapping_rules_never_repeat_a_config(rules):
    grids = [{"vary": r} for r in rules] + [{"list": [{"num_stages": 99}]}]
    made = [a for a in arms(*grids).values() if not a.twin]
    assert len({repr(sorted(a.config.items())) for a in made}) == len(made)
    wanted = {
        repr(sorted({**BASELINE, k: v}.items())) for r in rules for k, vs in r.items() for v in vs
    }
    assert wanted <= {repr(sorted(a.config.items())) for a in made}
