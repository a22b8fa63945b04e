"""The adapter between a kernel and the tool: what a Problem must provide.

A Problem is written once per kernel. Its ``launch`` serves the trace (meta tensors, nothing is
compiled), the interpreter, eager runs, graph capture and timing alike, so it must neither read
tensor values nor depend on the device beyond :func:`occupancy_probe.launch.device.sm_count`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch

Inputs = dict[str, Any]
"""Named tensors and Python scalars of one problem instance, outputs and workspaces included."""


@dataclass(frozen=True)
class Traffic:
    """Work that any implementation must do for one launch of a workload.

    bytes: fewest bytes through device memory. flop: floating-point operations.
    sm_clocks: fewest issue clocks summed over all SMs, 0 where unknown.
    """

    bytes: int
    flop: int
    sm_clocks: float = 0.0


@dataclass(frozen=True)
class Tolerance:
    """Gates of one output against float64: every one that is not None must hold.

    Elementwise ``|d| <= absolute + relative * |ref|``; ``1 - cosine <= cosine``;
    ``norm(d) / norm(ref) <= norm``. All are unitless or in the unit of the output.
    """

    absolute: float
    relative: float
    cosine: float | None = None
    norm: float | None = None


class Problem(ABC):
    """One kernel with its inputs, its float64 reference and its traffic.

    ``Problem(**parameters)`` is called with the ``kernel.parameters`` of the study.
    """

    kernel: ClassVar[Any]
    """The kernel the config applies to: a JITFunction under any stack of autotune and heuristics.

    Not given where the study names somebody else's ``kernel.file``: it is then set before ``__init__``.
    """

    outputs: ClassVar[tuple[str, ...]]
    """Keys of the inputs that ``launch`` overwrites, results and workspaces; poisoned before each check."""

    tolerance: ClassVar[Mapping[str, Tolerance]]
    """Gates per result; its keys are those of ``reference``."""

    @abstractmethod
    def make_inputs(self, workload: Mapping[str, Any], device: str, seed: int) -> Inputs:
        """Allocate one instance on ``device`` ("meta", "cpu", "cuda"); same seed, same values."""

    @abstractmethod
    def launch(self, inputs: Inputs, config: Mapping[str, Any]) -> None:
        """Launch the kernel(s) once with ``config`` forced; write into ``inputs[output]``."""

    @abstractmethod
    def reference(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """The results in float64, computed from the same bytes by other means."""

    @abstractmethod
    def traffic(self, workload: Mapping[str, Any]) -> Traffic:
        """Lower bounds of the work of one launch."""

    def rotate(self, inputs: Inputs, workload: Mapping[str, Any], seed: int) -> Inputs:
        """Another instance that touches other memory; may share what a launch does not gather from.

        Timing rotates over enough instances to exceed the L2 cache. The default allocates anew.
        """
        device = next(v.device.type for v in inputs.values() if hasattr(v, "device"))
        return self.make_inputs(workload, device, seed)

    def facts(self, workload: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """Named quantities that a study's ``assume`` lines and its plan may use (``block_h`` …)."""
        return {}
