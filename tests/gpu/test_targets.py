"""The tables of targets and devices: complete, consistent, and clear about unknown names."""

import re
import subprocess
import sys

import pytest
from pydantic import ValidationError

from occupancy_probe.exc import StudyError
from occupancy_probe.gpu import device, device_of_nvml_name, devices, target, targets


def test_the_table_has_every_target():
    nvidia = "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_103 sm_110 sm_120 sm_121"
    assert list(targets()) == [*nvidia.split(), "gfx942", "gfx950"]


@pytest.mark.parametrize(
    ("name", "shared_kb", "opt_in_kb", "warps", "ctas"),
    [
        ("sm_75", 64, 64, 32, 16),
        ("sm_80", 164, 163, 64, 32),
        ("sm_86", 100, 99, 48, 16),
        ("sm_89", 100, 99, 48, 24),
        ("sm_90", 228, 227, 64, 32),
        ("sm_100", 228, 227, 64, 32),
        ("sm_103", 228, 227, 64, 32),
        ("sm_110", 228, 227, 48, 24),
        ("sm_120", 100, 99, 48, 24),
        ("sm_121", 100, 99, 48, 24),
    ],
)
def test_nvidia_limits(name, shared_kb, opt_in_kb, warps, ctas):
    t = target(name)
    assert t.shared_per_sm_bytes == shared_kb * 1024
    assert t.shared_per_block_bytes == opt_in_kb * 1024
    assert (t.max_warps_per_sm, t.max_ctas_per_sm) == (warps, ctas)
    assert t.reserved_shared_bytes == (0 if name == "sm_75" else 1024)
    assert t.tensor_memory_columns == (512 if name in ("sm_100", "sm_103") else 0)
    assert (t.registers_per_sm, t.max_registers_per_thread) == (65_536, 255)
    assert (t.backend, t.arch, t.warp_size) == ("cuda", int(name.removeprefix("sm_")), 32)


@pytest.mark.parametrize("t", targets().values(), ids=lambda t: t.name)
def test_a_targets_figures_agree_with_each_other(t):
    assert t.shared_per_block_bytes + t.reserved_shared_bytes <= t.shared_per_sm_bytes
    assert t.shared_per_sm_bytes % t.shared_granularity_bytes == 0
    assert t.max_threads_per_cta <= t.max_warps_per_sm * t.warp_size
    assert t.source
    if t.device is not None:
        assert device(t.device).target == t.name


@pytest.mark.parametrize("d", devices().values(), ids=lambda d: d.name)
def test_a_devices_figures_refer_to_a_target(d):
    assert d.target in targets()
    assert d.source
    assert d.match
    assert all(re.compile(pattern) for pattern in d.match)


def test_a_target_whose_devices_are_not_listed_has_none():
    with_devices = {d.target for d in devices().values()}
    assert {t.name for t in targets().values() if t.device} == with_devices


@pytest.mark.parametrize(
    ("nvml_name", "name"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("NVIDIA GB10", "GB10"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_a_reported_name_finds_its_device_and_no_other(nvml_name, name):
    found = device_of_nvml_name(nvml_name)
    assert found == device(name)
    hits = [d.name for d in devices().values() for p in d.match if re.fullmatch(p, nvml_name)]
    assert hits == [name]


@pytest.mark.parametrize(
    "nvml_name",
    ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100 PCIe", "NVIDIA H200 MIG 1g.18gb", ""],
)
def test_a_variant_with_other_figures_is_not_taken_for_the_device(nvml_name):
    assert device_of_nvml_name(nvml_name) is None


def test_an_unknown_target_names_the_known_ones_and_the_closest():
    with pytest.raises(StudyError, match=r"unknown target 'sm_09', .*'sm_90'\?; known: sm_75, "):
        target("sm_09")
    with pytest.raises(StudyError, match="unknown target 'zzz'; known: sm_75, "):
        target("zzz")


def test_an_unknown_device_names_the_known_ones_and_the_closest():
    with pytest.raises(StudyError, match=r"unknown device 'h200', did you mean 'H200'\?; known"):
        device("h200")


def test_rows_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        target("sm_90").max_warps_per_sm = 1  # type: ignore[misc]


def test_importing_needs_no_torch_no_triton_and_no_driver_bindings():
    code = (
        "import sys, occupancy_probe.gpu as gpu; gpu.target('sm_90'); "
        "sys.exit(bool({'torch', 'triton', 'pynvml', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
