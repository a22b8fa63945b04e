"""GPU targets and devices as data, their limits, and what is resident on them."""

from occupancy_probe.gpu.nvml import (
    HARMLESS_REASONS,
    DeviceState,
    PresentDevice,
    all_present,
    present,
    read_state,
    session,
)
from occupancy_probe.gpu.occupancy import (
    Excess,
    Occupancy,
    Waves,
    bytes_in_flight_needed,
    limits,
    occupancy,
    shared_padding,
    waves,
)
from occupancy_probe.gpu.targets import (
    Device,
    Target,
    device,
    device_of_nvml_name,
    devices,
    target,
    targets,
)

__all__ = [
    "HARMLESS_REASONS",
    "Device",
    "DeviceState",
    "Excess",
    "Occupancy",
    "PresentDevice",
    "Target",
    "Waves",
    "all_present",
    "bytes_in_flight_needed",
    "device",
    "device_of_nvml_name",
    "devices",
    "limits",
    "occupancy",
    "present",
    "read_state",
    "session",
    "shared_padding",
    "target",
    "targets",
    "waves",
]
