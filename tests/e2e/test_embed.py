"""The ready pipeline for texts: the published answers, from the command's job and from Python."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gepipe
from gepipe.errors import ConfigError
from gepipe.pipeline.check import check

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = ROOT / "pipelines/embed.yaml"
MODEL = ROOT / "samples/models/all_minilm_l6_v2.onnx"
TOKENIZER = ROOT / "samples/models/all_minilm_l6_v2.tokenizer.json"
SENTENCES = ROOT / "samples/media/texts/sentences.txt"
pytestmark = pytest.mark.skipif(
    not MODEL.exists(), reason="83 MB to download: run `gepipe samples fetch embed` first"
)

#: The first numbers that sentence-transformers gives for "This is an example sentence".
FIRST = [0.06766, 0.06350, 0.04871, 0.07930, 0.03745]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
    pytest.importorskip("tokenizers")
    monkeypatch.chdir(ROOT)


def job(tmp_path, *overrides, inputs=(), name="out.npy", resume=False, limit=None):
    """Run the pipeline into a file; return the vectors, their places, the failures, the notes."""
    output = tmp_path / name
    pipeline = gepipe.Pipeline.from_yaml(PIPELINE, overrides)
    report = pipeline.job(
        [str(path) for path in inputs], str(output), resume=resume, limit=limit
    ).run()
    index = output.with_name(output.stem + ".index.jsonl").read_text().splitlines()
    failures = [json.loads(line) for line in report.failures.read_text().splitlines()]
    return np.load(output), [json.loads(line)["source"] for line in index], failures, report.notes


def number_of(sentence: str) -> int:
    return SENTENCES.read_text().splitlines().index(sentence)


def test_the_vectors_are_the_published_ones(tmp_path):
    vectors, places, failures, _ = job(tmp_path)

    assert vectors.shape == (20, 384)
    assert vectors.dtype == np.float32
    assert not failures
    assert places == [f"samples/media/texts/sentences.txt:{line}" for line in range(1, 21)]
    np.testing.assert_allclose(vectors[0, :5], FIRST, atol=2e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    eating, bread, stocks = (
        vectors[number_of(sentence)]
        for sentence in (
            "A man is eating food.",
            "A man is eating a piece of bread.",
            "Stock markets fell sharply on Monday.",
        )
    )
    assert eating @ bread == pytest.approx(0.7553, abs=2e-4)
    assert eating @ stocks == pytest.approx(0.0046, abs=2e-4)


def test_what_means_the_same_lies_nearest(tmp_path):
    vectors, _, _, _ = job(tmp_path)
    cosines = vectors @ vectors.T - 2 * np.eye(len(vectors))

    for one, other in (
        ("The cat sits on the mat.", "A kitten is lying on a rug."),
        ("How do I reset my password?", "What must I do if I forgot my login?"),
        ("Share prices dropped at the start of the week.", "Stock markets fell sharply on Monday."),
    ):
        assert cosines[number_of(one)].argmax() == number_of(other)


def test_batches_buckets_and_single_runs_agree(tmp_path):
    vectors, *_ = job(tmp_path)
    single, *_ = job(tmp_path, "preprocess.batch_size=1")
    whole, *_ = job(tmp_path, "preprocess.ops.tokenize.lengths=[]", "preprocess.batch_size=7")

    np.testing.assert_allclose(single, vectors, atol=1e-6)
    np.testing.assert_allclose(whole, vectors, atol=1e-6)


def test_long_texts_are_cut_off_and_counted():
    tokenizers = pytest.importorskip("tokenizers")
    text = SENTENCES.read_text().splitlines()[-1]
    encoder = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    encoder.no_truncation()
    encoder.no_padding()
    ids = encoder.encode(text).ids
    with gepipe.Pipeline.from_yaml(PIPELINE, ["preprocess.ops.tokenize.max_length=16"]) as pipeline:
        results = [result.value for result in pipeline.run([text, "This is an example sentence"])]

    assert [result["tokens"] for result in results] == [16, 7]
    assert [result["truncated"] for result in results] == [len(ids) - 16, 0]
    np.testing.assert_allclose(results[1]["vector"][:5], FIRST, atol=2e-5)


def test_python_takes_texts_and_bytes(tmp_path):
    (tmp_path / "a.txt").write_text("This is an example sentence")
    texts = ["This is an example sentence", b"This is an example sentence", tmp_path / "a.txt"]

    with gepipe.Pipeline.from_yaml(PIPELINE) as pipeline:
        vectors = [result.value["vector"] for result in pipeline.run(texts)]

    for vector in vectors:
        np.testing.assert_allclose(vector[:5], FIRST, atol=2e-5)


def test_bad_rows_are_set_aside_with_their_line(tmp_path):
    rows = [
        b'{"title": "This is an example sentence"}',
        b'{"name": "no title"}',
        b"not json",
        b'{"title": "\xff"}',
        b"",
        b'{"title": "A man is eating food."}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\r\n".join(rows))
    text = PIPELINE.read_text().replace(
        "{text: samples/media/texts}", f"{{jsonl: {{paths: {tmp_path}, field: title}}}}"
    )
    (tmp_path / "pipeline.yaml").write_text(text)

    report = (
        gepipe.Pipeline.from_yaml(tmp_path / "pipeline.yaml").job(output=str(tmp_path / "o.jsonl"))
    ).run()

    done = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    failures = [json.loads(line) for line in report.failures.read_text().splitlines()]
    assert [(each["index"], each["source"].rpartition("/")[2]) for each in done] == [
        (0, "a.jsonl:1"),
        (4, "a.jsonl:6"),
    ]
    assert [(each["source"].rpartition("/")[2], each["kind"]) for each in failures] == [
        ("a.jsonl:2", "no_field"),
        ("a.jsonl:3", "bad_row"),
        ("a.jsonl:4", "not_text"),
    ]
    np.testing.assert_allclose(done[0]["result"]["vector"][:5], FIRST, atol=2e-5)


@pytest.mark.parametrize("ending", ["txt", "csv", "parquet"])
def test_every_source_gives_the_same_vectors(tmp_path, ending):
    sentences = SENTENCES.read_text().splitlines()[:4]
    path = tmp_path / f"a.{ending}"
    source = {"txt": "text: x", "csv": "csv: {paths: x}", "parquet": "parquet: {paths: x}"}[ending]
    if ending == "txt":
        path.write_text("\n".join(sentences))
    elif ending == "csv":
        path.write_text("id,text\n" + "\n".join(f'{n},"{s}"' for n, s in enumerate(sentences)))
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"text": sentences}), path)
    text = PIPELINE.read_text().replace("{text: samples/media/texts}", f"{{{source}}}")
    (tmp_path / "pipeline.yaml").write_text(text)

    spec = gepipe.Pipeline.from_yaml(tmp_path / "pipeline.yaml")
    spec.job([str(path)], str(tmp_path / "o.npy")).run()

    vectors, *_ = job(tmp_path, limit=4)
    np.testing.assert_allclose(np.load(tmp_path / "o.npy"), vectors, atol=1e-6)


def test_the_vectors_fill_a_parquet_column(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    pipeline = gepipe.Pipeline.from_yaml(PIPELINE)
    pipeline.job(output=str(tmp_path / "table.parquet")).run()

    table = pq.read_table(tmp_path / "table.parquet")
    vectors, *_ = job(tmp_path)

    assert table.schema.names == ["index", "source", "vector", "tokens", "truncated"]
    assert table.schema.field("vector").type.list_size == 384
    column = table["vector"].combine_chunks().flatten().to_numpy()
    np.testing.assert_array_equal(column.reshape(vectors.shape), vectors)
    assert table["tokens"][0].as_py() == 7


def test_the_npu_gives_the_same_vectors(tmp_path, monkeypatch):
    vectors, *_ = job(tmp_path, limit=8)
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "cache"))

    overrides = [
        "inference.backend={ge: {device: emulator}}",
        "preprocess.ops.tokenize.max_length=64",
    ]
    ge, _, _, notes = job(tmp_path, *overrides, limit=8, name="ge.npy")

    np.testing.assert_allclose(ge, vectors, atol=1e-5)
    assert any("EMULATED NPU" in note for note in notes)


def test_a_run_goes_on_where_it_was_stopped_and_notices_changed_texts(tmp_path):
    (tmp_path / "a.txt").write_text(SENTENCES.read_text())
    whole, *_ = job(tmp_path, inputs=[tmp_path / "a.txt"], name="whole.npy")
    pipeline = gepipe.Pipeline.from_yaml(PIPELINE)
    stopped = pipeline.job([str(tmp_path / "a.txt")], str(tmp_path / "part.npy"))
    stopped.request_stop()
    with pytest.raises(gepipe.GepipeError):
        stopped.run()

    part, *_ = job(tmp_path, inputs=[tmp_path / "a.txt"], name="part.npy", resume=True)

    np.testing.assert_array_equal(part, whole)
    (tmp_path / "a.txt").write_text(SENTENCES.read_text().replace("kitten", "lion"))
    with pytest.raises(ConfigError, match="the inputs have changed since"):
        job(tmp_path, inputs=[tmp_path / "a.txt"], name="part.npy", resume=True)


def test_check_says_what_does_not_fit():
    assert check(PIPELINE).errors == []

    wrong = {
        "preprocess.ops.tokenize.tokenizer=absent.json": "cannot read absent.json",
        "preprocess.ops.tokenize.tokenizer=pyproject.toml": "is no tokenizer.json",
        "preprocess.ops.tokenize.max_length=2": "frames each text with 2 tokens",
        "postprocess.ops.vector.output=sentence": "no output 'sentence'; did you mean",
        "postprocess.ops.vector.pooling=mean": "leave pooling out",
        'preprocess.ops.tokenize.inputs={input_ids: "ids"}': "name it in `inputs:` of tokenize",
    }
    for override, message in wrong.items():
        errors = check(PIPELINE, [override]).errors
        assert any(message in error for error in errors), (override, errors)
