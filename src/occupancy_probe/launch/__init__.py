"""The one room that knows Triton's internals: Problems, tracing, compiling without a GPU, forcing."""

from occupancy_probe.launch.device import sm_count
from occupancy_probe.launch.force import forced, unwrap
from occupancy_probe.launch.problem import Inputs, Problem, Tolerance, Traffic
from occupancy_probe.launch.tuned import autotuned

__all__ = ["Inputs", "Problem", "Tolerance", "Traffic", "autotuned", "forced", "sm_count", "unwrap"]
