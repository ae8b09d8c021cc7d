"""What keeps models from being served, found before the server sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gepipe.errors import ConfigError
from gepipe.triton.problem import Describe

#: Tells which models must not be loaded, by name, and why.
FaultsIn = Callable[[], Mapping[str, str]]


def linter(repository: Path, link: Path, backends: Path, describe: Describe | None) -> FaultsIn:
    """Return what tells the faults of models, by name.

    Args:
        repository: The folder of models, as the user knows it.
        link: As the server sees it.
        backends: The server's backends.
        describe: Opens model files, for faults that only they tell.
    """

    def faults() -> Mapping[str, str]:
        from gepipe.triton.lint import lint

        found: dict[str, str] = {}
        for problem in lint(link, backends=backends, describe=describe).problems:
            if problem.level == "error":
                model = problem.path.relative_to(link).parts[0]
                text = str(problem).replace(str(link), str(repository))
                found[model] = f"{found[model]}\n{text}" if model in found else text
        return found

    return faults


def refuse(repository: Path, faults: Mapping[str, str]) -> None:
    """Do nothing where there are no faults.

    Raises:
        ConfigError: There are.
    """
    if faults:
        lines = "\n".join(faults.values())
        raise ConfigError(
            f"{repository}: the server would not serve this:\n{lines}\n"
            "`gepipe triton lint --fix` mends what it can; --no-lint serves it as it is"
        )
