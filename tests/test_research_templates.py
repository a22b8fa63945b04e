"""What research found, in the report and in the document: said once, escaped, absent where not known."""

from __future__ import annotations

from pathlib import Path

from markdown_it import MarkdownIt

from occupancy_probe.matrix import target_findings
from occupancy_probe.records import (
    Code,
    Coverage,
    DriverCheck,
    DriverKernel,
    Feasibility,
    Neighbour,
    Reason,
)
from occupancy_probe.templating import render

TEMPLATES = Path(__file__).parents[1] / "templates"
COVERED = Coverage(
    workload="c8", device="RTX PRO 6000 Blackwell", ctas=8, waves=0.0426, fill=0.0426,
    resident_ctas_per_sm=1, grid_limited=False, in_flight_bytes=19_200, covered_latency_ns=2014.3,
)  # fmt: skip


def record(arm, config, verdict="fits", **more):
    return Feasibility(study="s", arm=arm, config=config, target="sm_120", verdict=verdict, **more)


RECORDS = {
    "baseline": record(
        "baseline", {"num_stages": 3}, ctas_per_sm=1, coverage=[COVERED],
        code=Code(instructions=900, in_flight_bytes=19_200),
    ),
    "s4": record(
        "s4", {"num_stages": 4}, "rejected",
        reasons=[Reason(limit="shared memory", text="shared memory 147,456 B > 101,376 B")],
        changed=["num_stages 3 → 4: +12 LDGSTS", "670 → 702 instructions in the main loop"],
        warnings=["k<b> | spills: 720 B of stores and 16 B of loads per thread"],
        neighbours=[
            Neighbour(
                change="num_stages 4 → 3", config={"num_stages": 3}, verdict="fits",
                shared_bytes=98_304, registers=218, ctas_per_sm=1,
            )
        ],
    ),
}  # fmt: skip
FINDINGS = target_findings(RECORDS, ["baseline", "null", "s4"])


def test_the_report_says_what_changed_what_fits_and_what_the_grid_allows():
    html = render(TEMPLATES, "report_research.html.j2", t={"name": "sm_120", "findings": FINDINGS})
    assert "num_stages 3 → 4: +12 LDGSTS; 670 → 702 instructions in the main loop" in html
    assert "fits with num_stages 4 → 3 (98,304 B, 218 registers, 1 CTAs/SM, arm baseline)" in html
    assert "At c8 no SM has more than one CTA, whatever the arm" in html
    assert "occupancy arms cannot matter on this grid" in html
    assert "0.04 waves, 4 % full; hides 2,014 ns" in html
    assert "k&lt;b&gt; | spills: 720 B" in html


def test_the_document_says_the_same_in_tables_that_hold():
    text = render(TEMPLATES, "plan_research.md.j2", found=FINDINGS)
    assert "| s4 | num\\_stages 3 → 4" in text or "| s4 | num_stages 3 → 4" in text
    assert "occupancy arms cannot matter on this grid" in text
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert html.count("<table>") == 2
    assert "<b>" not in html


def test_nothing_is_said_of_what_is_not_known():
    empty = target_findings({}, ["baseline"])
    html = render(TEMPLATES, "report_research.html.j2", t={"name": "sm_120", "findings": empty})
    assert html.strip() == ""
    assert render(TEMPLATES, "plan_research.md.j2", found=empty).strip() == ""
    assert render(TEMPLATES, "report_driver.html.j2", drivers={}).strip() == ""


def test_a_driver_that_differs_is_shown_with_both_figures():
    same = {"registers": 188, "shared_bytes": 64_768, "ctas_per_sm": 2}
    kernels = [
        DriverKernel(
            arm=arm, kernel="split", workloads=["c8"], recorded=same,
            driver={**same, "ctas_per_sm": ctas}, differs=[] if ctas == 2 else ["ctas_per_sm"],
        )
        for arm, ctas in (("baseline", 2), ("s3", 1))
    ]  # fmt: skip
    check = DriverCheck(
        study="s", device="nvidia-h200", device_name="NVIDIA H200", target="sm_90",
        kernels=kernels, missing=["s5: split: OSError: gone"], versions={"triton": "3.6.0"},
    )  # fmt: skip
    html = render(TEMPLATES, "report_driver.html.j2", drivers={"nvidia-h200": check})
    assert "1 of 2 kernels equal in all figures, Triton 3.6.0" in html
    assert "<code>s3</code>" in html and "<code>baseline</code>" not in html
    assert "<td>2</td><td>1</td>" in html
    assert "not compared: s5: split: OSError: gone" in html
