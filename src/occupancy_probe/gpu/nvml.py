"""The GPUs that are here, asked of NVIDIA's management library: no torch, no CUDA context."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from occupancy_probe.exc import DeviceError
from occupancy_probe.gpu.targets import Device, device_of_nvml_name

_REASONS = {
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
HARMLESS_REASONS = frozenset({"applications_clocks_setting", "display_clock_setting"})
"""Reasons for a clock below the highest that hold it steady."""
_IDLE = 0x001


@dataclass(frozen=True)
class PresentDevice:
    """A GPU of this machine that this process may use."""

    name: str
    """As NVML reports it, e.g. "NVIDIA H200"."""
    slug: str
    """The name as a part of paths, e.g. "nvidia-h200"."""
    uuid: str
    target: str
    """By its compute capability, e.g. "sm_90"; not necessarily in the table of targets."""
    driver: str
    memory_bytes: int | None
    """Device memory in all; None where the GPU shares the host's."""
    index: int
    """Among all GPUs of this machine in PCI order, whatever ``CUDA_VISIBLE_DEVICES`` leaves of them."""

    @property
    def device(self) -> Device | None:
        """Its entry in the table of devices, None for a model not listed."""
        return device_of_nvml_name(self.name)


@dataclass(frozen=True)
class DeviceState:
    """One reading of a GPU; a figure that the GPU does not report is None."""

    sm_clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    throttle_reasons: tuple[str, ...]
    """NVML's reasons for a clock below the highest, without "idle"."""


def present() -> PresentDevice | None:
    """The first GPU that this process may use; None without a GPU or a driver."""
    return next(iter(all_present()), None)


def all_present() -> tuple[PresentDevice, ...]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names and orders them.

    Indices count in PCI order, CUDA's own order wherever the GPUs are of one model. As in CUDA,
    the first entry that names no GPU ends the list, and a repeated one empties it. Slices of a
    GPU (``MIG-…``) are not seen.
    """
    found = _installed()
    if (setting := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return found
    chosen: list[PresentDevice] = []
    for entry in setting.split(","):
        if (named := _named(entry.strip(), found)) is None:
            break
        if named in chosen:
            return ()
        chosen.append(named)
    return tuple(chosen)


@contextmanager
def session() -> Iterator[Any]:
    """Hold NVML open and yield its bindings, so that readings inside do not open it each time."""
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def read_state(uuid: str) -> DeviceState:
    """Clock (MHz), temperature (°C), power (W) and throttle reasons of a GPU, as NVML reads now.

    Raises :class:`DeviceError` if the driver or this GPU does not answer.
    """
    try:
        with session() as nvml:
            gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
            power_mw = _ask(nvml, "nvmlDeviceGetPowerUsage", gpu)
            return DeviceState(
                sm_clock_mhz=_ask(nvml, "nvmlDeviceGetClockInfo", gpu, nvml.NVML_CLOCK_SM),
                temperature_c=_ask(
                    nvml, "nvmlDeviceGetTemperature", gpu, nvml.NVML_TEMPERATURE_GPU
                ),
                power_w=None if power_mw is None else power_mw / 1000,
                throttle_reasons=_throttle_reasons(nvml, gpu),
            )
    except (ImportError, _nvml_error()) as error:
        raise DeviceError(
            f"GPU {uuid} cannot be read ({error}); check that nvidia-smi lists it"
        ) from error


@cache
def _installed() -> tuple[PresentDevice, ...]:
    try:
        with session() as nvml:
            driver = nvml.nvmlSystemGetDriverVersion()
            return tuple(_describe(nvml, i, driver) for i in range(nvml.nvmlDeviceGetCount()))
    except (ImportError, _nvml_error()):
        return ()


def _describe(nvml: Any, index: int, driver: str) -> PresentDevice:
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    name = nvml.nvmlDeviceGetName(gpu)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(gpu)
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", gpu)
    return PresentDevice(
        name=name,
        slug=re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"),
        uuid=nvml.nvmlDeviceGetUUID(gpu),
        target=f"sm_{major}{minor}",
        driver=driver,
        memory_bytes=None if memory is None else memory.total,
        index=index,
    )


def _named(entry: str, found: tuple[PresentDevice, ...]) -> PresentDevice | None:
    if re.fullmatch("[0-9]+", entry):
        return found[int(entry)] if int(entry) < len(found) else None
    matching = [gpu for gpu in found if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return matching[0] if len(matching) == 1 else None


def _throttle_reasons(nvml: Any, gpu: Any) -> tuple[str, ...]:
    bits = _ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", gpu)
    if bits is None:  # drivers before 535 know the call by its old name only
        bits = _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu) or 0
    set_bits = (1 << place for place in range(bits.bit_length()) if bits >> place & 1)
    return tuple(_REASONS.get(bit, f"bit_{bit:#x}") for bit in set_bits if bit != _IDLE)


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """The answer of an NVML function, None where this GPU or driver does not support it."""
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return None


def _nvml_error() -> type[Exception]:
    """The bindings' base error; a stand-in that is never raised where they are not installed."""
    try:
        import pynvml
    except ImportError:
        return ImportError
    error: type[Exception] = pynvml.NVMLError
    return error
