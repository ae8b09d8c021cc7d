"""Whether a stage of tokens fits a model with several inputs, and a vector its outputs."""

from __future__ import annotations

import pytest

from gepipe.io.files import FileReader
from gepipe.io.memory import MemoryItems
from gepipe.io.textfiles import TextReader
from gepipe.pipeline import followers, neighbours
from gepipe.pipeline.plan import lengths_of
from gepipe.runtime.body import ModelInfo
from gepipe.spec import loads
from gepipe.tensors import TensorSpec

NAMES = ("input_ids", "attention_mask", "token_type_ids")
TOKENS = TensorSpec("tokens", "float32", (-1, 384))
SENTENCE = TensorSpec("sentence", "float32", (384,))


def pipeline(pre="tokenize: {tokenizer: t.json, max_length: 64}", post="vector"):
    return loads(
        f"""
stages:
  - {{name: preprocess, ops: [{{{pre}}}]}}
  - {{name: inference, model: m.onnx}}
  - {{name: postprocess, ops: [{post}]}}
"""
    )


def model(*shape, names=NAMES, dtype="int64", outputs=(SENTENCE,)):
    inputs = tuple(TensorSpec(name, dtype, shape) for name in names)
    return ModelInfo(inputs, tuple(outputs))


def mismatches(**info):
    shape = info.pop("shape", (-1,))
    return list(neighbours.input_mismatches(pipeline(), model(*shape, **info)))


@pytest.mark.parametrize("names", [NAMES, NAMES[:2], NAMES[:1]])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("shape", [(-1,), (64,)])
def test_the_inputs_that_the_model_has_are_filled(names, dtype, shape):
    assert mismatches(names=names, dtype=dtype, shape=shape) == []


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"shape": (128,)}, "takes int64 [128]; set max_length: 128"),
        ({"dtype": "float32"}, "takes float32 [any]; export the model with the length open"),
        ({"shape": (1, 64)}, "takes int64 [1, 64]; export"),
        ({"names": ("input_ids", "position_ids")}, "the model has the input 'position_ids'"),
    ],
)
def test_what_does_not_fit_says_what_to_do(info, message):
    found = mismatches(**info)

    assert found
    assert all(message in each for each in found)


@pytest.mark.parametrize(
    ("post", "outputs", "message"),
    [
        ("vector", (SENTENCE,), None),
        ("{vector: {pooling: mean}}", (TOKENS,), None),
        ("vector", (TOKENS,), "set pooling: mean"),
        ("{vector: {pooling: mean}}", (SENTENCE,), "leave pooling out"),
        ("vector", (TOKENS, SENTENCE), "say which one it works on"),
        ("{vector: sentence}", (TOKENS, SENTENCE), None),
        ("{vector: sentences}", (TOKENS, SENTENCE), "did you mean 'sentence'?"),
    ],
)
def test_a_vector_is_compared_with_the_outputs(post, outputs, message):
    info = model(-1, outputs=outputs)

    found = list(followers.output_mismatches(pipeline(post=post), info))

    assert [message in each for each in found] == [True] * (message is not None)


def test_texts_in_front_of_a_decoder_are_told():
    spec = pipeline(pre="decode_image: {}")

    (found,) = neighbours.undecoded_source(spec, TextReader())

    assert "the source gives texts" in found
    assert list(neighbours.undecoded_source(pipeline(), TextReader())) == []
    assert list(neighbours.undecoded_source(pipeline(), FileReader())) == []


def test_the_lengths_are_those_of_the_last_operator():
    lengths = lengths_of(pipeline())

    assert lengths is not None
    assert (lengths.mask, lengths.steps) == ("attention_mask", (16, 32, 64))
    assert lengths_of(pipeline(pre="tokenize: {tokenizer: t, lengths: []}")) is None
    assert lengths_of(pipeline(pre="decode_image: {}")) is None


def test_text_is_a_path_or_an_input():
    texts = MemoryItems(["a.txt", b"b"], texts=True)

    assert [texts.reader.read(entry.payload) for entry in texts.entries()] == ["a.txt", b"b"]
    assert next(MemoryItems(["a.txt"]).entries()).source == "a.txt"
