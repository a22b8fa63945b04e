"""The Occupancy Probe: a Triton launch-config hypothesis, planned, researched, executed, validated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from occupancy_probe.launch.override import Rule, force

__version__ = "0.1.0"
__all__ = ["Rule", "__version__", "force"]


def __getattr__(name: str) -> Any:
    """``force`` on demand: most commands never need the part that knows Triton."""
    if name in ("Rule", "force"):
        from occupancy_probe.launch import override

        return getattr(override, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
