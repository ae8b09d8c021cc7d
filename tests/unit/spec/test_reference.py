# ruff: noqa: E501 - messages stand in one piece
"""The reference pages are made of the same texts as the schema, and are current."""

from pathlib import Path

import pytest

from gepipe.spec.chain import STAGES
from gepipe.spec.keys import KEYS, PROFILE_KEYS, STAGE_KEYS
from gepipe.spec.model import PipelineSpec
from gepipe.spec.profile import Profile
from gepipe.spec.reference import reference, texts, value_words

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(("language", "page"), [("en", "yaml.md"), ("zh", "yaml.zh.md")])
def test_the_page_is_current(language, page) -> None:
    made = reference(language)

    assert (DOCS / page).read_text(encoding="utf-8") == made, (
        f"run: python -m gepipe.spec.reference {'--zh ' if language == 'zh' else ''}> docs/{page}"
    )


def test_no_key_lacks_a_translation_and_none_is_left_over() -> None:
    sections = {"pipeline": PipelineSpec, **STAGES, "profile": Profile}
    tables = (KEYS, STAGE_KEYS, PROFILE_KEYS)
    words = {accepted.words for table in tables for accepted in table.values()}

    given = texts("zh")

    assert set(given["keys"]) == {
        f"{section}.{key}" for section, cls in sections.items() for key in cls.model_fields
    }
    assert set(given["words"]) == {each for each in words if each[0] != "`"}


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
