"""Workload rules become named points."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_probe.exc import StudyError
from occupancy_probe.study.schema import WorkloadRule
from occupancy_probe.study.workloads import make_workloads


def workloads(*rules):
    return make_workloads([WorkloadRule(**r) for r in rules], "workloads")


def test_grid_and_list_in_order():
    made = workloads({"grid": {"c": [1, 8], "k": [512]}}, {"list": [{"c": 5, "case": "holes"}]})
    assert [w.name for w in made] == ["c-1_k-512", "c-8_k-512", "c-5_case-holes"]
    assert made[2].axes == {"c": 5, "case": "holes"}


def test_the_same_point_twice_is_one():
    assert len(workloads({"grid": {"c": [1, 8]}}, {"list": [{"c": 8}]})) == 2


def test_one_name_for_two_points():
    with pytest.raises(StudyError, match=r"workloads\[0\]\.name: 'c8' stands for two workloads"):
        workloads({"grid": {"c": [8], "k": [1, 2]}, "name": "c{c}"})


def test_unknown_axis_in_a_name():
    with pytest.raises(StudyError, match=r"workloads\[0\]\.name: \{b\} is not one of c"):
        workloads({"grid": {"c": [8]}, "name": "b{b}"})


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(-99, 99), max_size=4, unique=True))
)
def test_a_grid_has_the_size_of_its_product(grid):
    if not grid:
        return
    made = workloads({"grid": grid})
    assert len(made) == math.prod(len(v) for v in grid.values())
    assert len({w.name for w in made}) == len(made)
