from __future__ import annotations

import re
from pathlib import Path

import pytest

from gepipe.cli.triton_linting import describe
from gepipe.triton.lint import Report, lint
from gepipe.triton.mending import mend
from tests.unit.triton.lint_table import CARDS, ROWS, Row, base_files, files_of

ALL = (*ROWS, *CARDS)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


EACH = pytest.mark.parametrize("row", ALL, ids=[row.name for row in ALL])


def look(folder: Path) -> Report:
    return lint(folder, describe=describe)


@pytest.fixture
def repository(tmp_path: Path, row: Row) -> Path:
    files = {f"{row.name}/{name}": text for name, text in files_of(row).items()}
    base = base_files() if row.name.startswith(("e-", "version-none-e")) else {}
    return write(tmp_path / "models", base | files)


def test_sound_models_raise_no_alarm(tmp_path: Path) -> None:
    assert look(write(tmp_path, base_files())).problems == ()


@EACH
def test_finds(repository: Path, row: Row) -> None:
    found = look(repository).problems

    place = repository / row.name / row.place
    hits = [str(each) for each in found if each.level == row.level]
    assert any(hit.startswith(f"{place}: ") and row.text in hit for hit in hits), found
    assert all(each.path.is_relative_to(repository / row.name) for each in found), found
    for problem in found:
        assert re.search(r"expected|did you mean|known: ", problem.text), problem
        assert not problem.text.endswith(".")


@EACH
def test_fix_leaves_nothing_that_it_can_mend(repository: Path, row: Row) -> None:
    report = look(repository)
    mend(report)
    again = look(repository)

    assert again.repairable == ()
    if row.is_fixable:
        assert [str(problem) for problem in again.remaining if problem.level == "error"] == []
    assert {p.text for p in again.remaining} == {p.text for p in report.remaining}
    if not row.is_fixable and row.level == "error":
        assert any(row.text in str(problem) for problem in again.remaining)
