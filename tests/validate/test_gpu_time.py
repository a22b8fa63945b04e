"""GPU time and dropped blocks, summed over a device's records."""

from __future__ import annotations

import pytest

from occupancy_probe.records import Clocks, Measurement, Replicate
from occupancy_probe.validate.collect import DeviceRecords
from occupancy_probe.validate.gpu_time import gpu_use


def measurement(workload, dropped, throttle=()):
    """Two replicates of six blocks; ``dropped`` of the second one's are gone."""
    clocks = Clocks(
        sm_mhz_low=1700, sm_mhz_median=1900, sm_mhz_high=1980, temperature_c=60, power_w=690,
        throttle=list(throttle),
    )  # fmt: skip
    replicates = [
        Replicate(process=0, allocation=0, arms={"baseline": [1.0] * 6, "w8": [1.0] * 6}),
        Replicate(
            process=1,
            allocation=0,
            arms={"baseline": [1.0] * (6 - dropped), "w8": []},
            clocks=clocks,
            dropped=dropped,
        ),
    ]
    return Measurement(
        study="s", plan_commit=None, device="h200", device_name="NVIDIA H200", device_uuid="u",
        workload=workload, regime="cold", input_sets=1, replicates=replicates, started_at="",
        gpu_seconds=2.0, held_seconds=3.0, busy_seconds=1.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def use():
    reasons = ["applications_clocks_setting", "sw_power_cap"]
    measured = [measurement("c48", 0), measurement("c64", 1), measurement("c96", 5, reasons)]
    again = measurement("c96", 4, reasons)
    records = DeviceRecords(
        "h200", "NVIDIA H200", "measured here", {}, {}, {m.workload: m for m in measured},
        {"c96": again},
    )  # fmt: skip
    return gpu_use(records)


def test_dropped_blocks_are_counted_per_workload_with_what_was_wrong(use):
    assert [d.words() for d in use.drops] == [
        "c64 1 of 12 (SM clock moved)",
        "c96 5 of 12 (sw_power_cap)",  # a set application clock holds steady: no reason
        "c96 re-measured 4 of 12 (sw_power_cap)",
    ]


def test_a_process_that_kept_no_block_is_named():
    found = {"c96": measurement("c96", 6, ["sw_power_cap"])}
    records = DeviceRecords("h200", "NVIDIA H200", "measured here", {}, {}, found)
    [said] = [d.words() for d in gpu_use(records).drops]
    assert said == "c96 6 of 12 (sw_power_cap; 1 of its processes kept none)"


def test_the_totals_are_the_sums_of_the_parts(use):
    assert (use.blocks, use.dropped) == (48, 10)
    assert (use.held_seconds, use.busy_seconds) == (12.0, 4.0)
    assert use.workloads == {"c48": 2.0, "c64": 2.0, "c96": 4.0}


def test_nothing_measured_nothing_used():
    assert gpu_use(DeviceRecords("d", "D", "measured here", {}, {}, {})) is None
