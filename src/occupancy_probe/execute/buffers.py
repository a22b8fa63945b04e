"""Poisoned, guarded outputs: what was not written and what was written outside shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from occupancy_probe.launch import Inputs

POISON = 0xFF
"""Every byte: NaN in each float format, -1 in integers."""

GUARD_ROWS = 64


def fingerprint(inputs: Inputs, outputs: tuple[str, ...]) -> dict[str, int]:
    """A checksum of every tensor that a launch must leave alone, by name."""
    return {
        name: _checksum(value)
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor) and name not in outputs
    }


def _checksum(tensor: torch.Tensor) -> int:
    """Sum of the bits, as 32-bit words where they fill some; NaNs count like anything else."""
    raw = tensor.contiguous().view(-1).view(torch.uint8)
    words = raw.view(torch.int32) if raw.numel() % 4 == 0 and raw.numel() else raw
    return int(words.sum(dtype=torch.int64))


@dataclass(frozen=True)
class Guarded:
    """Outputs of one problem instance inside larger poisoned buffers."""

    inputs: Inputs
    """The instance, its outputs replaced by views of the buffers."""
    buffers: dict[str, torch.Tensor]
    """Per output: uint8 [guard + payload + guard]."""
    guards: dict[str, tuple[int, int]]
    """Per output: bytes of one guard, bytes of one row (last dimension)."""

    def poison(self) -> None:
        """Fill payloads and guards afresh."""
        for buffer in self.buffers.values():
            buffer.fill_(POISON)

    def guard_rows_overwritten(self) -> int:
        """Rows outside the outputs that no longer hold the poison."""
        rows = 0
        for name, buffer in self.buffers.items():
            guard, row = self.guards[name]
            for part in (buffer[:guard], buffer[-guard:]):
                touched = (part != POISON).view(-1, row).any(dim=1)
                rows += int(touched.sum())
        return rows

    def not_written(self, name: str) -> int:
        """Elements of an output that still hold the poison in every byte."""
        value = self.inputs[name]
        raw = value.contiguous().view(torch.uint8).view(-1, value.element_size())
        return int((raw == POISON).all(dim=1).sum())


def guard_outputs(inputs: Inputs, outputs: tuple[str, ...]) -> Guarded:
    """Move each named output into a buffer with ``GUARD_ROWS`` rows of guard on both sides."""
    replaced: dict[str, Any] = dict(inputs)
    buffers, guards = {}, {}
    for name in outputs:
        tensor = inputs[name]
        row = (tensor.shape[-1] if tensor.dim() > 1 else 16) * tensor.element_size()
        guard = GUARD_ROWS * row
        size = tensor.numel() * tensor.element_size()
        buffer = torch.empty(guard + size + guard, dtype=torch.uint8, device=tensor.device)
        payload = buffer[guard : guard + size].view(tensor.dtype).view(tensor.shape)
        replaced[name], buffers[name], guards[name] = payload, buffer, (guard, row)
    return Guarded(replaced, buffers, guards)
