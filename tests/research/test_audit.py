"""The autotune audit, cases A1, A3 to A8: Triton's own Autotuner on kernels of a few lines."""

from __future__ import annotations

import pytest
import yaml
from conftest import FIXTURES, copy_fixture, own_imports

from occupancy_probe.records import Feasibility, Reason
from occupancy_probe.research.audit import BYPASSED, NO_AUTOTUNER, audit
from occupancy_probe.study import load_study


class Everything(dict):
    """A feasibility matrix in which whatever is asked for fits, so that nothing is compiled."""

    def get(self, target, default=None):
        del default
        fit = Feasibility(study="touch", arm="a", config={}, target=target, verdict="fits")
        return {"any": fit.model_copy(update={"config": AnyConfig()})}


class AnyConfig(dict):
    def get(self, key, default=None):
        return Equal()


class Equal:
    def __eq__(self, other):
        return True

    __hash__ = None


def audited(tmp_path, kernel=lambda text: text, problem=lambda text: text, matrix=None, **sections):
    path = copy_fixture("touch", tmp_path)
    for name, change in (("kernel", kernel), ("problem", problem)):
        file = tmp_path / "touch" / f"{name}.py"
        file.write_text(change(file.read_text()))
    content = yaml.safe_load(path.read_text()) | sections
    path.write_text(yaml.safe_dump(content))
    with own_imports():
        return audit(load_study(path), Everything() if matrix is None else matrix)


def listed(*axes, name=None):
    return [{"list": list(axes), **({"name": name} if name else {})}]


def said(found, *words):
    return [f for f in found.findings if all(w in f for w in words)]


def key(text):
    def change(source):
        assert 'key=["topk_rounded"]' in source
        return source.replace('key=["topk_rounded"]', text)

    return change


ONE_CONFIG = """CONFIGS = [triton.Config({"BLOCK_T": 16}, num_warps=4, num_stages=2)]"""


def one_config(source):
    before, _, rest = source.partition("CONFIGS = [")
    return before + ONE_CONFIG + rest.partition("\n]")[2]


IN_PLACE = """
@triton.jit
def decode(q, out, topk_rounded, heads, note, BLOCK_T: tl.constexpr):
    at = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    tl.store(out + at, tl.load(out + at) + tl.load(q + at))


CONFIGS"""


def in_place(more="", configs=2):
    """``out += q`` with two configs or one."""

    def change(source):
        head = source.partition("@triton.jit")[0]
        body = IN_PLACE + source.partition("CONFIGS")[2]
        if configs == 1:
            body = one_config(body)
        else:
            body = body.replace(
                '    triton.Config({"BLOCK_T": 32}, num_warps=8, num_stages=2),\n', ""
            )
        return head + body.replace('key=["topk_rounded"])', f'key=["topk_rounded"]{more})')

    return change


# -- the key ---------------------------------------------------------------------------------------


def test_A1_batch_and_heads_are_in_the_grid_and_not_in_the_key(tmp_path):
    found = audited(tmp_path)
    [bucket] = found.buckets
    assert bucket.key == {"topk_rounded": 640}
    assert bucket.workloads == ["b1", "b64", "b512"]
    assert bucket.grids == [[1, 16], [64, 16], [512, 16]]
    assert found.grid_blind == ["batch"]
    assert said(found, "one bucket", "grids differ ([1, 16] … [512, 16])")
    assert found.tuning_launches == 3


def test_A1_heads_64_to_16_retunes_nothing_and_another_dtype_retunes_once(tmp_path):
    found = audited(
        tmp_path,
        workloads=listed(
            {"batch": 8, "heads": 64, "dtype": "float32"},
            {"batch": 8, "heads": 16, "dtype": "float32"},
            {"batch": 8, "heads": 16, "dtype": "bfloat16"},
            {"batch": 8, "heads": 64, "dtype": "bfloat16"},
            name="h{heads}-{dtype}",
        ),
        decision={"improve": "True"},
    )
    assert [b.workloads for b in found.buckets] == [
        ["h64-float32", "h16-float32"],
        ["h16-bfloat16", "h64-bfloat16"],
    ]
    assert [b.dtypes[0] for b in found.buckets] == ["float32", "bfloat16"]
    assert found.grid_blind == ["heads"]
    assert found.blind_to == ["heads"]
    assert found.tuning_launches == 6


def test_A1_what_is_in_the_key_makes_its_own_bucket(tmp_path):
    axes = [{"batch": b, "topk": k} for b in (1, 64) for k in (512, 1024)]
    found = audited(tmp_path, workloads=listed(*axes, name="b{batch}-k{topk}"))
    assert [b.key for b in found.buckets] == [{"topk_rounded": 512}, {"topk_rounded": 1024}]
    assert [b.workloads for b in found.buckets] == [
        ["b1-k512", "b64-k512"],
        ["b1-k1024", "b64-k1024"],
    ]


def test_A5_a_name_that_is_no_argument_is_dead(tmp_path, triton_before_3_9):
    found = audited(tmp_path, kernel=key('key=["topk_rounded", "batch"]'))
    assert found.dead_names == ["batch"]
    assert said(found, "no argument: batch; ignored up to Triton 3.8, ValueError from 3.9")
    assert [b.key for b in found.buckets] == [{"topk_rounded": 640}]


def test_A7_the_batch_in_the_key_costs_configs_times_keys(tmp_path):
    found = audited(
        tmp_path,
        autotune={"warmup": listed({"batch": 1}), "capture": listed({"batch": 1}, {"batch": 64})},
    )
    wider = found.wider_key
    assert wider.added == ["batch"]
    assert not wider.is_argument
    assert (wider.buckets, wider.tuning_launches) == (3, 9)
    assert wider.seconds == pytest.approx(9 * 0.125)
    assert wider.not_warmed == ["batch-64"]
    assert said(found, "batch in the key: 3 buckets, 9 tuned configs, 1.12 s")


@pytest.mark.filterwarnings("ignore:warmup, rep")
def test_A7_seconds_follow_the_autotuners_own_settings(tmp_path):
    found = audited(tmp_path, kernel=key('key=["topk_rounded"], warmup=10, rep=40'))
    assert found.seconds_per_config == pytest.approx(0.05)
    assert found.tuning_seconds == pytest.approx(0.15)


def test_A8_a_key_argument_that_is_never_read_fragments_the_cache(tmp_path):
    axes = [{"batch": 8, "note": n} for n in range(100, 137)]
    found = audited(
        tmp_path,
        kernel=key('key=["topk_rounded", "note"]'),
        workloads=listed(*axes, name="n{note}"),
        decision={"improve": "True"},
    )
    assert len(found.buckets) == 37
    assert found.unread == {"note": 37}
    assert said(found, "note is never read", "37 tunings for one binary")


def test_A8_a_compile_time_argument_that_is_never_read(tmp_path):
    def kernel(text):
        text = text.replace("note, BLOCK_T", "note: tl.constexpr, BLOCK_T")
        return key('key=["note", "heads"]')(text)

    found = audited(tmp_path, kernel=kernel)
    assert found.unread == {"note": 1}


# -- in-place updates ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "status", "protection", "left"),
    [
        ("", "unsafe", None, 13),
        (', restore_value=["out"]', "protected", "restore_value", 11),
        (', reset_to_zero=["out"]', "protected", "reset_to_zero", 1),
    ],
)
def test_A3_an_update_in_place_is_timed_away(tmp_path, more, status, protection, left):
    found = audited(tmp_path, kernel=in_place(more))
    [update] = found.in_place
    assert (update.argument, update.status, update.protection) == ("out", status, protection)
    assert update.after_first_call == left, "starting from 10, each launch adds 1, 11 is right"
    assert update.bytes == 512 * 16 * 4
    assert found.safety == status
    if status == "unsafe":
        assert said(found, "unsafe: 13 instead of 11", "restore_value would clone 32.8 kB") or said(
            found, "unsafe: 13 instead of 11", "restore_value would clone 32"
        )


def test_A4_one_config_makes_it_latent(tmp_path):
    found = audited(tmp_path, kernel=in_place(configs=1))
    [update] = found.in_place
    assert (update.status, update.after_first_call) == ("latent", 11)
    assert found.safety == "latent"
    assert said(found, "latent", "adding an arm switches it on")


def test_A3_a_pre_hook_of_the_kernels_own_protects(tmp_path):
    hook = ", pre_hook=lambda named, reset_only=False: named['out'].fill_(10)"
    [update] = audited(tmp_path, kernel=in_place(hook)).in_place
    assert (update.status, update.protection, update.after_first_call) == (
        "protected",
        "pre_hook",
        11,
    )


SPLIT = """
@triton.jit
def decode(q, out, topk_rounded, heads, note, BLOCK_T: tl.constexpr):
    at = tl.program_id(0) * 16 + tl.arange(0, 16)
    if BLOCK_T == 16:
        tl.store(out + at, tl.load(q + at))
    else:
        tl.atomic_add(out + at, tl.load(q + at))


CONFIGS"""


@pytest.mark.parametrize(("hook", "status"), [("", "unsafe"), (", pre_hook=clear", "protected")])
def test_A3_a_split_count_that_only_some_configs_have(tmp_path, hook, status):
    """Configs that add need protection, configs that store do not."""

    def kernel(text):
        head = (
            text.partition("@triton.jit")[0] + "\ndef clear(named):\n    named['out'].zero_()\n\n"
        )
        body = SPLIT + text.partition("CONFIGS")[2]
        return head + body.replace(
            '{"BLOCK_T": 32}, num_warps=8', '{"BLOCK_T": 32}, num_warps=8' + hook
        )

    [update] = audited(tmp_path, kernel=kernel).in_place
    assert (update.by, update.status) == ("tt.atomic_rmw fadd", status)


def test_A3_a_kernel_that_only_writes_is_safe(tmp_path):
    found = audited(tmp_path)
    assert found.in_place == []
    assert found.safety == "safe"


def test_A3_input_and_output_that_are_one_buffer(tmp_path):
    def problem(text):
        return text.replace(
            'launched(inputs["q"], inputs["out"],', 'launched(inputs["q"], inputs["q"],'
        )

    [update] = audited(tmp_path, problem=problem).in_place
    assert update.argument == "out"


# -- capture ---------------------------------------------------------------------------------------


def test_A6_keys_first_reached_in_capture_are_named(tmp_path):
    capture = [{"batch": b, "topk": k} for k in (512, 1024) for b in (1, 8)]
    lists = {
        "warmup": listed({"batch": 1, "topk": 512}),
        "capture": listed(*capture, name="b{batch}-k{topk}"),
    }
    found = audited(tmp_path, autotune=lists)
    [first] = found.capture.first_in_capture
    assert (first.workload, first.key) == ("b1-k1024", {"topk_rounded": 1024})
    assert found.capture.calls == ["b1-k512", "b1-k1024"]
    assert said(found, "first reached inside capture", "b1-k1024 (topk_rounded=1024)")


def test_A6_a_warm_up_that_reaches_every_key_is_capture_safe(tmp_path):
    lists = {"warmup": listed({"batch": 1}), "capture": listed({"batch": 1}, {"batch": 64})}
    found = audited(tmp_path, autotune=lists)
    assert found.capture.first_in_capture == []
    assert said(found, "capture-safe")


def test_A6_without_lists_the_rule_is_said(tmp_path):
    assert said(audited(tmp_path), "inside CUDA-graph capture it fails")


def test_A6_one_config_cannot_fail_in_capture(tmp_path):
    lists = {"warmup": [], "capture": listed({"batch": 1})}
    found = audited(tmp_path, kernel=one_config, autotune=lists)
    assert found.capture.first_in_capture == []
    assert found.findings[0] == "1 config: nothing is timed"


# -- the list --------------------------------------------------------------------------------------


def test_configs_that_die_in_silence_and_configs_that_abort(tmp_path):
    def fate(arm, config, *reasons):
        config = {"num_stages": 2, **config}
        return Feasibility(
            study="touch", arm=arm, config=config, target="sm_90",
            verdict="rejected" if reasons else "fits", reasons=list(reasons),
        )  # fmt: skip

    big = Reason(
        limit="shared memory", required=300_000, allowed=232_448, text="300,000 B > 232,448 B"
    )
    wrong = Reason(limit="compiler", text="CompilationError: no such thing")
    matrix = {
        "sm_90": {
            "a": fate("a", {"BLOCK_T": 16, "num_warps": 4}),
            "b": fate("b", {"BLOCK_T": 16, "num_warps": 8}, big),
            "c": fate("c", {"BLOCK_T": 32, "num_warps": 8}, wrong),
        }
    }
    found = audited(tmp_path, matrix=matrix)
    assert [c.fate for c in found.configs] == [
        {"sm_90": "fits"}, {"sm_90": "skipped"}, {"sm_90": "aborts"},
    ]  # fmt: skip
    assert said(found, "BLOCK_T=16 num_warps=8", "dies in silence", "300,000 B")
    assert said(found, "BLOCK_T=32 num_warps=8", "ends the launch that tunes")


def test_a_config_that_is_no_arm_is_compiled(tmp_path):
    def kernel(text):
        return text.replace('{"BLOCK_T": 32}, num_warps=8', '{"BLOCK_T": 32}, num_warps=64')

    found = audited(tmp_path, kernel=kernel, matrix={})
    assert [c.fate["sm_90"] for c in found.configs] == ["fits", "fits", "skipped"]
    assert "threads" in found.configs[2].reasons["sm_90"]


PRUNE = """
def small_gpu(configs, named, **_):
    import torch

    small = torch.cuda.get_device_properties(0).shared_memory_per_block_optin < 200_000
    return configs[:1] if small else configs


decode_tuned = triton.autotune(configs=CONFIGS, key=["topk_rounded"],
                               prune_configs_by={"early_config_prune": small_gpu})(decode)
"""


def test_prune_functions_are_evaluated_per_target(tmp_path):
    def kernel(text):
        return text.partition("decode_tuned")[0] + PRUNE

    found = audited(tmp_path, kernel=kernel, targets=["sm_90", "sm_120"])
    assert [c.fate for c in found.configs] == [
        {"sm_90": "fits", "sm_120": "fits"},
        {"sm_90": "fits", "sm_120": "pruned"},
        {"sm_90": "fits", "sm_120": "pruned"},
    ]
    assert found.prune_asks == ["torch.cuda.get_device_properties"]


def test_a_list_that_depends_on_the_gpu_at_import(tmp_path):
    def kernel(text):
        ask = (
            "import torch\nif torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 12:"
            "\n    CONFIGS = CONFIGS[:1]\n\ndecode_tuned ="
        )
        return text.replace("decode_tuned =", ask)

    found = audited(tmp_path, kernel=kernel, targets=["sm_90", "sm_120"])
    assert len(found.configs) == 3
    assert list(found.lists) == ["sm_120"]
    assert [c["BLOCK_T"] for c in found.lists["sm_120"]] == [16]
    assert found.asks == ["torch.cuda.get_device_capability", "torch.cuda.is_available"]
    assert said(found, "another list on sm_120: 1 configs")


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        ("guessed(tuned(decode))", "every launch raises"),
        ("tuned(guessed(decode))", "overwritten by a heuristic inside"),
    ],
)
def test_heuristics_that_set_what_is_tuned(tmp_path, stack, words):
    def kernel(text):
        text = text.partition("decode_tuned")[0]
        return text + (
            'tuned = triton.autotune(configs=CONFIGS, key=["topk_rounded"])\n'
            'guessed = triton.heuristics({"BLOCK_T": lambda named: 16})\n'
            f"decode_tuned = {stack}\n"
        )

    found = audited(tmp_path, kernel=kernel)
    assert said(found, "BLOCK_T", words)
    assert bool(found.errors) == ("raises" in words)


def test_a_launch_that_does_not_reach_the_autotuner_is_said(tmp_path):
    def problem(text):
        return text.replace("forced(self.kernel, config)", "forced(self.kernel.fn, config)")

    assert audited(tmp_path, problem=problem).findings == [BYPASSED]


def test_no_autotuner():
    with own_imports():
        found = audit(load_study(FIXTURES / "gemm_bf16.yaml"), {})
    assert found.buckets == []
    assert found.findings == [NO_AUTOTUNER]
