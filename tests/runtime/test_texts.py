"""Texts through a whole pipeline, with a model that gives a vector a token for any length."""

from __future__ import annotations

import random

import numpy as np
import pytest

import gepipe
from gepipe.pipeline.check import check

WORDS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", *"abcdefgh"]
PIPELINE = """
pipeline:
  source: {{text: {folder}/texts.txt}}
  stages:
    - name: preprocess
      batch_size: 4
      ops:
        - tokenize: {{tokenizer: {folder}/tokenizer.json, max_length: 32, lengths: [4, 8, 16]}}
    - {{name: inference, model: {folder}/model.onnx}}
    - name: postprocess
      ops: [{post}]
  sink: {{npy: {{path: {folder}/out.npy, tensor: vector}}}}
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a tokenizer of letters, a model, and 60 texts of 0 to 40 words."""
    onnx = pytest.importorskip("onnx")
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'text'")
    from onnx import TensorProto, helper
    from tokenizers import models, pre_tokenizers, processors

    numbers = {word: number for number, word in enumerate(WORDS)}
    made = tokenizers.Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    made.save(str(tmp_path / "tokenizer.json"))

    weights = np.random.default_rng(0).standard_normal((len(WORDS), 5)).astype(np.float32)
    shape = ["N", "L"]
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["weights", "input_ids"], ["gathered"]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
            helper.make_node("Mul", ["gathered", "column"], ["hidden"]),
        ],
        "letters",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name in ("attention_mask", "input_ids")
        ],
        [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [*shape, 5])],
        [
            onnx.numpy_helper.from_array(weights, "weights"),
            onnx.numpy_helper.from_array(np.array([-1]), "last"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())

    chance = random.Random(0)
    texts = [" ".join(chance.choices("abcdefgh", k=chance.randint(1, 40))) for _ in range(60)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    np.save(tmp_path / "weights.npy", weights)
    return tmp_path


def written(folder, pooling="mean", post="vector"):
    if post == "vector":
        post = f"{{vector: {{pooling: {pooling}, facts: [tokens, truncated]}}}}"
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(folder=folder, post=post))
    return path


def expected(folder, pooling):
    """Compute each text's vector from the words alone."""
    weights = np.load(folder / "weights.npy")
    for text in (folder / "texts.txt").read_text().splitlines():
        ids = [1, *[WORDS.index(word) for word in text.split()][:30], 2]
        tokens = weights[ids]
        yield {"mean": tokens.mean(axis=0), "last": tokens[-1], "first": tokens[0]}[pooling]


@pytest.mark.parametrize("pooling", ["mean", "last", "first"])
def test_every_text_gets_its_vector_whatever_its_batch(folder, pooling):
    path = written(folder, pooling)

    assert check(path).errors == []
    gepipe.Pipeline.from_yaml(path).job().run()

    vectors = np.load(folder / "out.npy")
    np.testing.assert_allclose(vectors, list(expected(folder, pooling)), atol=1e-6)


def test_the_tokens_that_were_cut_off_are_counted(folder):
    with gepipe.Pipeline.from_yaml(written(folder)) as pipeline:
        results = [result.value for result in pipeline.run(["a " * 40, "a b"])]

    assert [(result["tokens"], result["truncated"]) for result in results] == [(32, 10), (4, 0)]


def test_outputs_of_any_length_are_padded_with_zeros(folder):
    with gepipe.Pipeline.from_yaml(written(folder, post="identity")) as pipeline:
        values = [result.value["hidden"] for result in pipeline.run(["a " * 30, *["a"] * 7])]

    assert all(value.shape == (32, 5) for value in values)
    assert all((value[3:] == 0).all() and (value[:3] != 0).any() for value in values[1:])
