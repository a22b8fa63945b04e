"""Which files a kernel is made of, found without running any."""

from __future__ import annotations

import pytest

from occupancy_probe.study.sources import import_closure, module_name, package_root


@pytest.fixture
def tree(tmp_path):
    def write(**files):
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/").replace("//init//", "/__init__") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return tmp_path, write


def names(folder, *start, **more):
    return [
        p.relative_to(folder).as_posix()
        for p in import_closure([folder / s for s in start], **more)
    ]


def test_siblings_packages_and_relative_imports(tree):
    folder, write = tree
    (folder / "p" / "q").mkdir(parents=True)
    for package in ("p", "p/q"):
        (folder / package / "__init__.py").write_text("")
    write(p__q__k="from . import near\nfrom ..far import x\nimport p.other\nimport json, triton\n")
    write(p__q__near="raise RuntimeError('never run')", p__far="x = 1", p__other="", p__unused="")
    assert names(folder, "p/q/k.py") == [
        "p/__init__.py", "p/far.py", "p/other.py", "p/q/__init__.py", "p/q/k.py", "p/q/near.py",
    ]  # fmt: skip


def test_imports_inside_functions_and_conditions_count(tree):
    folder, write = tree
    write(
        k="def f():\n    import a\nif False:\n    from b import c\n",
        a="",
        b="import d",
        d="import k",
    )
    assert names(folder, "k.py") == ["a.py", "b.py", "d.py", "k.py"]


def test_further_roots(tree):
    folder, write = tree
    write(lib__k="import far", roots__far="")
    assert names(folder, "lib/k.py") == ["lib/k.py"]
    assert names(folder, "lib/k.py", roots=[folder / "roots"]) == ["lib/k.py", "roots/far.py"]


def test_stubs_are_not_followed_and_a_stubbed_package_has_real_parts(tree):
    folder, write = tree
    (folder / "p").mkdir()
    (folder / "p" / "__init__.py").write_text("import heavy")
    write(p__k="import p.part, ext.sub, heavy2", p__part="", heavy="", ext__sub="", heavy2="")
    assert names(folder, "p/k.py", skip=["p", "ext", "heavy2"]) == ["p/k.py", "p/part.py"]


def test_a_file_that_does_not_parse_is_listed(tree):
    folder, write = tree
    write(k="import broken", broken="def f(:")
    assert names(folder, "k.py") == ["broken.py", "k.py"]


def test_names_and_roots(tree):
    folder, write = tree
    write(alone="")
    (folder / "p").mkdir()
    (folder / "p" / "__init__.py").write_text("")
    write(p__k="")
    assert (module_name(folder / "alone.py"), package_root(folder / "alone.py")) == (
        "alone",
        folder,
    )
    assert (module_name(folder / "p/k.py"), package_root(folder / "p/k.py")) == ("p.k", folder)
    assert module_name(folder / "p/__init__.py") == "p"
