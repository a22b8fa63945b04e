"""Which commit is meant: bad history is told in clear words and nothing is lost."""

from __future__ import annotations

import gitstudy
import pytest
from conftest import git
from gitstudy import commit, measured, publish

from occupancy_probe.cli import main
from occupancy_probe.exc import RecordError, RepositoryError
from occupancy_probe.records import Measurement, read_record
from occupancy_probe.repository import Repository
from occupancy_probe.reproduce.revision import find_revision


@pytest.fixture
def work_(work, monkeypatch, trace_of):
    """The tiny study, planned, measured and published: tiny@1 and tiny@2."""
    monkeypatch.chdir(work)
    study = gitstudy.ready(work, trace_of)
    measured(study)
    assert publish(study) == 0
    return work


def head(work, revision="HEAD"):
    return git(work, "rev-parse", revision).strip()


def find(work, asked, study=None):
    return find_revision(Repository.around(work), asked, study)


def test_commit_tag_branch_and_number_name_the_same(work_):
    git(work_, "tag", "-a", "-m", "t", "v1")
    for asked in (head(work_), head(work_)[:8], "v1", "main", "tiny@2"):
        found = find(work_, asked)
        assert (found.commit, found.study, found.study_file) == (head(work_), "tiny", "tiny.yaml")
        assert found.devices == (gitstudy.DEVICE,) and not found.has_workflow
    assert find(work_, "tiny@1").devices == ()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("0" * 40, "no such commit"),
        ("nonesuch", "`snakemake studies` lists"),
        ("tiny@3", "tiny has 2 commits here, tiny@1 to tiny@2"),
        ("--upload-pack=x", "names no revision"),
        ("HEAD~2", "holds no plan of any study"),
    ],
)
def test_what_cannot_be_found_says_so(work_, asked, words):
    with pytest.raises(RepositoryError, match=words.replace("(", r"\(")):
        find(work_, asked)


def test_H6_a_shallow_clone_names_what_it_lacks(work_, tmp_path):
    git(tmp_path, "clone", "--quiet", "--depth=1", work_.as_uri(), "clone")
    clone = tmp_path / "clone"
    with pytest.raises(
        RepositoryError, match="shallow: older commits are missing; git fetch --unshallow"
    ):
        find(clone, head(work_, "HEAD~1"))
    assert any("shallow" in note for note in find(clone, "HEAD").notes)


def test_a_merge_commit_is_of_the_one_study_it_holds(work_):
    git(work_, "switch", "--quiet", "-c", "side", "HEAD~1")
    (work_ / "other").write_text("x\n")
    commit(work_, "side")
    git(work_, "merge", "--quiet", "--no-ff", "-m", "merge", "main")
    assert find(work_, "HEAD").study == "tiny"


def test_several_studies_in_a_commit_need_a_name(work_):
    other = work_ / "results/other"
    other.mkdir()
    (other / "plan.json").write_text("{}\n")
    commit(work_, "by hand")
    with pytest.raises(RepositoryError, match=r"several studies .other, tiny.*--config study=NAME"):
        find(work_, "HEAD")
    assert find(work_, "HEAD", "tiny").study == "tiny"
    assert find(work_, "tiny@2").study == "tiny"


def test_rewritten_history_is_still_found_and_named(work_):
    old = head(work_)
    git(work_, "branch", "before")
    git(work_, "reset", "--quiet", "--hard", "HEAD~2")
    found = find(work_, old)
    assert any("history rewritten" in note for note in found.notes)
    listed = Repository.around(work_).study_commits()
    assert [(c.stage, c.in_history) for c in listed] == [("plan", False), ("validate", False)]


def test_a_renamed_study_keeps_its_past(work_, capsys):
    text = (work_ / "tiny.yaml").read_text()
    (work_ / "tiny.yaml").unlink()
    (work_ / "studies").mkdir()
    (work_ / "studies/small.yaml").write_text(
        text.replace("name: tiny", "name: small").replace("path: tiny", "path: ../tiny")
    )
    commit(work_, "rename")
    assert find(work_, "tiny@2").study_file == "tiny.yaml"
    assert main(["studies"]) == 0
    said = capsys.readouterr().out
    assert "tiny@2" in said and "no study file here has that name (renamed, removed): tiny" in said
    assert "without a commit yet: small" in said


def test_studies_lists_devices_triton_and_decision_from_trailers(work_, capsys):
    assert main(["studies"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "tiny@1" in said and "tiny@2" in said
    assert "nvidia-h200, 3.6.0" in said and "adopt num_warps-8" in said
    assert "shallow" not in said


def test_studies_in_a_shallow_and_in_a_bare_clone(work_, tmp_path, capsys, monkeypatch):
    git(tmp_path, "clone", "--quiet", "--depth=1", work_.as_uri(), "clone")
    git(tmp_path, "clone", "--quiet", "--bare", str(work_), "bare.git")
    monkeypatch.chdir(tmp_path / "clone")
    main(["studies"])
    said = capsys.readouterr().out
    assert "evidence" in said and "this clone is shallow" in said and "tiny@2" not in said
    main(["studies", "--repository", str(tmp_path / "bare.git")])
    assert "tiny@2" in capsys.readouterr().out


def test_studies_reads_samples_where_a_commit_has_no_such_trailers(work_, capsys):
    message = git(work_, "log", "-1", "--format=%B")
    kept = [x for x in message.splitlines() if not x.startswith(("Triton:", "Decision:"))]
    git(work_, "commit", "--quiet", "--amend", "-m", "\n".join(kept))
    main(["studies"])
    said = " ".join(capsys.readouterr().out.split())
    assert "nvidia-h200, 3.6.0" in said and "adopt num_warps-8" in said


def test_missing_objects_are_named_with_the_remedy(work_):
    blob = git(work_, "rev-parse", "HEAD:tiny/kernel.py").strip()
    (work_ / ".git/objects" / blob[:2] / blob[2:]).unlink()
    place = work_ / "results/reproduce/x/tree"
    with (
        pytest.raises(RepositoryError, match=r"get the missing objects .git fetch"),
        Repository.around(work_).work_tree(head(work_), place),
    ):
        pass
    assert not place.exists()
    assert git(work_, "worktree", "list").count("\n") == 1


def test_a_record_from_a_newer_version_is_left_as_it_is(work_):
    path = next((work_ / "results/tiny/evidence").glob("*/measurement/r4.json"))
    newer = path.read_text().replace("occupancy-probe/1", "occupancy-probe/2")
    path.write_text(newer)
    with pytest.raises(RecordError, match="made by a newer version: update this one"):
        read_record(path, Measurement)
    assert path.read_text() == newer
