# ruff: noqa: E501 - messages stand in one piece
"""YAML as a tree: scalars, anchors, tags, syntax errors."""

import math

import pytest

from gepipe.errors import ConfigError
from gepipe.spec import tree
from gepipe.spec.place import Place, Problem


def plain(text: str):
    problems: list[Problem] = []
    value = tree.parse(text, "f.yaml", problems).plain("f.yaml")
    assert problems == []
    return value


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        tree.parse(text, "f.yaml", []).plain("f.yaml")
    return str(caught.value)


def problems_of(text: str) -> list[str]:
    problems: list[Problem] = []
    tree.parse(text, "f.yaml", problems)
    return [problem.line_of("f.yaml") for problem in problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e-3", 0.001),
        ("1.", 1.0),
        (".5", 0.5),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("'8'", "8"),
        ('"true"', "true"),
        ("!!str 8", "8"),
        ("! 8", "8"),
        ("!!int '8'", 8),
        ("!!float 8", 8.0),
        ("50ms", "50ms"),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(text, value) -> None:
    assert plain(f"a: {text}") == {"a": value}
    assert type(plain(f"a: {text}")["a"]) is type(value)


def test_not_a_number_is_a_number() -> None:
    assert math.isnan(plain("a: .nan")["a"])


def test_a_number_of_absurd_length_is_text() -> None:
    assert plain(f"a: {'1' * 5000}") == {"a": "1" * 5000}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert plain("on: 1\n5: 2\n") == {"on": 1, "5": 2}


def test_anchors_and_merge_keys_work() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [*a, {z: 4}]}\nd: *a\n"

    assert plain(text) == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": {"x": 1, "y": 2, "z": 4},
        "d": {"x": 1, "y": 2},
    }


def test_a_byte_order_mark_is_ignored() -> None:
    assert plain("\ufeffa: 1") == {"a": 1}


def test_places_are_lines() -> None:
    root = tree.parse("a: 1\n\nb:\n  c: 2\n", "f.yaml", [])

    assert root.keys == {"a": Place(line=1), "b": Place(line=3)}
    assert root.value["b"].value["c"].place == Place(line=4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml:1: the file is empty; expected a mapping with the key stages"),
        ("# only a comment", "f.yaml:1: the file is empty; expected a mapping with the key stages"),
        ("a:\n\tb: 1\n", "f.yaml:2: a tab stands where YAML wants spaces for indentation"),
        ("a: \x01\n", "f.yaml:1: not valid YAML: character 0x0001 is not allowed"),
        ("b: 1\na: \x01\n", "f.yaml:2: not valid YAML: character 0x0001 is not allowed"),
        ("---\na: 1\n---\nb: 2\n", "f.yaml:3: a second document begins; expected one in a file"),
        ("a: &x [*x]\n", "f.yaml:1: *x stands inside of &x, so it would never end"),
        ("a: 1\nb: *nope\n", "f.yaml:2: *nope has no &nope before it"),
        ("? [a]\n: 1\n", "f.yaml:1: a key is not plain text"),
        ("a: {<<: 3}\n", "f.yaml:1: << must name a mapping, or a list of mappings"),
        ("a: " + "[" * 70 + "]" * 70, "f.yaml:1: nested more than 64 levels deep"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text, message) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("a: 1\n b: 2\n", "f.yaml:2: not valid YAML: mapping values are not allowed"),
        ("a: b: c\n", "f.yaml:1: not valid YAML: mapping values are not allowed"),
        ("stages: [{name: a]\n", "f.yaml:1: not valid YAML: while parsing a flow mapping"),
        ('a: "\\q"\n', "f.yaml:1: not valid YAML: "),
    ],
)
def test_a_syntax_error_has_its_line(text, beginning) -> None:
    assert refusal(text).startswith(beginning)


def test_the_python_parser_serves_where_libyaml_is_absent(monkeypatch) -> None:
    monkeypatch.delattr("yaml.CSafeLoader", raising=False)

    assert plain("a: &a [1, x]\nb: *a\nc: 'on'\n") == {"a": [1, "x"], "b": [1, "x"], "c": "on"}
    assert refusal("a:\n\tb: 1\n") == (
        "f.yaml:2: a tab stands where YAML wants spaces for indentation"
    )


def test_aliases_cannot_blow_up_the_file() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 8)]

    assert refusal("\n".join(lines)) == (
        "f.yaml: aliases blow the file up to more than 100000 values"
    )


def test_tags_and_double_keys_are_problems_but_the_rest_is_read() -> None:
    text = "a: !!python/object/apply:os.system [ls]\nb: !mine 3\nc: 1\nc: 2\nd: !!int x\n"

    assert problems_of(text) == [
        "f.yaml:1: the tag !!python/object/apply:os.system is refused: a pipeline file holds plain data",
        "f.yaml:2: the tag !mine is refused: a pipeline file holds plain data",
        "f.yaml:4: c: the key is written twice, first on line 3",
        "f.yaml:5: 'x' is not what its tag !!int says",
    ]
