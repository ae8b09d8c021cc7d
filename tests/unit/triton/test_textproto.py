# ruff: noqa: E501 - tables of texts
from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc.model_config_pb2 import ModelConfig

from gepipe.triton.edit import Draft, Edit
from gepipe.triton.placing import appended, removal
from gepipe.triton.schema import check, descriptor
from gepipe.triton.textnodes import Message, Scalar
from gepipe.triton.textproto import parse

NOISE = st.text(
    alphabet=st.one_of(st.sampled_from(list("{}[]<>:,;#\"'\\\n\t -+.=_aAeEfxX019\ufeff")), st.characters()),
    max_size=80,
)  # fmt: skip
PIECES = st.lists(
    st.sampled_from(
        ["name", "input", ":", "{", "}", "[", "]", ",", ";", '"a"', "'b'", "-", "1", "4.5", "# c\n", "\n", " ", "<", ">"]
    ),
    max_size=40,
).map(" ".join)  # fmt: skip
NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=8)


@given(st.one_of(NOISE, PIECES))
def test_reading_and_writing_gives_the_same_text(text: str) -> None:
    assert parse(text).write() == text


@given(st.one_of(NOISE, PIECES))
def test_every_part_stands_where_it_says(text: str) -> None:
    def look(message: Message, start: int, end: int) -> None:
        for field in message.fields:
            assert start <= field.start < field.name_end <= field.end <= field.separator_end <= end
            assert text[field.start : field.name_end].strip("\"'") == field.name
            for value in field.values:
                assert field.name_end <= value.start < value.end <= field.end
                if isinstance(value, Message):
                    look(value, value.start, value.end)

    look(parse(text).root, 0, len(text))


@given(st.one_of(NOISE, PIECES))
def test_repairs_come_to_an_end(text: str) -> None:
    draft = Draft(text)
    for _ in range(len(text) * 2 + 2):
        fault = next((fault for fault in parse(draft.text).faults if fault.edit), None)
        if fault is None or fault.edit is None:
            return
        draft.apply([fault.edit])
    raise AssertionError(draft.text)


def _configs() -> st.SearchStrategy[Any]:
    tensor = st.builds(
        lambda name, dtype, dims: {"name": name, "data_type": dtype, "dims": dims},
        NAMES, st.integers(0, 14), st.lists(st.integers(-1, 1 << 40), max_size=4),
    )  # fmt: skip

    def build(
        name: str, size: int, inputs: list[Any], keys: dict[str, str], wait: int
    ) -> ModelConfig:
        config = ModelConfig(name=name, max_batch_size=size, input=inputs)
        for key, value in keys.items():
            config.parameters[key].string_value = value
        config.dynamic_batching.max_queue_delay_microseconds = wait
        config.dynamic_batching.preferred_batch_size.extend([1, 2, 4])
        config.model_transaction_policy.decoupled = bool(wait % 2)
        return config

    return st.builds(build, NAMES, st.integers(-(1 << 31), (1 << 31) - 1), st.lists(tensor, max_size=3),
                     st.dictionaries(NAMES, NAMES, max_size=3), st.integers(0, (1 << 64) - 1))  # fmt: skip


@given(
    _configs(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([" ", "\n", " # note\n", "\t\n\n"]),
)
def test_reads_what_protobuf_writes(
    config: ModelConfig, one_line: bool, short: bool, angle: bool, space: str
) -> None:
    text = text_format.MessageToString(
        config, as_one_line=one_line, use_short_repeated_primitives=short,
        pointy_brackets=angle, as_utf8=True,
    )  # fmt: skip
    if not one_line:
        text = text.replace("\n", space if "\n" in space else "\n")
    document = parse(text)

    assert document.faults == ()
    assert list(check(document.root, descriptor())) == []
    assert document.root.text("name") == config.name
    assert document.root.integer("max_batch_size") == config.max_batch_size
    read = [
        (m.text("name"), [d.integer for d in m.scalars("dims")]) for m in document.root.messages("input")
    ]  # fmt: skip
    assert read == [(each.name, list(each.dims)) for each in config.input]
    entries = document.root.messages("parameters")
    values = {e.text("key"): v.text("string_value") for e in entries if (v := e.message("value"))}
    assert values == {key: value.string_value for key, value in config.parameters.items()}


@given(st.one_of(NOISE, PIECES))
def test_accepts_nothing_that_protobuf_refuses(text: str) -> None:
    document = parse(text)
    if document.faults or list(check(document.root, descriptor())):
        return
    text_format.Parse(text, ModelConfig())


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ('name: "a"\ninput [ { name: "x" }, ]', 2, 22, "comma before `]`"),
        ("input [ { name: 'x' ]", 1, 21, "expected `}` before `]`"),
        ('input {\n  name: "x"\n', 1, 7, "`{` is never closed; expected `}`"),
        ('input [ { name: "x" }\noutput { }', 1, 7, "`[` is never closed"),
        ('"name": "x"', 1, 1, "the name of a field stands in quotes; expected name"),
        ('name = "x"', 1, 6, "expected `:`, got `=`"),
        ('name "x"', 1, 6, 'name: expected `:`, got "x"'),
        ("name:", 1, 6, "name: expected a value, got the end of the file"),
        ('name: "x\n', 1, 7, "this string has no end"),
        ("a: 'b' '\\q'", 1, 8, "the string has the escape \\q"),
        ("}", 1, 1, "expected a field's name, got `}`"),
        ("dims: [1 2]", 1, 10, "expected `,` between the parts of a list"),
        ("dims: [[1]]", 1, 8, "dims: expected a value or `]`, got `[`"),
        ("[a.b] { }", 1, 1, "expected a field's name, got `[`"),
        ("a {" * 80, 1, 195, "messages nest more than 64 deep"),
    ],
)
def test_says_where_the_text_is_wrong(text: str, line: int, column: int, problem: str) -> None:
    found = [(*Draft(text).place(fault.offset), fault.text) for fault in parse(text).faults]

    assert any(found_line == line and found_column == column and problem in said
               for found_line, found_column, said in found), found  # fmt: skip


def test_values() -> None:
    root = parse("a: 'it' \"s\\n\\x41\\101\" b: -0x1F c: 017 d: 1.5 e: TRUE f: [] g < h: 1 >").root

    assert root.text("a") == "its\nAA"
    assert [value.integer if (value := root.scalar(name)) else None for name in "bcde"] == [
        -31, 15, None, None,
    ]  # fmt: skip
    assert root.named("f")[0].values == []
    inner = root.message("g")
    assert inner is not None
    assert inner.integer("h") == 1
    assert isinstance(root.scalar("e"), Scalar)


def test_changes_know_where_they_came_from() -> None:
    draft = Draft("a: 1\nb: 2\nc: 3\n")
    draft.apply([Edit(0, 5, ""), Edit(8, 9, "22222")])

    assert draft.text == "b: 22222\nc: 3\n"
    assert draft.place(draft.text.index("b")) == (2, 1)
    assert draft.place(draft.text.index("c")) == (3, 1)
    assert draft.place(len(draft.text)) == (4, 1)


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("a: 1\nb: 2\nc: 3\n", "a: 1\nc: 3\n"),
        ("a: 1\n  b: 2  # why\nc: 3\n", "a: 1\n  # why\nc: 3\n"),
        ("a: 1, b: 2, c: 3", "a: 1, c: 3"),
        ("x { a: 1 b: 2 }", "x { a: 1 b: 2 }"),
        ("b: 2", ""),
        ("a: 1 b: 2\n", "a: 1\n"),
    ],
)
def test_a_field_leaves_no_trace(text: str, without: str) -> None:
    draft = Draft(text)
    draft.apply([removal(text, field) for field in parse(text).root.named("b")])

    assert draft.text == without


@pytest.mark.parametrize(
    ("text", "longer"),
    [
        ("a: 1\n", "a: 1\nz: 9\n"),
        ("a: 1 # why\nb: 2 # and\n# end\n", "a: 1 # why\nb: 2 # and\nz: 9\n# end\n"),
        ("a: 1", "a: 1\nz: 9"),
        ("# only\n", "# only\nz: 9\n"),
    ],
)
def test_a_line_is_put_behind_the_last_field(text: str, longer: str) -> None:
    draft = Draft(text)
    draft.apply([appended(text, parse(text).root, "z: 9")])

    assert draft.text == longer
