"""The GPU that is here: its lock, its L2 cache and the versions that its figures depend on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from occupancy_probe.exc import DeviceError
from occupancy_probe.gpu import PresentDevice, all_present, device_of_nvml_name, present

LOCK_LIMIT_S = 3600.0
UNKNOWN_SM_COUNT = 128
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


class GpuTurn:
    """The lock of one GPU, taken by one worker after another; adds up how long it was held.

    One GPU is used by one worker at a time among this user's runs of this tool.
    """

    def __init__(self, device: PresentDevice, locks: Path | None = None) -> None:
        self.device = device
        self.environment: Mapping[str, str] = {"CUDA_VISIBLE_DEVICES": device.uuid}
        self._path = _lock_path(device, "lock", locks)
        self._lock = FileLock(self._path)
        self._since: float | None = None
        self._held_s = 0.0

    @property
    def held_s(self) -> float:
        """Seconds from taking the lock to releasing it, over all turns so far, this one included."""
        running = 0.0 if self._since is None else time.perf_counter() - self._since
        return self._held_s + running

    def enter(self) -> dict[str, Any]:
        """Wait for the GPU, at most ``LOCK_LIMIT_S``; DeviceError names who to look for."""
        try:
            self._lock.acquire(timeout=LOCK_LIMIT_S)
        except Timeout as e:
            raise DeviceError(
                f"{self.device.name} is held by another run ({self._path}); end it or wait for it"
            ) from e
        self._since = time.perf_counter()
        return {"uuid": self.device.uuid}

    def leave(self) -> None:
        """Release it; without it nothing happens."""
        if self._since is not None:
            self._held_s = self.held_s
            self._since = None
            self._lock.release()


@contextmanager
def assigned(
    candidates: Sequence[PresentDevice], keep: str | None = None, locks: Path | None = None
) -> Iterator[PresentDevice]:
    """One GPU for a whole job: the one it had before (UUID ``keep``), else one without a job, else
    one whose turn is free now, else the first. All samples of a job come from it."""
    ordered = sorted(candidates, key=lambda d: d.uuid != keep)
    for device in ordered:
        seat = FileLock(_lock_path(device, "job", locks))
        try:
            seat.acquire(timeout=0)
        except Timeout:
            if device.uuid == keep:  # another GPU's samples would not continue these
                yield device
                return
            continue
        try:
            yield device
        finally:
            seat.release()
        return
    free = (d for d in ordered if not _taken(_lock_path(d, "lock", locks)))
    yield next(free, ordered[0])


def _taken(path: Path) -> bool:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def _lock_path(device: PresentDevice, kind: str, locks: Path | None) -> Path:
    return (locks or Path(tempfile.gettempdir())) / f"occupancy-probe-{device.uuid}.{kind}"


def same_model() -> list[PresentDevice]:
    """The GPUs here of the first one's model; DeviceError with the remedy where there is none."""
    first = require_gpu()
    return [d for d in all_present() if d.slug == first.slug]


def sm_count(device: PresentDevice) -> int:
    """SMs of ``device``, from the table, for launches that are compiled before the GPU is held."""
    known = device_of_nvml_name(device.name)
    return known.sm_count if known else UNKNOWN_SM_COUNT


def run_versions(device: PresentDevice | None) -> dict[str, str]:
    """Installed versions that a run's figures depend on; another value is drift."""
    found = {"driver": device.driver} if device else {}
    for package in ("triton", "torch", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
