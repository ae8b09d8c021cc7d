"""Makes a private environment for Triton: `gepipe triton install`."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from gepipe.errors import ConfigError, GepipeError, InternalError
from gepipe.plugins import did_you_mean
from gepipe.triton import interpreter, kit
from gepipe.triton.environment import SERVER, Environment, digest_of, environment_for
from gepipe.triton.interpreter import Interpreter
from gepipe.triton.preflight import check_imports, check_stub

#: What keeps NumPy below 2, which stubs need; the same as in constraints-numpy1.txt.
CONSTRAINTS: Final = ("numpy<2", "opencv-python-headless<4.12", "pyarrow<26")
_OFFLINE: Final = (
    "NewConnectionError",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Could not find a version",
    "No matching distribution",
)
_SHOWN_LINES: Final = 12
_LONGEST_S: Final = 1800


def install(
    python: str | None = None,
    *,
    extras: Sequence[str] = (),
    requirements: Sequence[Path] = (),
    say: Callable[[str], None] = lambda _: None,
) -> kit.Kit:
    """Make the environment, or bring it up to date; what is there already is not fetched again.

    Args:
        python: Path, command or version of the Python for it; see `interpreter.find`.
        extras: Extras of gepipe to install there too.
        requirements: Files that list what the user's operators need.
        say: Told what is being done.

    Raises:
        ConfigError: No Python for it, an unknown extra, or a file that is missing.
        GepipeError: Something cannot be fetched or installed.
    """
    package = _own_package()
    wanted = wanted_requirements(package, extras)
    listed = {f"{path.resolve()}#{_digest(path)}": path for path in requirements}
    made = environment_for(interpreter.find(python))
    with _locked(made, say):
        stamp = made.stamp()
        if stamp and not _runs(made):
            say(f"{made.folder} is damaged, and is made anew")
            stamp = {}
        done = set(stamp.get("requirements", ()))
        if not stamp:
            _create(made, say)
        if SERVER not in done:
            say(f"fetching Triton: {SERVER}")
            _pip(made, ["--no-deps", SERVER])
        if missing := [each for each in wanted if each not in done]:
            say(f"installing what gepipe needs under NumPy 1 into {made.folder}")
            _pip(made, missing)
        for mark, path in listed.items():
            if mark not in done:
                say(f"installing what {path} lists")
                _pip(made, ["-r", str(path)])
        if stamp.get("gepipe") != digest_of(package):
            copy_package(package, made.packages)
        link_library(made)
        found = kit.of_environment(made)
        _prove(found)
        made.set_stamp(
            {
                "gepipe": digest_of(package),
                "requirements": sorted({*done, SERVER, *wanted, *listed}),
            }
        )
    return found


def bring_up_to_date(found: kit.Kit, say: Callable[[str], None]) -> None:
    """Give a private environment this copy of gepipe, if it has another, such as an older one.

    Args:
        found: What a server is to be started from; left alone where it is not ours.
        say: Told what is being done, and if that fails: what is there may do all the same.
    """
    try:
        package = _own_package()
    except ConfigError:  # nothing to copy
        return
    version = found.python_version
    made = environment_for(Interpreter(found.python, version, None))
    stamp = made.stamp()
    if made.python != found.python or not stamp or stamp.get("gepipe") == digest_of(package):
        return
    say(f"{made.folder} has another copy of gepipe than this one, and gets this one")
    try:
        install(version, say=say)
    except GepipeError as error:
        say(f"it keeps the other copy: {error}")


def _own_package() -> Distribution:
    try:
        return distribution("gepipe")
    except PackageNotFoundError:
        raise ConfigError(
            "gepipe runs from a folder that is not installed; expected an installation, such as "
            "`pip install -e .`, to copy into Triton's environment"
        ) from None


def wanted_requirements(package: Distribution, extras: Sequence[str]) -> list[str]:
    """Return what a package needs, with some of its extras.

    Raises:
        ConfigError: There is no such extra.
    """
    known = package.metadata.get_all("Provides-Extra") or []
    for extra in extras:
        if extra not in known:
            raise ConfigError(
                f"--with {extra}: gepipe has no such extra; {did_you_mean(extra, known)}"
            )
    found: list[str] = []
    for line in package.requires or ():
        requirement, _, condition = line.partition(";")
        if "extra ==" not in condition:
            found.append(line)
        elif any(
            condition.strip() == f'extra == "{e}"'.replace('"', q) for e in extras for q in "'\""
        ):
            found.append(requirement.strip())
    return found


def copy_package(package: Distribution, packages: Path) -> None:
    """Copy an installed package by its record, an editable one as the link that it is.

    Args:
        package: What to copy.
        packages: The site-packages folder to copy it into; an older copy there is replaced.
    """
    name = package.metadata["Name"]
    for old in (packages / name, *packages.glob(f"{name}-*.dist-info")):
        shutil.rmtree(old, ignore_errors=True)
    for file in package.files or ():
        if ".." in file.parts or file.suffix == ".pyc":  # scripts, and what Python makes itself
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(file.locate()), target)


def link_library(made: Environment) -> None:
    """Link libpython alone into a folder, so that nothing else of its folder is taken instead."""
    library = made.interpreter.library
    made.libraries.mkdir(exist_ok=True)
    if library is not None:
        link = made.libraries / library.name
        link.unlink(missing_ok=True)
        link.symlink_to(library)


@contextmanager
def _locked(made: Environment, say: Callable[[str], None]) -> Iterator[None]:
    try:
        made.folder.parent.mkdir(parents=True, exist_ok=True)
        file = (made.folder.parent / f"{made.folder.name}.lock").open("w")
    except OSError as error:
        raise ConfigError(
            f"Triton cannot be installed in {made.folder.parent}: {error.strerror}; set "
            "GEPIPE_CACHE to a folder that can be written"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another process installs Triton right now; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _create(made: Environment, say: Callable[[str], None]) -> None:
    say(f"making an environment for Python {made.interpreter.version} in {made.folder}")
    shutil.rmtree(made.folder, ignore_errors=True)
    base = made.interpreter.path
    done = _run([str(base), "-m", "venv", str(made.folder)])
    if done.returncode:
        raise GepipeError(
            f"{base}: it cannot make virtual environments: {_last_of(done.stdout)}; on Debian and "
            f"Ubuntu: apt-get install python{made.interpreter.version}-venv; or name another "
            "Python with --python"
        )


def _pip(made: Environment, arguments: Sequence[str]) -> None:
    constraints = made.folder / "constraints.txt"
    constraints.write_text("\n".join(CONSTRAINTS) + "\n")
    fixed = ["install", "--quiet", "--disable-pip-version-check", "--no-input", "--retries", "2"]
    done = _run(
        [str(made.python), "-m", "pip", *fixed, "--constraint", str(constraints), *arguments]
    )
    if not done.returncode:
        return
    what = " ".join(word for word in arguments if not word.startswith("-"))
    if any(sign in done.stdout for sign in _OFFLINE):
        raise GepipeError(
            f"{what}: cannot be fetched: {_last_of(done.stdout)}; expected a package index that "
            "pip reaches; PIP_INDEX_URL or PIP_FIND_LINKS names another one, or a folder of wheels"
        )
    lines = done.stdout.strip().splitlines()[-_SHOWN_LINES:]
    raise GepipeError(f"{what}: pip could not install it:\n" + "\n".join(lines))


def _runs(made: Environment) -> bool:
    try:
        _prove(kit.of_environment(made))
    except GepipeError:
        return False
    return True


def _prove(found: kit.Kit) -> None:
    """Start what a server would start."""
    check_stub(found)
    check_imports(found)


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - Python and pip, with what the user asked for
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GepipeError(f"{command[0]}: no end after {_LONGEST_S} s") from None
    except OSError as error:
        raise InternalError(f"{command[0]}: {error}") from error


def _last_of(output: str) -> str:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it says nothing"])[-1].removeprefix("ERROR:").strip()


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ConfigError(
            f"{path}: {(error.strerror or '').lower()}; expected a file of requirements"
        ) from error
