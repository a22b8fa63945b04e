"""The GPU that is here: its lock, its L2 cache and the versions that its figures depend on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from filelock import FileLock, Timeout

from occupancy_probe.exc import DeviceError
from occupancy_probe.gpu import PresentDevice, device_of_nvml_name, present

LOCK_LIMIT_S = 3600.0
DEFAULT_L2_BYTES = 128 * 10**6
"""Assumed where the table does not know the device: large, so that rotation is safe."""


def require_gpu() -> PresentDevice:
    """The GPU to use; DeviceError with the remedy where there is none."""
    found = present()
    if found is None:
        raise DeviceError(
            "this target needs an NVIDIA GPU and none was found here; `snakemake ab_report` works"
            " without one, with the evidence that was published"
        )
    return found


def l2_bytes(device: PresentDevice) -> int:
    """L2 cache of ``device`` in bytes, from the table."""
    known = device_of_nvml_name(device.name)
    return int(known.l2_mb * 10**6) if known else DEFAULT_L2_BYTES


@contextmanager
def held(device: PresentDevice) -> Iterator[None]:
    """Hold the GPU alone among this user's runs of this tool."""
    path = Path(tempfile.gettempdir(), f"occupancy-probe-{device.uuid}.lock")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=LOCK_LIMIT_S)
    except Timeout as e:
        raise DeviceError(f"{device.name} is held by another run ({path})") from e
    try:
        yield
    finally:
        lock.release()


def run_versions(device: PresentDevice | None) -> dict[str, str]:
    """Installed versions that a run's figures depend on; another value is drift."""
    found = {"driver": device.driver} if device else {}
    for package in ("triton", "torch", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
