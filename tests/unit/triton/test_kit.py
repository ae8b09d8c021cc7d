import os
import shutil
import sys
from pathlib import Path

import pytest

from gepipe.errors import ConfigError
from gepipe.triton import environment, interpreter, kit
from gepipe.triton.environment import SERVER_VERSION

OWN = "{}.{}".format(*sys.version_info[:2])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITON_HOME", raising=False)
    monkeypatch.setattr(kit, "_OFFICIAL", tmp_path / "opt" / "tritonserver")
    return tmp_path / "cache" / "triton"


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def official(home: Path, python: str = OWN) -> Path:
    """Lay out an installation as Triton's images have it."""
    program(home / "bin" / "tritonserver")
    stub = program(home / "backends" / "python" / "triton_python_backend_stub")
    stub.write_bytes(b"\x7fELF...\0libpython%s.so.1.0\0..." % python.encode())
    (home / "TRITON_VERSION").write_text("2.51.0\n")
    return home


def private(cache: Path, version: str) -> environment.Environment:
    """Lay out what `gepipe triton install` makes."""
    made = environment.environment_for(interpreter.Interpreter(Path("python"), version, None))
    assert made.folder == cache / f"{SERVER_VERSION}-py{version}"
    program(made.packages / "pytriton" / "tritonserver" / "bin" / "tritonserver")
    program(made.python)
    made.set_stamp({"requirements": []})
    return made


def test_without_any_the_command_that_fetches_it_is_named() -> None:
    with pytest.raises(ConfigError, match=r"not installed.*to make that: gepipe triton install$"):
        kit.find()


def test_what_was_fetched_is_found_the_newest_first(cache, monkeypatch) -> None:
    monkeypatch.setattr(interpreter, "own", lambda: "3.13")
    private(cache, "3.10")
    made = private(cache, "3.11")

    found = kit.find()

    assert found.python == made.python
    assert found.python_version == "3.11"
    assert found.stub.parent.name == "3.11"
    assert found.version == SERVER_VERSION
    assert kit.find(python="3.10").python_version == "3.10"
    with pytest.raises(ConfigError, match=r"gepipe triton install --python 3.12"):
        kit.find(python="3.12")


def test_the_environment_of_the_python_that_runs_this_comes_before_newer_ones(
    cache, monkeypatch
) -> None:
    private(cache, "3.12")
    monkeypatch.setattr(interpreter, "own", lambda: "3.10")
    assert kit.find().python_version == "3.12"
    private(cache, "3.10")
    assert kit.find().python_version == "3.10"


def test_an_installation_that_did_not_come_to_its_end_does_not_count(cache) -> None:
    (private(cache, "3.11").folder / "gepipe.json").unlink()

    with pytest.raises(ConfigError, match="not installed"):
        kit.find()


def test_the_order_is_option_then_variable_then_image_then_fetched(
    cache, tmp_path, monkeypatch
) -> None:
    for version in interpreter.SUPPORTED:
        private(cache, version)
    python = "3.11"
    image = official(tmp_path / "opt" / "tritonserver", python)
    named = official(tmp_path / "named", python)
    given = official(tmp_path / "given", python)

    assert kit.find().server == image / "bin" / "tritonserver"
    monkeypatch.setenv("TRITON_HOME", str(named))
    assert kit.find().server == named / "bin" / "tritonserver"
    assert kit.find(given).server == given / "bin" / "tritonserver"
    assert kit.find(given / "bin" / "tritonserver") == kit.find(given)


def test_an_installation_gets_the_environment_that_its_stub_is_built_for(cache, tmp_path) -> None:
    private(cache, "3.12")
    home = official(tmp_path / "home", "3.10")

    with pytest.raises(ConfigError, match=r"gepipe triton install --python 3.10"):
        kit.find(home)
    made = private(cache, "3.10")

    found = kit.find(home)
    assert (found.python, found.version) == (made.python, "2.51.0")
    assert found.libraries == (home / "lib", made.libraries)


def test_another_python_than_the_stub_is_built_for_is_refused(cache, tmp_path) -> None:
    private(cache, "3.10")
    home = official(tmp_path / "home", "3.12")

    with pytest.raises(ConfigError, match=r"Python 3.10; expected 3.12, for which .*_stub is"):
        kit.find(home, "3.10")


@pytest.mark.parametrize("broken", ["bin/tritonserver", "backends/python"])
def test_an_incomplete_installation_is_refused(tmp_path, broken: str) -> None:
    home = official(tmp_path / "home")
    part = home / broken
    part.unlink() if part.is_file() else shutil.rmtree(part)

    with pytest.raises(ConfigError, match=broken):
        kit.find(home)
    with pytest.raises(ConfigError, match="no such file"):
        kit.find(tmp_path / "none")


def test_stubs_run_the_first_python_on_the_path(cache) -> None:
    found = kit.of_environment(private(cache, "3.11"))

    environ = found.environ({"PATH": "/usr/bin", "PYTHONEXECUTABLE": "/x", "KEPT": "1"})

    assert environ["PATH"] == f"{found.python.parent}:/usr/bin"
    assert environ["LD_LIBRARY_PATH"] == os.pathsep.join(map(str, found.libraries))
    assert environ["KEPT"] == "1"
    assert "PYTHONEXECUTABLE" not in environ


def test_a_python_is_asked_what_it_is(tmp_path) -> None:
    found = interpreter.probe(Path(sys.executable))

    assert found.version == OWN
    assert found.library is None or found.library.name == f"libpython{OWN}.so.1.0"
    with pytest.raises(ConfigError, match="not a Python that runs"):
        interpreter.probe(program(tmp_path / "python3"))
    with pytest.raises(ConfigError, match="no such Python"):
        interpreter.find("python3.77")
