"""A kernel in a package that nobody here wrote: named by file, not edited, imported in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import FIXTURES

from occupancy_probe.exc import ProblemError, StudyError
from occupancy_probe.launch.launches import trace_study
from occupancy_probe.launch.load import load_kernel, load_problem
from occupancy_probe.launch.unwrap import unwrap
from occupancy_probe.records import KernelFile
from occupancy_probe.study import load_study

EXAMPLE = FIXTURES.parents[1] / "studies" / "examples" / "foreign_kernel.yaml"
STUBS = ["fastattn", "fastattn_ext", "vendor_runtime"]
FILE = "fastattn/ops/decode.py"


@pytest.fixture(autouse=True)
def forget():
    """The library is imported anew by every test."""
    path = list(sys.path)
    yield
    for name in [
        n for n in sys.modules if n.partition(".")[0] in ("fastattn", "kernel", "problem")
    ]:
        del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def library(tmp_path):
    shutil.copytree(FIXTURES / "foreign" / "fastattn", tmp_path / "fastattn")
    return tmp_path


def load(folder, function="_split_decode_kernel", **more):
    where = {"file": FILE, "function": function, "stub_modules": STUBS} | more
    return load_kernel(folder, KernelFile(**where))


def study(folder: Path, change) -> Path:
    content = yaml.safe_load(EXAMPLE.read_text())
    content["kernel"]["file"] = FILE
    change(content)
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_kernel_with_its_autotuner_under_the_librarys_wrapper(library):
    kernel = load(library)
    assert type(kernel).__name__ == "Entry"
    assert unwrap(kernel).__name__ == "_split_decode_kernel"
    assert not {"fastattn_ext", "vendor_runtime", "fastattn"} & set(sys.modules)
    assert "fastattn.ops.softmax" in sys.modules


def test_the_operator_that_launches_it_leads_to_it_too(library):
    assert unwrap(load(library, "decode")) is unwrap(load(library))


@pytest.mark.parametrize("left_out", STUBS)
def test_what_is_not_installed_is_named_with_the_remedy(library, left_out):
    stubs = [s for s in STUBS if s != left_out]
    missing = {"fastattn": "fastattn_ext"}.get(left_out, left_out)
    if left_out == "fastattn":
        stubs.remove("fastattn_ext")
    with pytest.raises(
        ProblemError,
        match=rf"decode\.py: cannot be imported: .*No module named '{missing}.*add it to stub_modules",
    ):
        load(library, stub_modules=stubs)
    assert not any(n.startswith("fastattn.ops.decode") for n in sys.modules)


def test_a_wrong_name_is_answered_with_the_kernels_that_are_there(library):
    with pytest.raises(
        ProblemError,
        match=r"no '_split_decode'; its kernels: _split_decode_kernel, rescale; correct",
    ):
        load(library, "_split_decode")


def test_a_name_without_a_kernel(library):
    with pytest.raises(ProblemError, match=r"kernel\.function: tl holds no|holds no Triton kernel"):
        load(library, "triton")


@pytest.mark.parametrize(
    ("requires", "words"),
    [
        ("no-such-distribution>=2", r"no-such-distribution>=2 is not installed; pip install"),
        ("triton>=99", r"triton>=99, but triton \S+ is installed; pip install 'triton>=99'"),
        ("triton >=> 3", r"'triton >=> 3' is no requirement"),
    ],
)
def test_requirements_are_checked_first(library, requires, words):
    with pytest.raises(ProblemError, match=rf"kernel\.requires: {words}"):
        load(library, stub_modules=[], requires=["pyyaml", requires])


def test_further_folders_to_import_from(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far_helper.py").write_text(
        "import triton\n@triton.jit\ndef twice(x):\n    return x * 2\n"
    )
    (tmp_path / "one.py").write_text(
        "import triton, triton.language as tl\nfrom far_helper import twice\n"
        "@triton.jit\ndef one(x):\n    tl.store(x, twice(tl.load(x)))\n"
    )
    with pytest.raises(ProblemError, match="No module named 'far_helper'; install it, or add"):
        load_kernel(tmp_path, KernelFile(file="one.py", function="one"))
    where = KernelFile(file="one.py", function="one", sys_path=["elsewhere"])
    assert unwrap(load_kernel(tmp_path, where)).__name__ == "one"
    for name in ("one", "far_helper"):
        sys.modules.pop(name)


def test_a_file_may_be_called_like_a_library(tmp_path):
    (tmp_path / "torch.py").write_text(
        "import triton, triton.language as tl\n@triton.jit\ndef one(x):\n    tl.store(x, 1)\n"
    )
    import torch

    kernel = load_kernel(tmp_path, KernelFile(file="torch.py", function="one"))
    assert unwrap(kernel).__name__ == "one"
    assert sys.modules["torch"] is torch


def test_kernels_in_classes_and_under_other_names(tmp_path):
    (tmp_path / "odd.py").write_text(
        "import triton, triton.language as tl\n"
        "def _impl(x):\n    tl.store(x, 1)\n"
        "public = triton.jit(_impl)\n"
        "class Op:\n    @triton.jit\n    def kernel(x):\n        tl.store(x, 2)\n"
    )
    for name, qualname in (("public", "_impl"), ("_impl", "_impl"), ("Op.kernel", "Op.kernel")):
        found = unwrap(load_kernel(tmp_path, KernelFile(file="odd.py", function=name)))
        assert found.fn.__qualname__ == qualname
    sys.modules.pop("odd")


def test_the_example_study_is_traced(tmp_path):
    found = load_study(EXAMPLE)
    trace = trace_study(found)
    assert all(t.error is None for t in trace.launches)
    specs = trace.specializations.values()
    assert {(s.file, s.kernel) for s in specs} == {("decode.py", "_split_decode_kernel")}
    assert sorted(trace.sources) == ["decode.py", "softmax.py"]
    assert trace.autotune and trace.autotune["key"] == ["context"]
    ragged = [t for t in trace.launches if t.workload == "r64-ragged"]
    assert {t.calls[0].scalars["EVEN"] for t in ragged} == {False}
    words = {trace.specializations[t.calls[0].specialization].words() for t in ragged}
    assert all("bias=None" in w and "context: i32, splits: i32" in w for w in words)


def test_helper_files_make_the_study_another_one(library):
    def digests():
        found = load_study(study(library, lambda content: None))
        return found.kernel_digest, found.launch_digest, [p.name for p in found.kernel_files]

    first = digests()
    assert first[2] == ["__init__.py", "decode.py", "softmax.py", "registry.py"]
    helper = library / "fastattn" / "ops" / "softmax.py"
    helper.write_text(helper.read_text() + "\n# a remark\n")
    second = digests()
    assert second[0] != first[0] and second[1] != first[1]
    other = library / "fastattn" / "__init__.py"  # is not run: the study stubs the package
    other.write_text(other.read_text() + "\n# a remark\n")
    assert digests() == second


def test_a_problem_finds_the_foreign_kernel_as_its_own(library):
    (library / "mine").mkdir()
    (library / "mine" / "problem.py").write_text(
        "from occupancy_probe.launch import Problem, Traffic, forced, unwrap\n"
        "class Mine(Problem):\n"
        "    outputs = ()\n    tolerance = {}\n"
        "    def __init__(self): self.name = unwrap(self.kernel).__name__\n"
        "    def make_inputs(self, workload, device, seed): return {}\n"
        "    def launch(self, inputs, config): pass\n"
        "    def reference(self, inputs): return {}\n"
        "    def traffic(self, workload): return Traffic(0, 0)\n"
    )
    where = KernelFile(file=f"../{FILE}", function="_split_decode_kernel", stub_modules=STUBS)
    problem = load_problem(library / "mine", "Mine", {}, where)
    assert problem.name == "_split_decode_kernel"
    assert load_problem(library / "mine", "Mine", {}, where.model_dump()).name == problem.name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["kernel"].update(file="gone.py"), r"kernel\.file: no .*gone\.py"),
        (lambda c: c["kernel"].update(sys_path=["gone"]), r"kernel\.sys_path: no folder .*gone"),
        (lambda c: c.pop("signature"), r"signature: missing"),
        (lambda c: c["kernel"].pop("file"), r"kernel: give path and problem, or file and a signature"),
        (lambda c: c["kernel"].update(path="x"), r"kernel: path and problem go together"),
        (lambda c: c["signature"]["arguments"].update(context="contxt"), r"signature\.arguments\.context: .*contxt"),
        (lambda c: c["signature"].update(grid=["rows - 1"]), r"signature\.grid: \[0\] has a dimension"),
        (lambda c: c["signature"].update(grid=["rows / 2"]), r"signature\.grid: 0\.5 is no number of"),
    ],
)  # fmt: skip
def test_faults_of_the_study_are_found_before_anything_is_imported(library, change, words):
    with pytest.raises(StudyError, match=words):
        load_study(study(library, change))


def test_snakemake_never_imports_the_kernel(library):
    decode = library / FILE
    decode.write_text(f"raise SystemExit('imported')\n{decode.read_text()}")
    path = study(library, lambda content: None)
    program = (
        "import sys; from occupancy_probe import workflow as w; s = w.select_studies(sys.argv[1]);"
        "[w.compile_digest(x, 'sm_90') for x in s.values()]; w.environments(s, None);"
        "print({'torch', 'triton', 'fastattn'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")
