"""The Dockerfiles as far as they can be looked at without Docker."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "docker" / "Dockerfile", ROOT / "docker" / "Dockerfile.ascend"]
KNOWN = {
    "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "SHELL",
    "USER", "WORKDIR",
}  # fmt: skip

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


def instructions(file: Path) -> list[tuple[str, str]]:
    """Return the instructions with their arguments, as Docker reads them."""
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n", "", "\n".join(lines))
    return [
        (word, rest)
        for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)
    ]


def of(file: Path, wanted: str) -> list[str]:
    return [rest for word, rest in instructions(file) if word == wanted]


def copied(file: Path) -> dict[str, str]:
    """Return where each source of a `COPY` comes to lie."""
    places: dict[str, str] = {}
    for rest in of(file, "COPY"):
        *sources, target = rest.split()
        for source in sources:
            places[source] = target.rstrip("/") + (f"/{source}" if target.endswith("/") else "")
    return places


@each_file
def test_every_instruction_is_known_and_the_image_comes_first(file: Path) -> None:
    words = [word for word, _ in instructions(file)]

    assert set(words) <= KNOWN
    assert next(word for word in words if word != "ARG") == "FROM"
    assert words.count("FROM") == 1
    assert words.count("CMD") == 1


@each_file
def test_what_is_copied_is_in_the_clone_and_not_ignored(file: Path) -> None:
    ignored = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]

    for source, place in copied(file).items():
        listed = subprocess.run(
            ["git", "ls-files", "--", source], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        assert listed, source
        assert not any(fnmatch.fnmatch(source, pattern) for pattern in ignored), source
        assert place.startswith("/")


@each_file
def test_the_wheel_needs_no_file_that_is_not_copied(file: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
        *wheel["only-include"],
    }

    places = copied(file)
    named = set(re.findall(r"/src/[\w.-]+", "\n".join(of(file, "RUN"))))

    assert needed <= set(places)
    assert {places[name] for name in needed} == {f"/src/{name}" for name in needed}
    assert named <= set(places.values())


@each_file
def test_steps_are_shell_and_the_extras_exist(file: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    shell = "bash" if of(file, "SHELL") else "sh"
    for step in of(file, "RUN"):
        subprocess.run([shell, "-n", "-c", step], check=True, timeout=120)

    (extras,) = re.findall(r"\.whl\)\[([\w,]+)\]", "\n".join(of(file, "RUN")))
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


@each_file
def test_commands_of_gepipe_exist(file: Path) -> None:
    import typer.main

    from gepipe.cli.app import application

    steps = [part for step in of(file, "RUN") for part in step.split("&&")]
    words = [shlex.split(part) for part in steps]
    words += [json.loads(rest) for rest in of(file, "CMD")]
    calls = [each[1:] for each in words if each[0] == "gepipe"]
    assert calls
    for call in calls:
        command = typer.main.get_command(application())
        while call and call[0] in getattr(command, "commands", {}):
            command = command.commands[call.pop(0)]
        assert not hasattr(command, "commands"), call
        command.make_parser(command.make_context("gepipe", [], resilient_parsing=True)).parse_args(
            args=call
        )


def test_the_entry_point_sets_cann_up_and_becomes_the_command(tmp_path: Path) -> None:
    (step,) = (step for step in of(FILES[1], "RUN") if "printf" in step)
    script, cann = tmp_path / "with-cann", tmp_path / "Ascend"
    (cann / "cann").mkdir(parents=True)
    (cann / "cann" / "set_env.sh").write_text("export ASCEND_HOME_PATH=here\n")
    step = step.replace("/usr/local/bin/with-cann", str(script))
    step = step.replace("/usr/local/Ascend", str(cann))
    subprocess.run(["bash", "-c", step], check=True, timeout=120)

    said = {
        before: subprocess.run(
            [script, "sh", "-c", 'echo "$ASCEND_HOME_PATH $LD_LIBRARY_PATH"; exit 3'],
            env={"PATH": "/usr/bin:/bin", **before_},
            capture_output=True, text=True, timeout=120, check=False,
        )
        for before, before_ in (("", {}), ("set", {"LD_LIBRARY_PATH": "/own"}))
    }  # fmt: skip

    driver = f"{cann}/driver/lib64"
    assert said[""].stdout == f"here {driver}/common:{driver}/driver\n"
    assert said["set"].stdout == f"here {driver}/common:{driver}/driver:/own\n"
    assert {done.returncode for done in said.values()} == {3}
