"""Where the neighbours of a rejected arm are looked for, and how far."""

from __future__ import annotations

import pytest

from occupancy_probe.records import Feasibility, Reason
from occupancy_probe.research.neighbours import directions, every_config, find_neighbours

TILE = {"BLOCK_M": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 4}


def record(config, *limits, arm="a"):
    reasons = [Reason(limit=limit, text=f"{limit} exceeded") for limit in limits]
    verdict = "rejected" if reasons else "fits"
    return Feasibility(
        study="s", arm=arm, config=config, target="sm_120", verdict=verdict, reasons=reasons
    )


def tried(config, *limits):
    return [
        [{k: v for k, v in c.items() if config.get(k) != v} for c in direction]
        for direction in directions(record(config, *limits))
    ]


def test_too_large_is_made_smaller_one_factor_at_a_time():
    stages, block_m, block_k = tried(TILE, "shared memory")
    assert stages == [{"num_stages": n} for n in (3, 2, 1)]
    assert block_m == [{"BLOCK_M": n} for n in (64, 32, 16, 8)]
    assert block_k == [{"BLOCK_K": n} for n in (32, 16, 8, 4)]


@pytest.mark.parametrize(
    ("config", "limit", "expected"),
    [
        ({"num_warps": 64}, "threads", [[{"num_warps": n} for n in (32, 16, 8, 4)]]),
        ({"num_warps": 6}, "num_warps", [[{"num_warps": 4}], [{"num_warps": 8}]]),
        ({"BLOCK_T": 4}, "tl.dot minimum", [[{"BLOCK_T": n} for n in (8, 16, 32, 64)]]),
        ({"BLOCK_T": 4, "num_warps": 4}, "compiler", []),
        ({"BLOCK_T": 4, "num_warps": 4}, "compile time", []),
        ({"EVEN": True, "COUNT": 3}, "shared memory", []),
    ],
)
def test_each_limit_has_its_own_direction(config, limit, expected):
    assert tried(config, limit) == expected


def test_the_search_stops_where_something_fits_and_asks_for_nothing_twice():
    asked = []

    def judge(configs):
        asked.extend(configs.values())
        return {
            n: record(c, *(["shared memory"] if c["BLOCK_M"] * c["num_stages"] > 128 else []))
            for n, c in configs.items()
        }

    one = {"BLOCK_M": 128, "num_stages": 3}
    two = {"BLOCK_M": 128, "num_stages": 2}
    arms = {
        "a": record(one, "shared memory"),
        "b": record(two, "shared memory", arm="b"),
        "c": record({"BLOCK_M": 64, "num_stages": 2}, arm="c"),
    }
    rejected = {n: r for n, r in arms.items() if r.verdict == "rejected"}
    found = find_neighbours(rejected, arms, judge)
    assert [(n.change, n.verdict) for n in found["a"]] == [
        ("num_stages 3 → 2", "rejected"),
        ("BLOCK_M 128 → 64", "rejected"),
        ("num_stages 3 → 1", "fits"),
        ("BLOCK_M 128 → 32", "fits"),
    ]
    assert [(n.change, n.verdict) for n in found["b"]] == [
        ("num_stages 2 → 1", "fits"),
        ("BLOCK_M 128 → 64", "fits"),
    ]
    assert len(asked) == len({repr(c) for c in asked}) == 3
    known = every_config(rejected)
    assert all(c in known.values() for c in asked)


def test_a_direction_ends_where_another_limit_is_met():
    def judge(configs):
        return {n: record(c, "tl.dot minimum") for n, c in configs.items()}

    arms = {"a": record({"BLOCK_K": 64}, "tensor memory")}
    found = find_neighbours(arms, arms, judge)
    assert [n.change for n in found["a"]] == ["BLOCK_K 64 → 32"]
    assert found["a"][0].reason == "tl.dot minimum exceeded"
