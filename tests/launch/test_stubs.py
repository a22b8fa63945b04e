"""Modules that are not here: inert while a file is imported, gone afterwards."""

from __future__ import annotations

import copy
import importlib
import sys

import pytest

from occupancy_probe.launch.stubs import Inert, stubbed


def test_any_use_of_a_stub_is_allowed():
    with stubbed(["no_such"]):
        import no_such.deep.inner as inner
        from no_such import anything

        @anything.register("name", flag=True)
        @inner.decorate
        def kernel():
            return 7

        class Derived(anything.Base):
            field: inner.Type | None = None

        assert kernel() == 7
        assert Derived().field is None
        assert not isinstance(3, anything.Kind)
        assert not issubclass(int, anything.Kind)
        assert anything.__class__ is not None and not anything.version >= "1.0"
        assert list(anything.items()) == [] and not anything and int(anything.count) == 0
        with anything.guard():
            assert anything["key"].more(1, 2) is not None
        assert copy.deepcopy(anything.value) is not None


def test_nothing_is_left_behind():
    before, finders = set(sys.modules), list(sys.meta_path)
    with stubbed(["no_such"]):
        importlib.import_module("no_such.sub")
        assert {"no_such", "no_such.sub"} <= set(sys.modules)
    assert set(sys.modules) == before
    assert sys.meta_path == finders
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such")


def test_what_is_installed_is_hidden_and_comes_back():
    import json

    with stubbed(["json"]):
        assert isinstance(importlib.import_module("json").loads, Inert)
    assert importlib.import_module("json") is json


def test_modules_that_are_not_named_are_still_missing():
    with stubbed(["no_such"]), pytest.raises(ModuleNotFoundError, match="no_other"):
        importlib.import_module("no_other")


def test_a_package_with_real_parts_is_entered_without_its_init(tmp_path):
    package = tmp_path / "half_real"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('not to be run')\n")
    (package / "part.py").write_text("from half_real import anything\nvalue = 3\n")
    sys.path.insert(0, str(tmp_path))
    try:
        with stubbed(["half_real"], {"half_real": package}):
            part = importlib.import_module("half_real.part")
            assert (part.value, type(part.anything)) == (3, Inert)
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module("half_real.absent")
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("half_real.part", None)
    assert "half_real" not in sys.modules


def test_special_names_are_absent():
    with pytest.raises(AttributeError):
        Inert("a").__wrapped__  # noqa: B018
