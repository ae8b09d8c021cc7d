"""Tokens in front of a model, and vectors behind it."""

from __future__ import annotations

import json
import pickle
import sys

import numpy as np
import pytest

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.plan import plan_pre
from gepipe.ops.text import Tokenize, Vector
from gepipe.tensors import TensorSpec

WORDS = {"[PAD]": 3, "[CLS]": 1, "[SEP]": 2, "[UNK]": 0, "a": 4, "b": 5, "c": 6, "ü": 7}


@pytest.fixture
def tokenizer(tmp_path):
    """A tokenizer of a few words, whose file asks for padding and truncation of its own."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'text'")
    from tokenizers import models, pre_tokenizers, processors

    made = tokenizers.Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    made.enable_padding(pad_id=3, length=6)
    made.enable_truncation(4)
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def rows(length, dtype="int64", names=("input_ids", "attention_mask", "token_type_ids")):
    return {name: np.full(length, 99, dtype) for name in names}


@pytest.mark.parametrize("value", ["a b", b"a b", bytearray(b"a b"), memoryview(b"a b")])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_tokens_are_written_with_padding_behind(tokenizer, value, dtype):
    program = pickle.loads(pickle.dumps(plan_pre([Tokenize(tokenizer, max_length=8)])))
    program.setup()
    meta, made = {}, rows(8, dtype)

    program(value, meta, made)

    assert made["input_ids"].tolist() == [1, 4, 5, 2, 3, 3, 3, 3]
    assert made["attention_mask"].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert made["token_type_ids"].tolist() == [0] * 8
    assert meta == {"tokens": 4}


def test_only_the_inputs_that_the_model_has_are_written(tokenizer):
    made = rows(8, names=("attention_mask", "ids"))

    Tokenize(tokenizer, 8, inputs={"input_ids": "ids"}).write("c", {}, made)

    assert made["ids"].tolist() == [1, 6, 2, 3, 3, 3, 3, 3]
    assert list(made) == ["attention_mask", "ids"]


def test_what_is_too_long_is_cut_off_and_counted(tokenizer):
    meta: dict[str, int] = {}

    made = Tokenize(tokenizer, max_length=5)("a b c a b c a a", meta)

    assert made["input_ids"].tolist() == [1, 4, 5, 6, 2]
    assert meta == {"tokens": 5, "truncated": 5}


def test_an_empty_text_is_a_frame_only(tokenizer):
    assert Tokenize(tokenizer, 4)("", {})["input_ids"].tolist() == [1, 2, 3, 3]


@pytest.mark.parametrize("value", [b"\xff", np.zeros(3), {"text": "a"}, 5])
def test_what_is_no_text_is_set_aside(tokenizer, value):
    with pytest.raises(ItemError) as error:
        Tokenize(tokenizer, 8)(value, {})

    assert error.value.kind == "not_text"


@pytest.mark.parametrize(
    "made",
    [
        rows(8, "float32"),
        rows((2, 8)),
        rows(3),
        rows(8, names=("input_ids", "position_ids")),
    ],
)
def test_rows_of_another_kind_are_refused(tokenizer, made):
    with pytest.raises(ItemError) as error:
        Tokenize(tokenizer, 8).write("a b", {}, made)

    assert error.value.kind == "shape"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read .*no such file.*samples fetch"),
        (b"{}", "is no tokenizer.json that tokenizers"),
        (b"\xff", "is no tokenizer.json"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_told(tmp_path, content, message):
    pytest.importorskip("tokenizers")
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=message):
        Tokenize(path).setup()


def test_a_length_without_room_for_a_word_is_told(tokenizer):
    with pytest.raises(
        ConfigError, match=r"max_length is 2, but .* frames each text with 2 tokens"
    ):
        Tokenize(tokenizer, 2).setup()


def test_a_missing_library_is_told_with_the_command(tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)

    with pytest.raises(ConfigError, match=r"pip install 'gepipe\[text\]'"):
        Tokenize(tokenizer).setup()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_length": 0}, "at least 1"),
        ({"lengths": (16, 0)}, "at least 1"),
        ({"inputs": {"ids": "x"}}, "'ids' is not made"),
    ],
)
def test_wrong_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Tokenize("x", **arguments)


def test_the_steps_end_with_the_longest():
    assert Tokenize("x", 100, lengths=(64, 16, 128, 16)).steps == (16, 64, 100)
    assert Tokenize("x", 16).steps == (16,)


def test_a_program_says_what_it_makes_for_each_input(tokenizer):
    program = plan_pre([Tokenize(tokenizer, 8)])

    made = program.output_for(TensorSpec("input_ids", "int32", (-1,)))

    assert made == TensorSpec("input_ids", "int32", (8,))
    assert program.output_for(TensorSpec("input_ids", "float32", (-1,))).dtype == "int64"
    assert program.tensors == ("input_ids", "attention_mask", "token_type_ids")


TOKENS = np.array([[1, 2], [3, 6], [9, 9], [9, 9]], np.float32)


@pytest.mark.parametrize(
    ("pooling", "vector"),
    [("mean", [2, 4]), ("max", [3, 6]), ("first", [1, 2]), ("last", [3, 6])],
)
def test_pooling_leaves_padding_out(pooling, vector):
    record = Vector(pooling=pooling)({"hidden": TOKENS}, {"tokens": 2})

    assert record["vector"].tolist() == vector
    assert record["vector"].dtype == np.float32


def test_a_vector_is_a_copy_of_its_own():
    row = np.array([3, 4], np.float64)

    record = Vector()({"y": row}, {})
    row[:] = 0

    assert record["vector"].tolist() == [3, 4]
    assert record["vector"].dtype == np.float32


@pytest.mark.parametrize("row", [[3, 4], [[3], [4]], [[3, 4]]])
def test_a_vector_is_scaled_to_length_1(row):
    row = np.array(row, np.float16)

    assert Vector(normalize=True)({"y": row}, {})["vector"].tolist() == pytest.approx([0.6, 0.8])
    assert Vector(normalize=True)({"y": row * 0}, {})["vector"].tolist() == [0, 0]
    assert Vector(dtype="float16")({"y": row}, {})["vector"].dtype == np.float16


def test_facts_stand_beside_the_vector():
    record = Vector(facts=("tokens", "truncated"))({"y": np.zeros(2)}, {"tokens": 4, "height": 1})

    assert {key: record[key] for key in ("tokens", "truncated")} == {"tokens": 4, "truncated": 0}
    json.dumps({key: record[key] for key in record if key != "vector"})
    with pytest.raises(ValueError, match="name of the vector itself"):
        Vector(facts=("vector",))


@pytest.mark.parametrize(
    ("op", "error", "message"),
    [
        (Vector(), ItemError, "pooling: mean"),
        (Vector(pooling="mean"), ConfigError, "needs the number of tokens"),
        (Vector("x"), ConfigError, "no output 'x'"),
    ],
)
def test_what_is_no_vector_is_told(op, error, message):
    with pytest.raises(error, match=message):
        op({"y": TOKENS}, {})
    with pytest.raises(ItemError, match="leave pooling out"):
        Vector(pooling="first")({"y": TOKENS[0]}, {"tokens": 1})
