"""What a study is: schema, config rules, workloads. Pure: no torch, no triton."""

from occupancy_probe.study.arms import BASELINE, NULL, Arm
from occupancy_probe.study.load import Study, load_study
from occupancy_probe.study.workloads import Workload

__all__ = ["BASELINE", "NULL", "Arm", "Study", "Workload", "load_study"]
