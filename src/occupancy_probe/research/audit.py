"""What the autotuner around a kernel does with the launches that a study makes, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from occupancy_probe.gpu import Target, device
from occupancy_probe.launch.autotune import Touch, rehearse
from occupancy_probe.launch.autotune_list import conflicts, lists_at_import, seconds_per_config
from occupancy_probe.launch.launches import UNKNOWN_DEVICE_SMS, study_origin, study_problem
from occupancy_probe.launch.problem import Problem
from occupancy_probe.launch.trace import Origin
from occupancy_probe.launch.tuned import autotuners
from occupancy_probe.launch.unwrap import unwrap
from occupancy_probe.records import Audit, CaptureSafety, Feasibility, WiderKey
from occupancy_probe.research.audit_fates import fates
from occupancy_probe.research.audit_keys import blind_arguments, buckets_of, grid_blind, reached
from occupancy_probe.research.audit_updates import in_place, read_flows, safety_of, unread_keys
from occupancy_probe.research.audit_words import findings
from occupancy_probe.study import Study, Workload
from occupancy_probe.study.workloads import make_workloads

NO_AUTOTUNER = "no autotuner around the kernel: the launch decides the config"
BYPASSED = (
    "the Problem's launch does not reach the autotuner of its `kernel`; launch through"
    " forced(self.kernel, config)"
)

Matrix = Mapping[str, Mapping[str, Feasibility]]


def audit(study: Study, matrix: Matrix, workers: int = 1) -> Audit:
    """The audit of the study's kernel.

    matrix: feasibility by target and arm; configs that are no arm are compiled here, in ``workers``
    processes. A kernel without an autotuner gets an audit that says so and nothing else.
    """
    problem, origin = study_problem(study), study_origin(study)
    return Auditor(study, problem, origin).audit(matrix, workers)


class Auditor:
    """One study's Problem with its autotuner, rehearsed as often as the audit has questions."""

    def __init__(self, study: Study, problem: Problem, origin: Origin) -> None:
        self._study, self._problem, self._origin = study, problem, origin
        self._kernel = problem.kernel
        self._names = list(unwrap(self._kernel).arg_names)

    def audit(self, matrix: Matrix, workers: int = 1) -> Audit:
        study = self._study
        head: dict[str, Any] = {
            "study": study.name,
            "depends": {"launch": study.launch_digest},
            "versions": _versions(),
        }
        if not autotuners(self._kernel):
            return Audit(**head, findings=[NO_AUTOTUNER])
        tuner = autotuners(self._kernel)[0]
        first = study.targets[0]
        touches = self._touches(study.workloads, first)
        keys = [str(k) for k in tuner.keys]
        configs = [c.all_kwargs() for c in tuner.configs]
        if not any(t.arguments != ((), {}) or t.error for t in touches):
            return Audit(**head, key=keys, findings=[BYPASSED])
        per_target = {t.name: self._touches(study.workloads, t) for t in study.targets}
        tuned = fates(study, configs, per_target, matrix, workers)
        flows = read_flows(study.kernel_folder, touches, first)
        updates = in_place(self._kernel, flows, touches, first)
        buckets = buckets_of(touches)
        single = seconds_per_config(self._kernel)
        lists, asks = lists_at_import(
            lambda: study_problem(study).kernel, study.kernel_files, study.targets
        )
        unread = unread_keys(self._kernel, keys, [f for f, _ in flows], touches)
        found = Audit(
            **head,
            key=keys,
            configs=tuned,
            dead_names=[k for k in keys if k not in self._names],
            unread=unread,
            buckets=buckets,
            blind_to=blind_arguments(touches),
            grid_blind=grid_blind(study.workloads, touches),
            tuning_launches=sum(b.configs for b in buckets),
            seconds_per_config=single,
            in_place=updates,
            in_place_known=bool(flows),
            safety=safety_of(updates, bool(flows)),
            restore_bytes=sum(i.bytes for i in updates),
            lists={t: found for t, found in lists.items() if found != configs},
            asks=asks,
            prune_asks=sorted({q for ts in per_target.values() for t in ts for q in t.asked}),
            conflicts=conflicts(self._kernel),
            errors={t.workload: t.error for t in touches if t.error},
            capture=self._capture(first),
        )
        found = found.model_copy(update={"wider_key": self._wider(found, touches, single, first)})
        return found.model_copy(update={"findings": findings(found)})

    def _touches(self, workloads: Sequence[Workload], target: Target) -> list[Touch]:
        known = device(target.device) if target.device else None
        return rehearse(
            self._problem,
            self._study.file.baseline,
            workloads,
            target,
            self._origin,
            known.sm_count if known else UNKNOWN_DEVICE_SMS,
        )

    def _lists(self) -> tuple[tuple[Workload, ...], tuple[Workload, ...]] | None:
        declared = self._study.file.autotune
        if declared is None:
            return None
        return (
            make_workloads(declared.warmup, "autotune.warmup"),
            make_workloads(declared.capture, "autotune.capture"),
        )

    def _capture(self, target: Target) -> CaptureSafety | None:
        if (lists := self._lists()) is None:
            return None
        warm_up, capture = lists
        touches = self._touches([*warm_up, *capture], target)
        inside = touches[len(warm_up) :]
        seen = {t.key for t in touches[: len(warm_up)]}
        first: dict[tuple[Any, ...], Touch] = {}
        calls: dict[tuple[Any, ...], Touch] = {}
        for touch in inside:
            calls.setdefault(touch.key, touch)
            if touch.key not in seen and (touch.tuned or touch.error):
                first.setdefault(touch.key, touch)
        return CaptureSafety(
            warmup=[w.name for w in warm_up],
            capture=[w.name for w in capture],
            first_in_capture=[reached(t) for t in first.values()],
            calls=[t.workload for t in calls.values()],
        )

    def _wider(
        self, found: Audit, touches: Sequence[Touch], single: float, target: Target
    ) -> WiderKey | None:
        """What a key that sees the grid would make of the same launches."""
        if not found.grid_blind:
            return None
        axes = [a for a in found.grid_blind if any(a in w.axes for w in self._study.workloads)]
        added = axes or list(found.grid_blind)
        key_of = {t.workload: t.key for t in touches}

        def wide(workload: Workload, key: tuple[Any, ...], touch: Touch | None) -> tuple[Any, ...]:
            values = [workload.axes.get(a, touch.values.get(a) if touch else None) for a in added]
            return (*key, *values)

        by_name = {t.workload: t for t in touches}
        wider = {wide(w, key_of[w.name], by_name[w.name]) for w in self._study.workloads}
        configs = max((b.configs for b in found.buckets), default=0)
        not_warmed: list[str] = []
        if (lists := self._lists()) is not None:
            warm_up, capture = lists
            reached = self._touches([*warm_up, *capture], target)
            keys = [wide(w, t.key, t) for w, t in zip([*warm_up, *capture], reached, strict=True)]
            warmed = set(keys[: len(warm_up)])
            not_warmed = [
                w.name
                for w, k in zip(capture, keys[len(warm_up) :], strict=True)
                if k not in warmed
            ]
        return WiderKey(
            added=added,
            is_argument=all(a in self._names for a in added),
            buckets=len(wider),
            tuning_launches=len(wider) * configs,
            seconds=len(wider) * configs * single,
            not_warmed=not_warmed,
        )


def _versions() -> dict[str, str]:
    import triton

    return {"triton": triton.__version__}


def read_matrix_of(results: Path, study: Study) -> dict[str, dict[str, Feasibility]]:
    """What feasibility found, by target and arm; empty where it has not run."""
    from occupancy_probe.research.matrix import read_matrix

    return {t: read_matrix(results / "feasibility" / t) for t in study.file.targets}
