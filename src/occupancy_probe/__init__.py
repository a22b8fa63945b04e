"""The Occupancy Probe: a Triton launch-config hypothesis, planned, researched, executed, validated."""

__version__ = "0.1.0"
