# ruff: noqa: E501 - messages stand in one piece
"""The reference pages are made of the same texts as the schema, and are current."""

from pathlib import Path

import pytest

from gepipe.spec.reference import reference, untranslated, value_words

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(("language", "page"), [("en", "yaml.md"), ("zh", "yaml.zh.md")])
def test_the_page_is_current(language, page) -> None:
    made = reference(language)

    assert (DOCS / page).read_text(encoding="utf-8") == made, (
        f"run: python -m gepipe.spec.reference {'--zh ' if language == 'zh' else ''}> docs/{page}"
    )


def test_no_key_lacks_a_translation_and_none_is_left_over() -> None:
    assert untranslated("zh") == []


def test_the_page_names_every_key_with_its_default() -> None:
    page = reference("en")

    assert "| `threads` | whole number, or `auto` | `auto` | CPU workers" in page
    assert "| `depth` | whole number | `2` | Slots" in page
    assert "| `timeout` | duration | `60s` | Limit for one item" in page
    assert "| `stages` | list of stages | required |" in page


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer"}, "integer"),
        ({"type": "string"}, "text"),
        ({"type": "string", "format": "path"}, "path"),
        ({"type": "boolean"}, "`true`, `false`"),
        ({"enum": ["a", "b"]}, "`a`, `b`"),
        ({"const": "a"}, "`a`"),
        ({"type": "array"}, "list"),
        ({"type": "array", "items": {"type": "number"}}, "list of number"),
        ({"type": "array", "prefixItems": [{"type": "integer"}] * 2}, "list of 2: integer, integer"),
        ({"anyOf": [{"type": "integer"}, {"const": "auto"}, {"type": "null"}]}, "integer or `auto`"),
        ({}, "any value"),
    ],
)  # fmt: skip
def test_schemas_are_told_in_words(schema, words) -> None:
    assert value_words(schema) == words
