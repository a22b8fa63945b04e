"""A rule that names its kernel: during an import, under several names, loaded twice, in a script."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from occupancy_probe.exc import ForceError
from occupancy_probe.launch import naming
from occupancy_probe.launch.force import pre_hook
from occupancy_probe.launch.intercept import Interceptor, intercepting
from occupancy_probe.launch.override import Overrides, Rule

KERNEL = """
import torch, triton, triton.language as tl

def grid(given):
    return (triton.cdiv(64, given["BLOCK"]),)

def launch(kernel, **config):
    out = torch.zeros(64, dtype=torch.int32, device=DEVICE)
    kernel[grid](out, 64, **config)
    return sorted(set(out.tolist())) if DEVICE == "cpu" else None

def tuned(*blocks):
    return triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in blocks], key=["n"])

@triton.jit
def block(out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.zeros([BLOCK], tl.int32) + BLOCK, mask=at < n)
"""
META = 'DEVICE = "meta"' + KERNEL
CPU = 'DEVICE = "cpu"' + KERNEL
NAMES = ("ours", "theirs", "pkg", "pkg.ours")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in NAMES:
        sys.modules.pop(name, None)


def module(place, text, file="ours.py"):
    (place / file).parent.mkdir(exist_ok=True)
    (place / file).write_text(META + text)
    importlib.invalidate_caches()


class Blocks(Interceptor):
    """Where Triton would launch: notes the BLOCK that arrives there."""

    def __init__(self):
        self.found = []

    def launch(self, kernel, proceed, *args, **kwargs):
        self.found.append({**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}["BLOCK"])


@contextmanager
def ruled(**configs):
    """Rules by name (of `ours` where no module is given), and the BLOCK of every launch so far."""
    made = [Rule(n if ":" in n else f"ours:{n}", c) for n, c in configs.items()]
    arrived = Blocks()
    with intercepting(arrived), intercepting(Overrides(made)):
        yield made, arrived.found


# -- during the import -----------------------------------------------------------------------------


def test_a_launch_during_the_import_is_forced_and_so_are_the_later_ones(place):
    module(place, "launch(block, BLOCK=64)\n")
    with ruled(block={"BLOCK": 32}) as ([rule], blocks):
        import ours

        ours.launch(ours.block, BLOCK=64)
        assert blocks == [32, 32]
        assert (rule.launches, rule.bypassed) == (2, 0)


def test_rules_for_several_kernels_of_a_module_that_launches_one_before_it_has_the_other(place):
    module(place, "launch(block, BLOCK=64)\n@triton.jit\ndef second(out, n, BLOCK: tl.constexpr):\n"
                  "    tl.store(out, n)\n")  # fmt: skip
    with ruled(second={"BLOCK": 16}, block={"BLOCK": 32}) as (rules, blocks):
        import ours

        ours.launch(ours.second, BLOCK=64)
        ours.launch(ours.block, BLOCK=64)
        assert blocks == [32, 16, 32]
        assert [r.launches for r in rules] == [1, 2]


def test_a_name_that_the_import_gives_to_an_autotuner_later_is_followed(place):
    module(place, "launch(block, BLOCK=64)\nblock = tuned(16, 32)(block)\n")
    with ruled(block={"BLOCK": 32, "num_warps": 8}) as ([rule], blocks):
        import ours

        ours.launch(ours.block)
        assert blocks == [32, 32]
        assert (rule.launches, rule.bypassed) == (2, 1)
        assert rule.config["num_stages"] == 3, "completed from the list"


def test_a_launch_before_the_kernel_has_its_name(place):
    module(place, "hidden = block\ndel block\nlaunch(hidden, BLOCK=64)\nbetter = hidden\n")
    with ruled(better={"BLOCK": 32}) as (_, blocks):
        import ours

        ours.launch(ours.hidden, BLOCK=64)
        assert blocks == [64, 32]


def test_a_kernel_that_is_made_on_demand(place):
    module(place, "made = None\ndef get():\n    global made\n    made = tuned(16, 32)(block)\n")
    with ruled(made={"BLOCK": 16}) as ([rule], blocks):
        import ours

        ours.launch(ours.block, BLOCK=64)
        ours.get()
        ours.launch(ours.made)
        assert blocks == [64, 16]
        assert (rule.launches, rule.bypassed) == (1, 1)


def test_a_name_is_not_looked_up_once_it_is_settled(place, monkeypatch):
    module(place, "")
    with ruled(block={"BLOCK": 32}) as (_, blocks):
        import ours

        ours.launch(ours.block, BLOCK=64)
        monkeypatch.setattr(naming, "find", None)
        monkeypatch.setattr(naming, "found_beside", None)
        ours.launch(ours.block, BLOCK=64)
        assert blocks == [32, 32]


def test_a_rule_whose_module_never_comes_costs_a_kernel_one_match(place, monkeypatch):
    module(place, "")
    matched = []
    original = Overrides._match
    monkeypatch.setattr(
        Overrides, "_match", lambda self, layer: matched.append(layer) or original(self, layer)
    )
    with ruled(**{"theirs:block": {"BLOCK": 32}}) as (_, blocks):
        import ours

        for _ in range(3):
            ours.launch(ours.block, BLOCK=64)
        assert blocks == [64, 64, 64]
        assert matched == [ours.block]


# -- names and copies ------------------------------------------------------------------------------


def test_two_names_for_one_kernel_are_refused_before_a_launch(place):
    module(place, "few, many = tuned(16, 32)(block), tuned(32, 64)(block)\n")
    with ruled(few={"BLOCK": 16}, many={"BLOCK": 64}) as (_, blocks):
        import ours

        for _ in range(2):
            with pytest.raises(ForceError, match=r"ours:many: is the kernel that ours:few forces"):
                ours.launch(ours.many)
        assert blocks == []


def test_a_reloaded_module(place):
    module(place, "")
    with ruled(block={"BLOCK": 32}) as (_, blocks):
        import ours

        before = ours.block
        ours.launch(before, BLOCK=64)
        importlib.reload(ours)
        assert ours.block is not before
        ours.launch(ours.block, BLOCK=64)
        ours.launch(before, BLOCK=64)
        assert blocks == [32, 32, 32]


def test_one_file_imported_under_two_names(place, monkeypatch):
    module(place, "few, many = triton.jit(block.fn), triton.jit(block.fn)\n", "pkg/ours.py")
    monkeypatch.syspath_prepend(place / "pkg")
    with ruled(**{"pkg.ours:block": {"BLOCK": 32}}) as ([rule], blocks):
        import ours
        import pkg.ours

        pkg.ours.launch(pkg.ours.block, BLOCK=64)
        ours.launch(ours.block, BLOCK=64)
        pkg.ours.launch(pkg.ours.few, BLOCK=64)
        assert blocks == [32, 32, 64], "another kernel of the same function is another kernel"
        assert rule.launches == 2


def test_a_rule_of_its_own_for_each_of_the_two_names(place, monkeypatch):
    module(place, "", "pkg/ours.py")
    monkeypatch.syspath_prepend(place / "pkg")
    configs = {"pkg.ours:block": {"BLOCK": 32}, "ours:block": {"BLOCK": 16}}
    with ruled(**configs) as (_, blocks):
        import ours
        import pkg.ours

        pkg.ours.launch(pkg.ours.block, BLOCK=64)
        ours.launch(ours.block, BLOCK=64)
        assert blocks == [32, 16]


def test_equal_code_of_two_files_is_two_kernels(place):
    module(place, "")
    module(place, "", "theirs.py")
    with ruled(block={"BLOCK": 32}) as (_, blocks):
        import ours
        import theirs

        ours.launch(ours.block, BLOCK=64)
        theirs.launch(theirs.block, BLOCK=64)
        assert blocks == [32, 64]


def test_a_module_that_the_program_executes_by_itself(place):
    module(place, "launch(block, BLOCK=64)\nblock = tuned(16, 32)(block)\n")
    with ruled(block={"BLOCK": 32}) as ([rule], blocks):
        spec = importlib.util.spec_from_file_location("ours", place / "ours.py")
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        assert "ours" not in sys.modules
        made.launch(made.block)
        assert blocks == [32, 32]
        assert rule.launches == 2


# -- hooks -----------------------------------------------------------------------------------------


def hooked(place, text):
    module(place, text)
    import ours

    return ours.block


def test_the_hook_of_the_config_that_is_forced(place):
    kernel = hooked(place, "def one(a): ...\ndef two(a): ...\nblock = triton.autotune(configs=["
                           "triton.Config({'BLOCK': 16}, pre_hook=one),"
                           "triton.Config({'BLOCK': 32}, pre_hook=two)], key=['n'])(block)\n")  # fmt: skip
    assert pre_hook(kernel, {"BLOCK": 16}).__name__ == "one"
    assert pre_hook(kernel, {"BLOCK": 32, "num_warps": 4}).__name__ == "two"
    with pytest.raises(ForceError, match=r"several pre_hooks and .* is none of them; force one"):
        pre_hook(kernel, {"BLOCK": 64})


def test_a_hook_that_is_made_anew_for_every_config_is_one(place):
    kernel = hooked(place, "block = triton.autotune(configs=[triton.Config({'BLOCK': b},"
                           " pre_hook=lambda a: a['out'].zero_()) for b in (16, 32)],"
                           " key=['n'])(block)\n")  # fmt: skip
    assert pre_hook(kernel, {"BLOCK": 64}) is not None


# -- in programs that nobody edits, in the interpreter ---------------------------------------------


def program(folder, rule, *command):
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "occupancy_probe",
            "run",
            "--force",
            rule,
            "--",
            sys.executable,
            *command,
        ],
        cwd=folder,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )


def test_a_program_whose_module_launches_at_import_and_that_asks_for_triton_first(tmp_path):
    """Untuned: nothing went past an autotuner."""
    (tmp_path / "ours.py").write_text(CPU + "print(launch(block, BLOCK=64))\n")
    (tmp_path / "main.py").write_text(
        "import importlib.util\nassert importlib.util.find_spec('triton')\n"
        "import ours\nprint(ours.launch(ours.block, BLOCK=64))\n"
    )
    done = program(tmp_path, 'ours:block={"BLOCK": 32}', "main.py")
    assert (done.returncode, done.stdout) == (0, "[32]\n[32]\n"), done.stderr
    assert 'forced ours:block to {"BLOCK": 32}: 2 launches (process' in done.stderr


def test_a_script_run_as_a_module_and_its_spawned_child(tmp_path):
    """`python -m pkg.serve`: the kernel is in `__main__`, and in `__mp_main__` while the child imports it."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "serve.py").write_text(
        CPU + "import multiprocessing\nprint(launch(block, BLOCK=64), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=print, args=('child',))\n"
        "    child.start(); child.join()\n"
    )
    done = program(tmp_path, 'pkg.serve:block={"BLOCK": 32}', "-m", "pkg.serve")
    assert (done.returncode, done.stdout) == (0, "[32]\n[32]\nchild\n"), done.stderr
    assert "pkg.serve:block" in done.stderr and ": 2 launches\n" in done.stderr


def test_a_script_that_is_imported_again_under_its_own_name(tmp_path):
    (tmp_path / "serve.py").write_text(
        CPU + "if __name__ == '__main__':\n    import serve\n"
        "    print(launch(block, BLOCK=64), serve.launch(serve.block, BLOCK=64))\n"
    )
    done = program(tmp_path, 'serve:block={"BLOCK": 32}', "serve.py")
    assert (done.returncode, done.stdout) == (0, "[32] [32]\n"), done.stderr


def test_a_process_that_replaces_itself_leaves_both_its_counts(tmp_path):
    (tmp_path / "serve.py").write_text(
        CPU + "import os, sys\nprint(launch(block, BLOCK=64), flush=True)\n"
        "if len(sys.argv) == 1:\n    os.execv(sys.executable, [sys.executable, __file__, 'again'])\n"
    )
    done = program(tmp_path, 'serve:block={"BLOCK": 32}', "serve.py")
    assert (done.returncode, done.stdout) == (0, "[32]\n[32]\n"), done.stderr
    assert ": 2 launches\n" in done.stderr


def test_a_forked_child_counts_what_it_sent_past_the_autotuner_itself(tmp_path):
    """The parent's launches go past the autotuner, the child's do not."""
    (tmp_path / "serve.py").write_text(
        CPU + "import multiprocessing\ntuner = tuned(16, 32)(block)\n"
        "def child():\n    launch(block, BLOCK=64)\n"
        "launch(tuner); launch(tuner)\n"
        "one = multiprocessing.get_context('fork').Process(target=child)\none.start(); one.join()\n"
    )
    done = program(tmp_path, 'serve:block={"BLOCK": 32}', "serve.py")
    lines = [x.partition(" (")[0] for x in done.stderr.splitlines() if "(process" in x]
    assert [x.partition("}: ")[2] for x in lines] == [
        "1 launch",
        "2 launches, 2 past the autotuner",
    ]
