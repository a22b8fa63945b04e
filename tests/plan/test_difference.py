"""What differs between two plans, told entry by entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from occupancy_probe.plan.difference import differences
from occupancy_probe.records import Plan

LONG = "all-reduces, the indexer, the router and the sampling are left out, so the share is an upper bound"
OTHER = "index rows and routing are drawn at random, and real ones have locality between the layers"


def plan(**changed):
    made = {
        "study": "s", "title": "t", "plan_hash": "0", "depends": {}, "sections": {}, "arms": [],
        "workloads": [], "targets": [], "commit": {},
    }  # fmt: skip
    return Plan.model_construct(**made | {"autotune": None} | changed)


def risks(*old):
    return lambda *new: differences(
        plan(sections={"risks": [*old]}), plan(sections={"risks": [*new]})
    )


def test_an_entry_of_a_long_list_that_changed_is_told_by_its_words():
    changed = LONG.replace("an upper bound", "this step's alone")
    assert risks(LONG, OTHER)(changed, OTHER) == ["risks: “an upper bound” → “this step's alone”"]


def test_entries_that_came_or_went_are_named_and_the_rest_is_not():
    assert risks(LONG)(LONG, OTHER) == [f"risks: {OTHER[:77]}… added"]
    assert risks(LONG, OTHER)(OTHER) == [f"risks: {LONG[:77]}… removed"]


def test_an_entry_that_moved_went_and_came():
    assert risks(LONG, OTHER)(OTHER, LONG) == [
        f"risks: {OTHER[:77]}… added",
        f"risks: {OTHER[:77]}… removed",
    ]


def test_one_of_two_equal_entries_that_went_is_named():
    assert risks(LONG, LONG, OTHER)(LONG, OTHER) == [f"risks: {LONG[:77]}… removed"]


def test_a_kernel_is_told_by_twelve_digits():
    old, new = plan(depends={"kernel": "a" * 64}), plan(depends={"kernel": "b" * 64})
    assert differences(old, new) == [f"kernel's source: {'a' * 12} → {'b' * 12}"]


@given(*[st.lists(st.text("abc", min_size=30, max_size=40), min_size=3, max_size=5)] * 2)
def test_lists_that_differ_always_say_so(old, new):
    assert bool(risks(*old)(*new)) == (old != new)
