"""Which GPUs are here, and how they are, against a stand-in for the driver's bindings."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from occupancy_probe.exc import DeviceError
from occupancy_probe.gpu import all_present, device, present, read_state, session
from occupancy_probe.gpu.nvml import _installed


class FakeNvml(ModuleType):
    """Two H200 and one GPU that reports less; ``opened`` counts sessions that are still open."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    class NVMLError_FunctionNotFound(NVMLError):
        pass

    def __init__(self):
        super().__init__("pynvml")
        self.driver_here = True
        self.old_driver = False
        self.opened = self.inits = 0
        self.reasons = 0x1
        self.gpus = [
            ("NVIDIA H200", "GPU-aa11", (9, 0)),
            ("NVIDIA H200", "GPU-ab22", (9, 0)),
            ("NVIDIA GB10", "GPU-cc33", (12, 1)),
        ]

    def nvmlInit(self):
        if not self.driver_here:
            raise self.NVMLError("Driver Not Loaded")
        self.opened += 1
        self.inits += 1

    def nvmlShutdown(self):
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self):
        return "580.65.06"

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        for gpu in self.gpus:
            if gpu[1] == uuid:
                return gpu
        raise self.NVMLError("Not Found")

    def nvmlDeviceGetName(self, gpu):
        return gpu[0]

    def nvmlDeviceGetUUID(self, gpu):
        return gpu[1]

    def nvmlDeviceGetCudaComputeCapability(self, gpu):
        return gpu[2]

    def nvmlDeviceGetMemoryInfo(self, gpu):
        self._require_discrete(gpu)
        return SimpleNamespace(total=150_754_820_096)

    def nvmlDeviceGetPowerUsage(self, gpu):
        self._require_discrete(gpu)
        return 412_500

    def nvmlDeviceGetClockInfo(self, gpu, kind):
        assert kind == self.NVML_CLOCK_SM
        return 1980

    def nvmlDeviceGetTemperature(self, gpu, sensor):
        assert sensor == self.NVML_TEMPERATURE_GPU
        return 54

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu):
        if self.old_driver:
            raise self.NVMLError_FunctionNotFound
        return self.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu):
        return self.reasons

    def _require_discrete(self, gpu):
        if gpu[0] == "NVIDIA GB10":
            raise self.NVMLError_NotSupported


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    _installed.cache_clear()
    yield fake
    _installed.cache_clear()
    assert fake.opened == 0, "a session was left open"


def test_a_present_gpu_is_described(nvml):
    gpu = present()
    assert gpu is not None
    assert (gpu.name, gpu.slug, gpu.uuid) == ("NVIDIA H200", "nvidia-h200", "GPU-aa11")
    assert (gpu.target, gpu.driver) == ("sm_90", "580.65.06")
    assert gpu.memory_bytes == 150_754_820_096
    assert gpu.device == device("H200")


def test_a_gpu_that_shares_host_memory_has_no_memory_of_its_own(nvml):
    gpu = all_present()[2]
    assert (gpu.slug, gpu.target, gpu.memory_bytes) == ("nvidia-gb10", "sm_121", None)


def test_a_slug_keeps_letters_and_digits_only(nvml):
    nvml.gpus = [("NVIDIA RTX PRO 6000 (Blackwell) ", "GPU-1", (12, 0))]
    assert [gpu.slug for gpu in all_present()] == ["nvidia-rtx-pro-6000-blackwell"]


@pytest.mark.parametrize(
    ("setting", "uuids"),
    [
        (None, ["GPU-aa11", "GPU-ab22", "GPU-cc33"]),
        ("", []),
        ("-1", []),
        ("2,0", ["GPU-cc33", "GPU-aa11"]),
        (" 1 ", ["GPU-ab22"]),
        ("0,7,1", ["GPU-aa11"]),
        ("0,0", []),
        ("GPU-ab22", ["GPU-ab22"]),
        ("GPU-ab,GPU-c", ["GPU-ab22", "GPU-cc33"]),
        ("GPU-a", []),
        ("MIG-aa11", []),
    ],
)
def test_cuda_visible_devices_chooses_as_cuda_does(nvml, monkeypatch, setting, uuids):
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    found = all_present()
    assert [gpu.uuid for gpu in found] == uuids
    assert all(
        nvml.gpus[gpu.index][1] == gpu.uuid for gpu in found
    )  # the machine's, not the list's
    assert (present() is None) == (not uuids)


def test_without_a_driver_nothing_is_present(nvml):
    nvml.driver_here = False
    assert all_present() == ()
    assert present() is None
    with pytest.raises(DeviceError, match=r"GPU-aa11 cannot be read \(Driver Not Loaded\)"):
        read_state("GPU-aa11")


def test_without_the_bindings_nothing_is_present(nvml, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert all_present() == ()
    with pytest.raises(DeviceError, match="GPU-aa11 cannot be read"):
        read_state("GPU-aa11")


def test_the_driver_is_asked_once(nvml):
    all_present()
    present()
    assert nvml.inits == 1


def test_an_idle_gpu_is_not_throttled(nvml):
    state = read_state("GPU-aa11")
    assert (state.sm_clock_mhz, state.temperature_c, state.power_w) == (1980, 54, 412.5)
    assert state.throttle_reasons == ()


@pytest.mark.parametrize("old_driver", [False, True])
def test_throttle_reasons_have_names(nvml, old_driver):
    nvml.old_driver = old_driver
    nvml.reasons = 0x1 | 0x4 | 0x40 | 0x800
    expected = ("sw_power_cap", "hw_thermal_slowdown", "bit_0x800")
    assert read_state("GPU-aa11").throttle_reasons == expected


def test_a_figure_that_the_gpu_does_not_report_is_none(nvml):
    state = read_state("GPU-cc33")
    assert (state.power_w, state.sm_clock_mhz) == (None, 1980)


def test_an_unknown_gpu_is_an_error_that_names_it(nvml):
    with pytest.raises(DeviceError, match="GPU-zz cannot be read"):
        read_state("GPU-zz")


def test_a_session_holds_the_driver_open_around_readings(nvml):
    with session():
        read_state("GPU-aa11")
        assert nvml.opened == 1


@pytest.mark.gpu
def test_a_real_gpu_reports_its_state():
    gpu = present()
    if gpu is None:
        pytest.skip("needs an NVIDIA GPU")
    assert gpu.memory_bytes is None or gpu.memory_bytes > 0
    clock = read_state(gpu.uuid).sm_clock_mhz
    assert clock is not None
    assert clock > 0
