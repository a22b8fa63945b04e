"""A kernel's share out of profiles: Chrome traces, Nsight's CSV, a plain one."""

from __future__ import annotations

import json

import pytest

from occupancy_probe.exc import StudyError
from occupancy_probe.study.profile import profile_share

NSIGHT = """Processing [report.sqlite] with cuda_gpu_kern_sum.py...

Time (%),Total Time (ns),Instances,Avg (ns),Name
80.0,"8,000",10,800.0,experts_gemm
20.0,2000,41,48.8,_mma_sparse_decode_split_kernel
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nsight.csv", NSIGHT),
        ("plain.csv", "name,time_us\nexperts_gemm,8\n_mma_sparse_decode_split_kernel,2\n"),
        (
            "trace.json",
            json.dumps(
                {
                    "traceEvents": [
                        {"cat": "kernel", "name": "experts_gemm", "dur": 8.0},
                        {"cat": "kernel", "name": "_mma_sparse_decode_split_kernel", "dur": 1.5},
                        {"cat": "kernel", "name": "_mma_sparse_decode_split_kernel", "dur": 0.5},
                        {"cat": "cpu_op", "name": "_mma_sparse_decode_split_kernel", "dur": 99.0},
                        {"ph": "M", "name": "process_name"},
                    ]
                }
            ),
        ),
    ],
)
def test_the_share_is_that_of_all_kernel_time(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert profile_share(tmp_path / name, "sparse_decode") == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            NSIGHT,
            "no kernel matches 'absent'; it has _mma_sparse_decode_split_kernel, experts_gemm",
        ),
        ("a,b\n1,2\n", "no column named"),
        ("name,b\nabsent,2\n", "no column named"),
        ('{"events": []}', "traceEvents"),
        ("{", "Expecting"),
        ("", "no column named"),
        ("[1, 2]", "export kernels with names and times"),
        ("[" * 100_000, "export kernels with names and times"),
        ("name,time_us\nabsent,nan\n", "no times"),
        ("name,time_us\nabsent,0\nother,3\n", "no times"),
        ("name,time_us\nabsent\n", "export kernels with names and times"),
    ],
)
def test_a_profile_that_says_nothing_is_named(tmp_path, text, said):
    (tmp_path / "p").write_text(text)
    with pytest.raises(StudyError, match=said):
        profile_share(tmp_path / "p", "absent")


def test_bytes_that_are_no_text_are_no_profile(tmp_path):
    (tmp_path / "p").write_bytes(b"\xff\xfe\x00junk")
    with pytest.raises(StudyError, match=r"p: .*export kernels with names and times"):
        profile_share(tmp_path / "p", "absent")


def test_a_profile_is_read_again_once_it_changed(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("name,time_us\na,1\nb,3\n")
    assert profile_share(path, "a") == 0.25
    path.write_text("name,time_us\na,10\nb,10\n")
    assert profile_share(path, "a") == 0.5
