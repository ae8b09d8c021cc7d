from dataclasses import replace
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest

from gepipe.errors import ConfigError, GepipeError
from gepipe.triton import install as module
from gepipe.triton.environment import digest, digest_of, environment_for
from gepipe.triton.install import (
    CONSTRAINTS,
    bring_up_to_date,
    copy_package,
    wanted_requirements,
)
from gepipe.triton.interpreter import Interpreter
from gepipe.triton.kit import of_environment
from tests.support import ROOT

METADATA = """Metadata-Version: 2.1
Name: gepipe
Version: {version}
Provides-Extra: parquet
Provides-Extra: test
Requires-Dist: numpy>=1.26
Requires-Dist: tomli>=2; python_version < "3.11"
Requires-Dist: pyarrow<26,>=15; extra == 'parquet'
Requires-Dist: pytest>=8; extra == "test"
"""


def package(folder: Path, version: str, files: dict[str, str]) -> PathDistribution:
    """Lay out an installed package with a record."""
    info = f"gepipe-{version}.dist-info"
    files = {**files, f"{info}/METADATA": METADATA.format(version=version)}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    record = [*files, f"{info}/RECORD", "../../../bin/gepipe", "gepipe/__pycache__/a.pyc"]
    (folder / info / "RECORD").write_text("".join(f"{name},,\n" for name in record))
    return PathDistribution(folder / info)


def test_a_package_is_copied_by_its_record_in_place_of_the_one_before(tmp_path) -> None:
    old = package(tmp_path / "old", "0.1", {"gepipe/a.py": "a = 1\n", "gepipe/gone.py": ""})
    new = package(tmp_path / "new", "0.2", {"gepipe/a.py": "a = 2\n", "_gepipe.pth": "/src\n"})
    (tmp_path / "new" / "unlisted.py").touch()
    target = tmp_path / "site-packages"

    copy_package(old, target)
    copy_package(new, target)

    found = sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
    assert found == [
        "_gepipe.pth",
        "gepipe-0.2.dist-info/METADATA",
        "gepipe-0.2.dist-info/RECORD",
        "gepipe/a.py",
    ]
    assert (target / "gepipe" / "a.py").read_text() == "a = 2\n"
    assert digest_of(old) != digest_of(new)
    (copy,) = target.glob("*.dist-info")
    assert digest_of(PathDistribution(copy)) == digest_of(new)


def test_who_installed_a_package_is_no_difference() -> None:
    files = "gepipe/a.py,sha256=a,1\ngepipe-0.2.dist-info/METADATA,sha256=m,1\n"
    by_pip = f"../../../bin/gepipe,,\n{files}gepipe-0.2.dist-info/INSTALLER,sha256=i,4\n"

    assert digest("0.2", by_pip) == digest("0.2", files)
    assert digest("0.2", files.replace("sha256=a", "sha256=b")) != digest("0.2", files)


def test_requirements_are_those_of_the_package_and_of_the_extras(tmp_path) -> None:
    subject = package(tmp_path, "0.1", {})

    base = ["numpy>=1.26", 'tomli>=2; python_version < "3.11"']
    assert wanted_requirements(subject, []) == base
    assert wanted_requirements(subject, ["parquet"]) == [*base, "pyarrow<26,>=15"]
    assert wanted_requirements(subject, ["test"]) == [*base, "pytest>=8"]
    with pytest.raises(ConfigError, match=r"--with parkett: .*did you mean 'parquet'"):
        wanted_requirements(subject, ["parkett"])


def test_constraints_are_those_that_the_project_publishes() -> None:
    lines = (ROOT / "constraints-numpy1.txt").read_text().splitlines()

    assert sorted(CONSTRAINTS) == sorted(x for x in lines if x and not x.startswith("#"))


@pytest.fixture
def found(tmp_path, monkeypatch):
    """A kit of a private environment that is made, with this copy of gepipe."""
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path))
    made = environment_for(Interpreter(Path("python3.11"), "3.11", None))
    made.packages.joinpath("pytriton/tritonserver/bin").mkdir(parents=True)
    program = made.packages / "pytriton/tritonserver/bin/tritonserver"
    program.touch(0o755)
    made.set_stamp({"gepipe": digest_of(distribution("gepipe"))})
    return of_environment(made)


def test_an_environment_with_another_copy_of_gepipe_gets_this_one(found, monkeypatch) -> None:
    asked, said = [], []
    monkeypatch.setattr(module, "install", lambda version, say: asked.append((version, say)))
    made = environment_for(Interpreter(found.python, "3.11", None))

    bring_up_to_date(found, said.append)
    assert (asked, said) == ([], [])

    made.set_stamp({"gepipe": "another"})
    bring_up_to_date(found, said.append)
    assert asked == [("3.11", said.append)]
    assert said == [f"{made.folder} has another copy of gepipe than this one, and gets this one"]

    bring_up_to_date(replace(found, python=Path("/usr/bin/python3")), said.append)
    assert len(asked) == 1  # somebody's own


def test_a_copy_that_cannot_be_made_is_told_and_the_other_one_stays(found, monkeypatch) -> None:
    def install(_version, **_options):
        raise GepipeError("tokenizers: cannot be fetched")

    monkeypatch.setattr(module, "install", install)
    made = environment_for(Interpreter(found.python, "3.11", None))
    made.set_stamp({"gepipe": "another"})
    said: list[str] = []

    bring_up_to_date(found, said.append)

    assert said[-1] == "it keeps the other copy: tokenizers: cannot be fetched"
