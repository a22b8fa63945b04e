"""The autotuner around a kernel: its audit, its real runs, what its choice costs."""

from __future__ import annotations

from typing import Any, Literal

from occupancy_probe.records.base import Part, Record


class Bucket(Part):
    """What the autotuner's key makes of some workloads: it tunes once for all of them."""

    key: dict[str, int | float | str | None]
    dtypes: list[str] = []
    """Element types of the tensor arguments, which Triton adds to every key."""
    workloads: list[str]
    """In the order in which the study names them: the first one tunes."""
    grids: list[list[int]]
    """Grids of their launches, under the config that was chosen."""
    configs: int = 0
    """Configs that the first launch times, after prune functions; 0: it times none."""


class TunedConfig(Part):
    """One config of the autotuner's list and what becomes of it on each target."""

    config: dict[str, Any]
    fate: dict[str, Literal["fits", "skipped", "aborts", "pruned", "not known"]]
    """skipped: it raises what the autotuner counts as infinitely slow, in silence. aborts: it raises
    anything else, which ends the program's launch. pruned: a prune function takes it out."""
    reasons: dict[str, str] = {}

    def is_arm(self, config: dict[str, Any]) -> bool:
        """Whether an arm's config is this one: options that say Triton's default may be left out."""
        default = {"num_ctas": 1, "num_warps": 4, "num_stages": 3}
        return all(config.get(k, default.get(k)) == v for k, v in self.config.items())


class InPlace(Part):
    """An argument whose new contents depend on its old ones."""

    argument: str
    by: str
    """The operation that shows it, from TTIR."""
    status: Literal["protected", "unsafe", "latent"]
    """unsafe: timing corrupts it. latent: it would, if there were a second config."""
    protection: str | None = None
    """restore_value, reset_to_zero or pre_hook."""
    bytes: int
    """What restore_value clones before every timed call, at the largest workload."""
    after_first_call: float | None = None
    """Contents after the first call if each launch adds 1 to 10: 11 is right. By Triton's own code,
    with one timed call per config; its benchmark makes hundreds."""


class KeyReached(Part):
    """A key that the autotuner meets, and the workload that brings it."""

    workload: str
    key: dict[str, int | float | str | None]
    dtypes: list[str] = []


class CaptureSafety(Part):
    """The study's warm-up list against its capture list."""

    warmup: list[str]
    capture: list[str]
    first_in_capture: list[KeyReached]
    """Keys that tune inside a capture, which fails; none: safe."""
    calls: list[str]
    """Workloads, one per key that is captured: launching these before any capture is enough."""


class WiderKey(Part):
    """The key with what shapes the grid added to it."""

    added: list[str]
    """Workload axes, or arguments, that vary inside a bucket and change its grid."""
    is_argument: bool
    """Whether all of them are arguments of the kernel, so that the key alone has to be edited."""
    buckets: int
    tuning_launches: int
    seconds: float
    not_warmed: list[str] = []
    """Captured workloads whose key the warm-up list would then not reach."""


class Audit(Record):
    """The autotuner around the kernel, by Triton's own code, against the launches that the study makes."""

    key: list[str] = []
    configs: list[TunedConfig] = []
    dead_names: list[str] = []
    """Key names that are no argument of the kernel: ignored up to Triton 3.8, ValueError from 3.9."""
    unread: dict[str, int] = {}
    """Key arguments that the kernel never reads, with the number of their values here."""
    buckets: list[Bucket] = []
    blind_to: list[str] = []
    """Arguments that vary over the workloads of one bucket."""
    grid_blind: list[str] = []
    """Workload axes and arguments that change the grid inside one bucket."""
    tuning_launches: int = 0
    """Configs timed over all buckets."""
    seconds_per_config: float = 0.0
    """Timing alone, by the autotuner's own settings; compiling comes on top."""
    in_place: list[InPlace] = []
    in_place_known: bool = True
    """False: the kernel could not be compiled, so nothing is known of in-place updates."""
    safety: Literal["safe", "protected", "latent", "unsafe", "not known"] = "safe"
    restore_bytes: int = 0
    """What restore_value for all in-place arguments would clone before every timed call."""
    lists: dict[str, list[dict[str, Any]]] = {}
    """Per target, where importing the kernel there makes another list than importing it here does."""
    asks: list[str] = []
    """What the module asks of the GPU that is present when it is imported."""
    prune_asks: list[str] = []
    """What prune functions and hooks ask of the GPU when a launch tunes."""
    conflicts: list[str] = []
    errors: dict[str, str] = {}
    """Workloads whose launch through the autotuner raises, with the reason."""
    capture: CaptureSafety | None = None
    wider_key: WiderKey | None = None
    """None where nothing that shapes the grid is missing from the key."""
    findings: list[str] = []

    @property
    def tuning_seconds(self) -> float:
        """Seconds of timing over all buckets."""
        return self.tuning_launches * self.seconds_per_config


class AutotuneRun(Part):
    """One real autotune run in a fresh process: the first call of the kernel, at one workload."""

    workload: str
    winner: dict[str, Any]
    timings_us: list[tuple[dict[str, Any], list[float]]] = []
    """Per config what the benchmark said: median, 20 % and 80 % quantiles; infinite: it failed."""
    seconds: float
    """Of the whole first call: tuning, and compiling where no cache has the binaries."""
    error: str | None = None


class AutotuneRuns(Record):
    """Repeated real autotune runs on one device."""

    device: str
    device_name: str
    device_uuid: str | None = None
    runs: list[AutotuneRun]
    started_at: str


class FirstTouch(Part):
    """One bucket of the autotuner on one device: what is chosen at each first workload, and its loss."""

    origin: str
    """Where the times come from and how they were taken."""
    workloads: list[str]
    configs: list[dict[str, Any]]
    """In the order of the list: on a tie the first one wins."""
    times_us: list[list[float]]
    """Per config, per workload; infinite where it cannot run."""
    chosen: list[int]
    """Per workload touched first: index of the config that wins there."""
    losses: list[list[float]]
    """Per workload touched first, per workload: its time over the best of the list, minus 1."""
    worst: float
    worst_first: str
    worst_at: str
    winners: list[dict[str, int]] = []
    """Per workload: how often each config (by index) wins over the study's own replicates."""
    unlisted: dict[str, float] = {}
    """Per workload: how much faster the best measured arm is than the best of the list, as loss."""
    unlisted_arm: str | None = None
    """That arm, where it is the same at the worst workload."""


class Answer(Part):
    """A question that a reader has, answered by records."""

    question: str
    answer: str


class TuningAdvice(Part):
    """What to do about the autotuner on one device, with the numbers that say so."""

    advice: Literal["keep", "pin one config", "add to key", "pin per bucket"]
    why: str
    config: dict[str, Any] | None = None
    """The config to pin, for `pin one config`."""
    per_workload: dict[str, dict[str, Any]] = {}
    """The config to pin at each workload, for `pin per bucket`."""
