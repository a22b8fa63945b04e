"""GPU time and dropped blocks, summed over a device's records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from occupancy_probe.records import Clocks, Dose, Measurement, Replicate
from occupancy_probe.templating import render
from occupancy_probe.validate.collect import DeviceRecords
from occupancy_probe.validate.gpu_time import gpu_use

TEMPLATES = Path(__file__).parents[2] / "templates"


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
        gpu_seconds=2.0, held_seconds=3.0, busy_seconds=1.0, arm_seconds={"baseline": 0.5, "w8": 0.4},
    )  # fmt: skip


def dose(arm, dropped=0, started_at="one run"):
    """One of the records that a run of doses leaves: 6 blocks twice, the baseline in each record."""
    lost = measurement("c96", dropped, ["sw_power_cap"]).replicates
    names = {"baseline": "baseline", "w8": f"{arm}@1"}
    replicates = [
        r.model_copy(update={"arms": {names[n]: s for n, s in r.arms.items()}}) for r in lost
    ]
    return Dose(
        study="s", plan_commit=None, device="h200", device_name="NVIDIA H200", device_uuid="v",
        arm=arm, config={}, num_warps=4, points={}, replicates={"c96": replicates},
        started_at=started_at, gpu_seconds=1.5, held_seconds=1.75, busy_seconds=1.25,
    )  # fmt: skip


def with_doses(**doses):
    found = {"c96": measurement("c96", 0)}
    return gpu_use(
        DeviceRecords("h200", "NVIDIA H200", "measured here", {}, {}, found, found, doses)
    )


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
    assert use.workloads == {"c48": 2.0, "c64": 2.0, "c96": 2.0}
    assert (use.again_seconds, use.dose_seconds) == (2.0, 0.0)


def test_blocks_of_doses_are_counted_once_for_all_arms_of_a_run(use):
    one_run = with_doses(baseline=dose("baseline", 4), w8=dose("w8", 4))
    assert (one_run.blocks, one_run.dropped) == (12 + 12 + 12, 4)
    assert [d.words() for d in one_run.drops] == ["c96 doses 4 of 12 (sw_power_cap)"]
    two_runs = with_doses(baseline=dose("baseline", 4), w8=dose("w8", 4, "another run"))
    assert (two_runs.blocks, two_runs.dropped) == (12 + 12 + 24, 8)
    assert one_run.uuids == ["u", "v"]


def test_lines_and_remainder_add_up_to_what_was_held_and_what_was_busy():
    use = with_doses(baseline=dose("baseline"), w8=dose("w8"))
    parts = [*use.workloads.values(), use.again_seconds, use.dose_seconds, use.handover_seconds]
    assert parts == [2.0, 2.0, 3.0, 2.5]
    assert sum(parts) == use.held_seconds == 9.5
    parts = [*use.arms.values(), use.dose_busy_seconds, use.warm_up_seconds]
    assert parts == pytest.approx([1.0, 0.8, 2.5, 0.2])
    assert sum(parts) == pytest.approx(use.busy_seconds)


def test_a_remainder_is_not_known_where_a_record_does_not_know_its_part():
    old = measurement("c96", 0).model_copy(update={"held_seconds": 0.0, "arm_seconds": {}})
    use = gpu_use(DeviceRecords("h200", "H", "measured here", {}, {}, {"c96": old}))
    assert (use.handover_seconds, use.warm_up_seconds) == (None, None)


def test_doses_alone_took_the_gpu_too():
    found = {"w8": dose("w8")}
    use = gpu_use(DeviceRecords("h200", "H", "measured here", {}, {}, {}, {}, found))
    assert (use.held_seconds, use.blocks) == (1.75, 12)


def test_document_and_report_show_the_lines_that_add_up():
    use = with_doses(baseline=dose("baseline", 4), w8=dose("w8", 4))
    device = {"device_name": "NVIDIA H200", "gpu": use, "calibration": "claims 0 of 100 A/A"}
    text = render(TEMPLATES, "plan_gpu.md.j2", devices=[device])
    assert text.splitlines()[-3:] == [
        "- GPU held 9.5 s, busy 4.5 s (47 %). Held for measurement 2.0 s, measuring the picked arm"
        " again 2.0 s, occupancy doses 3.0 s, clock warm-up and hand-over between processes 2.5 s.",
        "- 4 of 36 blocks dropped for a throttle reason or a moving clock: c96 doses 4 of 12"
        " (sw_power_cap).",
        "- claims 0 of 100 A/A",
    ]
    assert render(TEMPLATES, "plan_gpu.md.j2", devices=[]).strip() == ""
    page = render(
        TEMPLATES, "report_gpu.html.j2", devices=[{"verdict": {**device, "confirmation": None}}]
    )
    shown = re.findall(r"<tr><td>(.*?)</td><td>([\d.]+) s</td></tr>", page)
    held = [float(s) for _, s in shown[:5]]
    assert [what for what, _ in shown[:5]] == [
        "measurement of c96",
        "measuring the picked arm again",
        "occupancy doses",
        "the rest: clock warm-up, and the hand-over from process to process",
        "held",
    ]
    assert sum(held[:4]) == held[4] == 9.5
    busy = [float(s) for _, s in shown[5:]]
    assert sum(busy[:-1]) == pytest.approx(busy[-1]) and busy[-1] == 4.5


def test_nothing_measured_nothing_used():
    assert gpu_use(DeviceRecords("d", "D", "measured here", {}, {}, {})) is None
