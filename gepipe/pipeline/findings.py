"""What a check of a pipeline comes to, and how a stage's operators are tried for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gepipe.errors import ConfigError, GepipeError, Interrupted
from gepipe.runtime.body import ModelInfo

if TYPE_CHECKING:
    from gepipe.ops.op import Op


@dataclass
class Preparation:
    """Sets a stage's operators up, as its workers will.

    Attributes:
        ops: The operators.
    """

    ops: Sequence[Op]

    def setup(self) -> None:
        """Set up every operator.

        Raises:
            ConfigError: Lists what is wrong with each, a line each.
        """
        problems = []
        for op in self.ops:
            try:
                op.setup()
            except GepipeError as error:
                problems.append(f"{op.title}: {error}")
            except BaseException as error:  # noqa: BLE001 - user code may raise anything
                problems.append(f"{op.title}: {type(error).__name__}: {error}")
        if problems:
            raise ConfigError("\n".join(problem.replace("\n", " ") for problem in problems))


@dataclass
class Findings:
    """What a check found.

    Attributes:
        errors: What would stop a run, or make every item fail.
        warnings: What is worth a second look.
        notes: What will be used: inputs, engine, model.
        input_count: Inputs of the source, where they can be counted.
        model: What the first model takes and makes, once it is open.
        models: The same for each model, by the name of its stage.
    """

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    input_count: int | None = None
    model: ModelInfo | None = None
    models: dict[str, ModelInfo] = field(default_factory=dict)

    def attempt(self, action: Callable[[], Any]) -> Any:
        """Return what `action` returns; if it fails, note why and return None."""
        try:
            return action()
        except Interrupted:
            raise
        except GepipeError as error:
            self.errors += [line for line in str(error).splitlines() if line not in self.errors]
            return None

    def add(self, other: Findings, about: str) -> None:
        """Take over what was found of one model of several.

        Args:
            other: The findings.
            about: The model's stage; notes say that they are about it.
        """
        self.errors += [error for error in other.errors if error not in self.errors]
        self.warnings += [warning for warning in other.warnings if warning not in self.warnings]
        self.notes += [f"{about}: {note}" for note in other.notes]
        self.models |= other.models
        self.model = self.model or other.model
