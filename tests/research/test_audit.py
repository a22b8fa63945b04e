"""What the autotuner's key sees of a study's launches, and what it is blind to."""

from __future__ import annotations

from conftest import FIXTURES, copy_fixture

from occupancy_probe.launch.launches import trace_study
from occupancy_probe.research.audit import audit_key
from occupancy_probe.study import load_study


def audit(tmp_path, key=None, workloads=None, kernel=lambda text: text):
    path = copy_fixture("tiny", tmp_path)
    source = tmp_path / "tiny" / "kernel.py"
    text = kernel(source.read_text())
    if key is not None:
        assert 'key=["n"]' in text
        text = text.replace('key=["n"]', f"key={key!r}")
    source.write_text(text)
    if workloads:
        assert "grid: {rows: [4, 64], n: [500]}" in path.read_text()
        study = path.read_text().replace("{rows: [4, 64], n: [500]}", workloads)
        path.write_text(study.replace("name: r{rows}", 'name: "r{rows}-n{n}"'))
    study = load_study(path)
    return audit_key(study, trace_study(study))


def test_A1_the_grid_is_not_in_the_key(tmp_path):
    found = audit(tmp_path, workloads="{rows: [1, 64, 512], n: [500]}")
    [bucket] = found.buckets
    assert bucket.key == {"n": 500}
    assert bucket.workloads == ["r1-n500", "r64-n500", "r512-n500"]
    assert bucket.grids == [[1], [64], [512]]
    assert any(
        "into one bucket although their grids differ ([1] … [512])" in f for f in found.findings
    )
    assert found.blind_to == []
    assert found.dead_names == []
    assert found.findings[0] == "4 configs × 1 buckets = 4 tuning launches"


def test_A1_what_is_in_the_key_makes_its_own_bucket(tmp_path):
    found = audit(tmp_path, workloads="{rows: [1, 64], n: [100, 500]}")
    assert [b.key for b in found.buckets] == [{"n": 100}, {"n": 500}]
    assert [b.grids for b in found.buckets] == [[[1], [64]], [[1], [64]]]
    assert found.findings[0] == "4 configs × 2 buckets = 8 tuning launches"


def test_arguments_that_vary_inside_a_bucket_are_named(tmp_path):
    found = audit(tmp_path, key=["scale"], workloads="{rows: [64], n: [100, 500]}")
    assert found.blind_to == ["n"]
    assert "arguments that vary inside a bucket: n" in found.findings
    assert len(found.buckets) == 1


def test_A5_a_name_that_is_no_argument_is_dead(tmp_path):
    found = audit(tmp_path, key=["n", "batch"])
    assert found.dead_names == ["batch"]
    assert any(
        "no argument: batch; ignored up to Triton 3.8, ValueError from 3.9" in f
        for f in found.findings
    )
    assert [b.key for b in found.buckets] == [{"n": 500}]


def test_A5_arguments_of_every_kind_are_alive(tmp_path):
    def kernel(text):
        return text.replace(
            "BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, KIND: tl.constexpr = tl.float32)"
        )

    found = audit(tmp_path, key=["n", "x", "scale", "BLOCK", "KIND"], kernel=kernel)
    assert found.dead_names == []


def test_the_first_launch_inside_a_capture_is_warned_of(tmp_path):
    assert any("CUDA-graph capture" in f for f in audit(tmp_path).findings)


def test_one_config_tunes_nothing(tmp_path):
    def kernel(text):
        return text.replace("(256, 512)", "(256,)").replace("(1, 4)", "(4,)")

    found = audit(tmp_path, kernel=kernel)
    assert len(found.configs) == 1
    assert not any("capture" in f for f in found.findings)


def test_no_autotuner():
    path = FIXTURES / "gemm_bf16.yaml"
    study = load_study(path)
    from conftest import own_imports

    with own_imports():
        found = audit_key(study, trace_study(study))
    assert found.buckets == []
    assert found.findings == ["no autotuner around the kernel: the launch decides the config"]
