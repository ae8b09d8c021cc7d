"""A pipeline file that needs nothing outside its own folder: what an exported model is made of.

Files that the pipeline names (labels, user code with the modules beside it) lie in `resources`,
those of another folder in `resources2`, and so on, so that none can take another's place.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from gepipe.errors import ExportError
from gepipe.ops.user import Python
from gepipe.spec import PipelineSpec, load
from gepipe.spec.chain import Stage
from gepipe.spec.dump import dumps

#: The pipeline file of a version folder.
FILE_NAME: Final = "pipeline.yaml"
_USER_FILE: Final = re.compile(r"(?P<path>[^:]*\.py)(?P<rest>:\w+)")
T = TypeVar("T")

#: Path within a folder, with `/`, to the content or to the file that is copied.
Files: TypeAlias = "dict[str, bytes | Path]"


@dataclasses.dataclass(frozen=True, slots=True)
class Bundle:
    """A pipeline with its files.

    Attributes:
        files: The pipeline file and what it names.
        modules: Modules and packages that the pipeline imports: the server's Python must have them.
    """

    files: Files
    modules: tuple[str, ...]


def make_bundle(spec: PipelineSpec, models: Mapping[str, str] | None = None) -> Bundle:
    """Return a pipeline without source and sink, as files.

    Args:
        spec: The pipeline.
        models: Path of each model file below the folder of the pipeline file, by the name of the
            model's stage; others lie elsewhere.

    Raises:
        ExportError: A file is missing, or an operator exists in this process only.
    """
    files: Files = {}
    modules: list[str] = []
    folders: dict[Path, str] = {}

    def kept(path: Path) -> str:
        folder = path.absolute().parent
        number = len(folders) + 1
        place = folders.setdefault(folder, f"resources{number if number > 1 else ''}")
        name = f"{place}/{_plain_name(path)}"
        if not path.is_file():
            raise ExportError(f"{path}: no such file; the pipeline names it")
        files[name] = path
        if path.suffix == ".py":
            files.update({f"{place}/{below}": found for below, found in _beside(path)})
        return name

    stages: list[Stage] = []
    for stage in spec.stages:
        if stage.role == "infer":
            model = (models or {}).get(stage.name)
            stages.append(stage.model_copy(update={"model": model and Path(model)}))
            continue
        for op in stage.ops:
            modules += _modules_of(op, stage.name)
        ops = tuple(_with_paths(op, kept) for op in stage.ops)
        stages.append(stage.model_copy(update={"ops": ops}))
    bare = spec.model_copy(update={"stages": tuple(stages), "source": None, "sink": None})
    files[FILE_NAME] = dumps(bare).encode()
    return Bundle(files, tuple(sorted(set(modules))))


def load_bundle(folder: Path) -> PipelineSpec:
    """Return the pipeline of a version folder; its paths lead into that folder, and nowhere else.

    Raises:
        ConfigError: It cannot be read.
    """
    folder = folder.absolute()
    spec = load(folder / FILE_NAME)

    def found(path: Path) -> str:
        return str(path if path.is_absolute() else folder / path)

    stages: list[Stage] = []
    for stage in spec.stages:
        if stage.role == "infer":
            model = stage.model
            changed: dict[str, Any] = {"model": model and Path(found(model))}
        else:
            changed = {"ops": tuple(_with_paths(op, found) for op in stage.ops)}
        stages.append(stage.model_copy(update=changed))
    return spec.model_copy(update={"stages": tuple(stages)})


def _plain_name(path: Path) -> str:
    """Return a file's name, or one in ASCII: the server's processes open no other."""
    if path.name.isascii():
        return path.name
    suffix = path.suffix if path.suffix.isascii() else ""
    return f"file-{sha256(path.name.encode()).hexdigest()[:8]}{suffix}"


def _with_paths(part: T, change: Callable[[Path], str]) -> T:
    """Return an operator with every path of it, `file.py:function` included, changed."""
    changed = {}
    for field in dataclasses.fields(part):  # type: ignore[arg-type]
        old = getattr(part, field.name)
        new = _changed(old, change)
        if field.init and new != old:
            changed[field.name] = new
    return dataclasses.replace(part, **changed) if changed else part  # type: ignore[type-var]


def _changed(value: Any, change: Callable[[Path], str]) -> Any:
    if isinstance(value, Path):
        return Path(change(value))
    if isinstance(value, str) and (found := _USER_FILE.fullmatch(value)):
        return change(Path(found["path"])) + found["rest"]
    if isinstance(value, tuple):
        return tuple(_changed(item, change) for item in value)
    return value


def _modules_of(op: Any, stage: str) -> Iterator[str]:
    """Yield what the server's Python must be able to import for an operator."""
    home = type(op).__module__.partition(".")[0]
    if home == "__main__":
        raise ExportError(f"{stage}: {op.title} is defined in a script; put it into a module")
    if home != "gepipe":
        yield home
    if not isinstance(op, Python):
        return
    if not isinstance(op.function, str):
        raise ExportError(
            f"{stage}: {op.title} is a function of this process; name it as `python: "
            "module:function` or `python: ./file.py:function`"
        )
    if not _USER_FILE.fullmatch(op.function):
        yield op.function.rpartition(":")[0].partition(".")[0]


def _beside(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the modules and packages beside a Python file that it imports, and what these do."""
    waiting, seen = [path], {path}
    while waiting:
        for name in _imports(waiting.pop()):
            module, package = path.parent / f"{name}.py", path.parent / name
            found = [module] if module.is_file() else sorted(package.rglob("*.py"))
            for each in found:
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
                    yield each.relative_to(path.parent).as_posix(), each


def _imports(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise ExportError(f"{path}: is no Python file: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
