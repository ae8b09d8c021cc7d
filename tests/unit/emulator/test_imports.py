"""The emulator's modules import each other in one direction, for their types too."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import gepipe.emulator

FOLDER = Path(gepipe.emulator.__file__).parent


def imports_of(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    modules = (node.module or "" for node in nodes if isinstance(node, ast.ImportFrom))
    return {name.rpartition(".")[2] for name in modules if name.startswith("gepipe.emulator.")}


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {path.stem: imports_of(path) for path in FOLDER.glob("*.py")}
    order = list(TopologicalSorter(graph).static_order())  # CycleError names the circle

    assert len(order) > 40
    assert order.index("ground") < order.index("stream") < order.index("machine")
    assert order.index("machine") < order.index("execute") < order.index("surface")
