"""A study file as data, to be spoiled one key at a time."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

CONTENT = {
    "name": "small",
    "title": "Small",
    "document": "SMALL",
    "hypothesis": {"what": "more warps", "why": "latency", "how": "measure"},
    "kernel": {"path": "kernel", "problem": "P", "function": "f"},
    "baseline": {"BLOCK": 64, "num_warps": 4, "num_stages": 2},
    "arms": [{"vary": {"num_warps": [8]}, "why": "the hypothesis"}],
    "targets": ["sm_90"],
    "workloads": [{"grid": {"rows": [1, 64], "topk": [512]}, "name": "r{rows}"}],
    "checks": {"logic": [{"list": [{"rows": 1, "topk": 16}]}]},
    "decision": {"improve": "rows >= 64"},
}


class Draft:
    """`content` is edited, `load()` writes and loads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.content = copy.deepcopy(CONTENT)
        self.path = folder / "small.yaml"
        (folder / "kernel").mkdir()
        (folder / "kernel" / "problem.py").write_text("")

    def load(self):
        from occupancy_probe.study import load_study

        self.path.write_text(yaml.safe_dump(self.content), encoding="utf-8")
        return load_study(self.path)

    def fault(self) -> str:
        """The message of the StudyError that loading raises."""
        from occupancy_probe.exc import StudyError

        with pytest.raises(StudyError) as raised:
            self.load()
        return str(raised.value)


@pytest.fixture
def draft(tmp_path):
    return Draft(tmp_path)
