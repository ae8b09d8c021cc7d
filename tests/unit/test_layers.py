from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gepipe

PACKAGE = Path(gepipe.__file__).parent
#: What each part may import of the others. An arrow of the design reads "is imported by".
BASE = {
    "errors",
    "tensors",
    "plugins",
    "machine",
    "docstrings",
    "bundle",
    "quantities",
    "regular",
    "unshaped",
}
MIDDLE = {"spec", "ops", "io"}
ALLOWED = {
    "errors": set(),
    "tensors": set(),
    "plugins": {"errors"},
    "machine": {"errors"},
    "docstrings": {"errors"},
    "regular": {"errors"},
    "quantities": {"errors"},
    "bundle": {"errors", "plugins"},
    "unshaped": {"errors", "tensors"},
    "ops": BASE | {"ops"},
    "io": BASE | {"io", "ops"},
    "spec": BASE | {"bundle", "spec", "ops", "io"},  # which pipelines are ready
    "engines": BASE | MIDDLE | {"engines"},
    "emulator": BASE | {"engines", "emulator"},  # the tables of codes
    "models": BASE | MIDDLE | {"models", "engines", "emulator"},
    "diagnosis": BASE | {"diagnosis", "models", "engines"},
    "runtime": BASE | {"runtime", "io"},
    "video": BASE | {"io", "ops", "runtime", "video"},
    "triton": BASE | MIDDLE | {"triton"},
    "pipeline": BASE | MIDDLE | {"engines", "runtime", "video", "models", "pipeline"},
    "serving": BASE | MIDDLE | {"engines", "runtime", "models", "pipeline", "triton", "serving"},
    "cli": BASE
    | MIDDLE
    | {
        "engines",
        "runtime",
        "models",
        "diagnosis",
        "triton",
        "emulator",
        "pipeline",
        "serving",
        "video",
        "cli",
    },
}
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def imported_by(path: Path) -> set[str]:
    """Return the parts of gepipe that a module imports, inside its functions too."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module]
            if node.module == "gepipe":
                names = [f"gepipe.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("gepipe.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_go_one_way_only(path) -> None:
    part = path.parts[0].removesuffix(".py")
    if part in {"__init__", "__main__", "_bundled"}:
        return

    assert part in ALLOWED, f"say in this test what {part} may import"
    assert imported_by(path) - {part} <= ALLOWED[part]


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"av", "cv2", "numpy", "onnxruntime", "acl", "PIL", "pyarrow"}


def test_importing_gepipe_loads_nothing_heavy() -> None:
    loaded = loaded_after("import gepipe")

    assert not loaded & (HEAVY | {"typer", "rich", "pydantic", "yaml", "multiprocess", "dill"})


def test_supervising_process_loads_no_library_of_the_workers() -> None:
    loaded = loaded_after(
        "import gepipe; gepipe.Pipeline; import gepipe.pipeline.job\n"
        "import gepipe.video.sink, gepipe.video.contact, gepipe.io.annotated, gepipe.ops.tracking"
    )

    assert not loaded & (HEAVY | {"supervision", "scipy"})


def test_worker_loads_neither_pydantic_nor_typer() -> None:
    loaded = loaded_after(
        "import gepipe.runtime.worker, gepipe.pipeline.bodies, gepipe.engines.onnx\n"
        "import gepipe.ops.decode, gepipe.ops.results, gepipe.io.files, gepipe.ops.user"
    )

    assert not loaded & {"pydantic", "typer", "rich", "yaml"}


def test_public_names_are_what_they_are() -> None:
    assert gepipe.__all__ == sorted(gepipe.__all__)
    assert {"Pipeline", "Result", "Failure", "Op", "TensorSpec", "GepipeError"} <= set(
        gepipe.__all__
    )
    for name in gepipe.__all__:
        assert getattr(gepipe, name).__name__ == name
    assert dir(gepipe) == gepipe.__all__
    with pytest.raises(AttributeError, match="Pipelin"):
        _ = gepipe.Pipelin
