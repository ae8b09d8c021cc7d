from __future__ import annotations

import importlib

import pytest

from gepipe import plugins
from gepipe.errors import PluginError


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs a distribution with entry points."""

    def install(name: str, entries: str) -> None:
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(entries)
        importlib.invalidate_caches()
        plugins._found.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._found.cache_clear()
    yield install
    plugins._found.cache_clear()


def test_own_parts_are_found_by_entry_point() -> None:
    assert {"decode_image", "resize", "top_k"} <= set(plugins.names("ops"))
    assert plugins.load("engines", "onnxruntime").__name__ == "OnnxEngine"


@pytest.mark.parametrize("kind", ["ops", "engines", "sources", "sinks"])
def test_every_registered_part_imports_and_has_a_docstring(kind) -> None:
    for name in plugins.names(kind):
        assert plugins.load(kind, name).__doc__, name


def test_plugin_of_another_package_is_found(installed) -> None:
    installed("extra", "[gepipe.ops]\nblur = collections:OrderedDict\n")

    assert "blur" in plugins.names("ops")
    assert plugins.load("ops", "blur").__name__ == "OrderedDict"


def test_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(PluginError, match="did you mean 'resize'"):
        plugins.load("ops", "resise")
    with pytest.raises(PluginError, match=r"known: .*csv"):
        plugins.load("sinks", "zzzzzz")


def test_plugin_that_does_not_import_is_named_with_its_cause(installed) -> None:
    installed("broken", "[gepipe.ops]\nbroken = no_such_module_at_all:Thing\n")

    with pytest.raises(PluginError, match=r"'broken' \(no_such.*No module named"):
        plugins.load("ops", "broken")


def test_one_name_for_two_things_is_refused(installed) -> None:
    installed("one", "[gepipe.sinks]\nsame = a:A\n")
    installed("two", "[gepipe.sinks]\nsame = b:B\n")

    with pytest.raises(PluginError, match="'same' is registered twice: "):
        plugins.names("sinks")


def test_same_thing_seen_twice_is_one(installed) -> None:
    installed("one", "[gepipe.sinks]\nsame = a:A\n")
    installed("copy", "[gepipe.sinks]\nsame = a:A\n")

    assert "same" in plugins.names("sinks")
