"""What the report, the document and the summary say of a target's records."""

from __future__ import annotations

from occupancy_probe.matrix import coverage_table, neighbour_words, target_findings
from occupancy_probe.records import Code, Coverage, Feasibility, Neighbour, Reason


def coverage(workload, ctas, resident, limited, waves=1.02):
    return Coverage(
        workload=workload, device="RTX PRO 6000 Blackwell", ctas=ctas, waves=waves, fill=0.51,
        resident_ctas_per_sm=resident, grid_limited=limited, in_flight_bytes=19_200,
        covered_latency_ns=2014.3,
    )  # fmt: skip


def record(arm, verdict="fits", **more):
    values = {"study": "s", "arm": arm, "config": {"BLOCK_T": 32}, "target": "sm_120"}
    return Feasibility(**values, verdict=verdict, **more)


def test_F10_the_grid_is_named_where_no_arm_can_use_more_room():
    arms = {
        "one": record("one", ctas_per_sm=1, coverage=[
            coverage("c8", 8, 1, False), coverage("c48", 192, 1, False)]),
        "two": record("two", ctas_per_sm=2, coverage=[
            coverage("c8", 8, 1, True), coverage("c48", 192, 2, False)]),
    }  # fmt: skip
    table = coverage_table(arms)
    assert table["device"] == "RTX PRO 6000 Blackwell"
    assert table["columns"] == [("c8", 8), ("c48", 192)]
    assert table["idle"] == ["c8"]
    assert [row["arms"] for row in table["rows"]] == [["one"], ["two"]]
    assert table["rows"][0]["cells"][1] == "1.02 waves, 51 % full; hides 2,014 ns"


def test_arms_that_cover_alike_share_a_row():
    same = [coverage("c8", 8, 1, True)]
    code = Code(instructions=9, in_flight_bytes=19_200)
    arms = {n: record(n, ctas_per_sm=2, coverage=same, code=code) for n in ("a", "b")}
    [row] = coverage_table(arms)["rows"]
    assert (row["arms"], row["in_flight"]) == (["a", "b"], "19.2 kB")


def test_a_target_without_a_device_or_without_fitting_arms_has_no_table():
    assert coverage_table({"a": record("a")}) is None
    assert coverage_table({}) is None


def test_F9_neighbours_in_words():
    fits = Neighbour(
        change="num_stages 4 → 3", config={"BLOCK_T": 32}, verdict="fits",
        shared_bytes=98_304, registers=218, ctas_per_sm=1,
    )  # fmt: skip
    not_ = Neighbour(change="BLOCK_T 64 → 32", config={}, verdict="rejected")
    assert neighbour_words([not_, fits], {"BLOCK_T=32": "baseline"}) == (
        "fits with num_stages 4 → 3 (98,304 B, 218 registers, 1 CTAs/SM, arm baseline)"
    )
    assert neighbour_words([not_], {}) == "none of 1 tried fits: BLOCK_T 64 → 32"


def test_F7_one_reason_for_all_arms_is_the_targets():
    reason = Reason(limit="dtype", text="type fp8e4nv not supported in this architecture")
    arms = {n: record(n, "unsupported", reasons=[reason]) for n in ("a", "b")}
    assert target_findings(arms, ["a", "b"])["unsupported"] == reason.text
    arms["c"] = record("c", versions={"triton": "3.7.1", "ptxas": "12.8"})
    assert target_findings(arms, ["a", "b", "c"])["unsupported"] is None


def test_every_set_of_compilers_is_named_once():
    older, newer = {"triton": "3.6.0", "ptxas": "12.8"}, {"triton": "3.7.1", "ptxas": "12.8"}
    arms = {a: record(a, versions=v) for a, v in (("a", older), ("b", newer), ("c", newer))}
    said = target_findings(arms, [*arms])["compilers"]
    assert said == ["triton 3.6.0, ptxas 12.8", "triton 3.7.1, ptxas 12.8"]
