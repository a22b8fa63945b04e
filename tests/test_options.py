"""Options of the workflow: typed, and a typo is an error."""

import pytest
import yaml

from occupancy_probe.exc import StudyError
from occupancy_probe.options import read_options


@pytest.mark.parametrize("said", ["false", "False", "no", "0", 0, False])
def test_every_way_to_say_false_commits_nothing(said):
    assert read_options({"commit": said}).commit is False


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"comit": "False"}, "--config comit: unknown option; did you mean 'commit'?"),
        ({"stdy": "x"}, "--config stdy: unknown option; did you mean 'study'?"),
        (
            {"amend": yaml.safe_load("more blocks (before: tolerance 0.1)")},
            "--config amend: takes text, and YAML reads more in this; quote it twice:"
            """ --config 'amend="…"'""",
        ),
        ({"commit": "maybe"}, "--config commit=maybe: takes True or False"),
    ],
)
def test_a_typo_is_one_line(config, words):
    with pytest.raises(StudyError) as fault:
        read_options(config)
    assert str(fault.value) == words


def test_keys_of_other_rules_pass():
    assert read_options({"my_rule_depth": 3, "study": "a,b"}).study == "a,b"


def test_a_gate_cannot_be_turned_off_by_a_typo():
    with pytest.raises(StudyError, match="--config drift=flase: takes fail"):
        read_options({"drift": "flase"})


def test_text_quoted_twice_is_text():
    assert read_options({"amend": yaml.safe_load('"before: 0.1"')}).amend == "before: 0.1"
