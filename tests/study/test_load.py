"""A study file that is wrong says where, what and what to do: one line per fault."""

from __future__ import annotations

import subprocess
import sys

import pytest

from occupancy_probe.exc import StudyError
from occupancy_probe.study import load_study


def test_a_study_is_laid_out(draft):
    study = draft.load()
    assert [a.name for a in study.arms] == ["baseline", "null", "num_warps-8"]
    assert [w.name for w in study.workloads] == ["r1", "r64"]
    assert [w.name for w in study.logic] == ["rows-1_topk-16"]
    assert [t.name for t in study.targets] == ["sm_90"]
    assert study.kernel_folder == draft.folder / "kernel"


def test_unknown_key_names_the_near_one(draft):
    draft.content["decision"]["imporve"] = "rows > 1"
    assert draft.fault() == f"{draft.path}: decision.imporve: unknown key; did you mean 'improve'?"


def test_unknown_key_without_a_near_one_lists_the_known_ones(draft):
    draft.content["arms"][0]["zzz"] = 1
    fault = draft.fault()
    assert fault.startswith(f"{draft.path}: arms.0.zzz: unknown key; known keys: vary, grid, list")
    assert "list_" not in fault


def test_missing_key(draft):
    del draft.content["hypothesis"]["why"]
    assert draft.fault() == f"{draft.path}: hypothesis.why: missing; add it"


def test_every_fault_has_a_line_of_its_own(draft):
    del draft.content["title"]
    draft.content["baselin"] = {}
    draft.content["decision"]["alpha"] = 3
    lines = draft.fault().splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{draft.path}: ") for line in lines)
    assert any(line.endswith("baselin: unknown key; did you mean 'baseline'?") for line in lines)


def test_vary_and_grid_in_one_rule(draft):
    draft.content["arms"][0]["grid"] = {"BLOCK": [32]}
    fault = draft.fault()
    assert "\n" not in fault
    assert f"{draft.path}: arms.0: give exactly one of vary, grid, list, use" in fault


def test_workloads_need_grid_or_list(draft):
    draft.content["workloads"] = [{"name": "x"}]
    assert "workloads.0: give exactly one of grid, list" in draft.fault()


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("name", "../../x"),
        ("name", "a/b"),
        ("name", ".hidden"),
        ("name", ""),
        ("name", "a\n"),
        ("document", "../REPORT"),
        ("document", "/etc/passwd"),
    ],
)
def test_H4_names_cannot_leave_the_folder(draft, key, name):
    draft.content[key] = name
    assert f"{draft.path}: {key}: " in draft.fault()


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", "a b", "a\n", "x" * 101])
def test_H4_arm_names_cannot_leave_the_folder(draft, name):
    draft.content["arms"][0]["name"] = name
    fault = draft.fault()
    assert "\n" not in fault
    assert f"{draft.path}: arms[0].name: " in fault


def test_H4_values_that_make_names_cannot_leave_the_folder(draft):
    draft.content["arms"] = [{"list": [{"BLOCK": "../../x"}], "why": "malice"}]
    assert "is not a plain name" in draft.fault()
    draft.content["arms"] = [{"vary": {"num_warps": [8]}, "why": "w"}]
    draft.content["workloads"] = [{"list": [{"rows": "../../x"}]}]
    assert f"{draft.path}: workloads[0].name: 'rows-../../x' is not a plain name" in draft.fault()


def test_target_that_is_not_in_the_table(draft):
    draft.content["targets"] = ["sm_90", "sm_12O"]
    fault = draft.fault()
    assert fault.startswith(f"{draft.path}: ")
    assert "targets" in fault
    assert "'sm_12O'" in fault
    assert "sm_120" in fault


def test_kernel_path_without_a_problem(draft):
    draft.content["kernel"]["path"] = "kernels/none"
    fault = draft.fault()
    assert fault.startswith(f"{draft.path}: kernel.path: no ")
    assert "give the folder that holds problem.py" in fault


def test_improve_that_selects_no_workload(draft):
    draft.content["decision"]["improve"] = "rows > 64"
    assert "decision.improve: 'rows > 64' selects no workload" in draft.fault()


def test_expression_with_an_unknown_name_says_what_is_known(draft):
    draft.content["decision"]["improve"] = "concurrency > 64"
    fault = draft.fault()
    assert "decision.improve" in fault
    assert "known names: rows, topk" in fault


def test_projection_of_an_unknown_arm(draft):
    draft.content["projection"] = {"metric": "tok/s", "low": 0, "high": 1, "arms": ["w16"]}
    assert "projection.arms: no arm named w16" in draft.fault()


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ({"guard": "rows > 64"}, "decision.guard: 'rows > 64' selects no workload; correct it"),
        ({"guard": "width < 64"}, "decision.guard: expression 'width < 64'"),
        (
            {"improve": "topk == 512", "guard": "rows < 64"},
            "decision.guard: 'rows < 64' also selects r1, which `improve` selects",
        ),
        ({"margin": 1}, "decision.margin: give a fraction below 1; 0.02 means 2 % (got 1)"),
        ({"guard_loss": 2}, "decision.guard_loss: give a fraction below 1"),
        ({"guard_loss": float("inf")}, "decision.guard_loss: give a fraction below 1"),
        ({"minimum_effect": 5}, "decision.minimum_effect: Input should be less than 1 (got 5)"),
    ],
)
def test_a_rule_that_cannot_be_meant(draft, decision, words):
    draft.content["decision"] |= decision
    fault = draft.fault()
    assert fault.startswith(f"{draft.path}: {words}") and "\n" not in fault


@pytest.mark.parametrize("guard", ["True", "False", "rows < 64"])
def test_a_guard_keeps_all_none_or_the_others(draft, guard):
    draft.content["decision"]["guard"] = guard
    assert draft.load().selects(guard) == {"True": ("r1", "r64"), "False": ()}.get(guard, ("r1",))


# -- the step around the kernel --------------------------------------------------------------------

SERIES = "b200_tp4_nomtp_20260502"


@pytest.mark.parametrize(
    ("throughput", "decision", "words"),
    [
        ({}, {"metric": "end_to_end"}, "decision.metric: end_to_end: a series alone does not say"),
        (
            {"series": "measured"},
            {"metric": "end_to_end"},
            "decision.metric: end_to_end: with `series: measured`",
        ),
        ({"share": {"passes": "topk"}}, {}, "throughput.share.passes: belongs to a study of whole"),
        (
            {"series": "measured", "share": {"value": 0.2}},
            {},
            "throughput.share: with `series: measured` the share comes from the steps themselves",
        ),
        ({"where": "width = 5"}, {}, "throughput.where: expression 'width = 5'"),
        ({"where": "width == 5"}, {}, "throughput.where: expression 'width == 5': "),
        ({"where": "rows > 64"}, {}, "throughput.where: 'rows > 64' selects no workload"),
        (
            {"share": {"profile": "p.csv", "kernels": "(["}},
            {},
            "throughput.share: kernels '([' is no regular expression",
        ),
    ],
)
def test_a_step_that_cannot_be_judged_by(draft, throughput, decision, words):
    draft.content["throughput"] = {"series": SERIES, "axis": "rows", **throughput}
    draft.content["decision"] |= decision
    assert draft.fault().startswith(f"{draft.path}: {words}")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "p: no column named"),
        (b"just words\n", "p: no column named"),
        (b"\xff\xfe\x00", "export kernels with names and times"),
        (b"name,time_us\ngemm,3\n", "p: no kernel matches 'f'; it has gemm"),
    ],
)
def test_a_profile_without_the_kernel_is_found_while_the_study_is_parsed(draft, content, words):
    (draft.folder / "p").write_bytes(content)
    draft.content["throughput"] = {"series": SERIES, "axis": "rows", "share": {"profile": "p"}}
    fault = draft.fault()
    assert fault.startswith(f"{draft.path}: throughput.share.profile: ") and words in fault
    (draft.folder / "p").write_text("name,time_us\ngemm,3\nf,1\n")
    draft.load()


def test_what_gives_the_gain_of_the_step_makes_an_end_to_end_rule_possible(draft):
    draft.content["decision"]["metric"] = "end_to_end"
    draft.content["throughput"] = {"series": SERIES, "axis": "rows", "share": {"value": 0.1}}
    draft.load()
    draft.content["throughput"] = {"step": "small.yaml", "axis": "rows"}
    draft.load()
    draft.content["throughput"] = {"series": SERIES, "axis": "rows"}
    draft.content |= served()
    draft.load()


# -- a server --------------------------------------------------------------------------------------


def served(serve=(), load=()):
    server = {"command": ["python", "server.py", "{port}"], "kernel": "package.ops:kernel"}
    client = {"command": ["load", "{port}", "{rows}"], "regex": "([0-9.]+) tok/s"}
    return {"serve": server | dict(serve), "load": client | dict(load)}


@pytest.mark.parametrize(
    ("serve", "load", "words"),
    [
        (
            {"command": ["s", "--port={prt}"]},
            {},
            "serve.command: nothing is known as {prt}; known: {port}; braces that are meant as such",
        ),
        ({"health": "http://127.0.0.1:{prt}"}, {}, "serve.health: nothing is known as {prt}"),
        (
            {},
            {"command": ["load", "{conc}"]},
            "load.command: nothing is known as {conc}; known: {port}, {rows}, {topk}",
        ),
        ({"kernel": "ab"}, {}, "serve.kernel: write module:kernel, as the server imports it"),
        ({"kernel": "ab:"}, {}, "serve.kernel: write module:kernel"),
        ({}, {"regex": "(["}, "load: regex '([' is no regular expression: unterminated"),
        ({}, {"regex": "[0-9]+"}, "load: regex needs a group around tokens per second"),
        ({}, {"where": "width = 5"}, "load.where: expression 'width = 5'"),
    ],
)
def test_a_server_that_cannot_be_asked(draft, serve, load, words):
    draft.content |= served(serve, load)
    fault = draft.fault()
    assert fault.startswith(f"{draft.path}: {words}") and "\n" not in fault


def test_braces_of_other_languages_stay(draft):
    others = ["awk", "{ print }", "${HOME}", "a{3}", '{"a": 1}', "{}"]
    draft.content |= served(load={"command": ["load", *others]})
    draft.load()


@pytest.mark.parametrize("text", ["a: [1", "\ta: b", "just words", "- 1\n- 2", ""])
def test_not_a_mapping_of_keys(tmp_path, text):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(StudyError, match=r"s\.yaml: ") as raised:
        load_study(path)
    assert "\n" not in str(raised.value)


def test_not_text(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(StudyError, match="not valid YAML"):
        load_study(path)


def test_no_such_file(tmp_path):
    with pytest.raises(StudyError, match="No such file"):
        load_study(tmp_path / "none.yaml")


def test_H4_yaml_tags_execute_nothing(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(f"name: !!python/object/apply:os.mkdir ['{tmp_path / 'made'}']\n")
    with pytest.raises(StudyError, match="not valid YAML"):
        load_study(path)
    assert not (tmp_path / "made").exists()


def test_digests_follow_what_they_stand_for(draft):
    first = draft.load()
    draft.content["title"] = "Another"
    retitled = draft.load()
    assert retitled.launch_digest == first.launch_digest
    (draft.folder / "kernel" / "kernel.py").write_text("x = 1\n")
    edited = draft.load()
    assert edited.kernel_digest != first.kernel_digest
    assert edited.launch_digest != first.launch_digest


def test_loading_needs_neither_torch_nor_triton(draft):
    draft.load()
    code = (
        "import sys; from occupancy_probe.study import load_study; load_study(sys.argv[1]);"
        "sys.exit(bool({'torch', 'triton'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(draft.path)]).returncode == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fits('sm_90', 'w9')", "assume[0]: 'w9' is no target or arm of this study"),
        ("fits('sm_121', 'baseline')", "assume[0]: 'sm_121' is no target or arm of this study"),
        ("foo('sm_90')", "assume[0]: no function foo(); known: shared_bytes, registers"),
        ("block_h ==", "invalid syntax; write one expression"),
    ],
)
def test_assumptions_speak_of_what_there_is(draft, line, words):
    draft.content["assume"] = [line]
    assert words in draft.fault()


def test_every_function_of_an_assumption_can_be_judged():
    from occupancy_probe.study.references import ASSUME_FUNCTIONS
    from occupancy_probe.validate.assumptions import _functions

    assert set(ASSUME_FUNCTIONS) == set(_functions({}))
