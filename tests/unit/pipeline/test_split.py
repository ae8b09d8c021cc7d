"""Parts on their way: what travels, what shapes they tell, and what becomes of odd ones."""

from __future__ import annotations

import marshal
import pickle
from pathlib import Path

import numpy as np
import pytest

from gepipe.errors import ItemError
from gepipe.io.original import Original
from gepipe.ops.crop import Crop, Whole
from gepipe.ops.decode import DecodeImage
from gepipe.ops.image import CenterCrop
from gepipe.ops.parts import Splitter
from gepipe.ops.resize import Resize
from gepipe.ops.tensor import Normalize, ToTensor
from gepipe.ops.user import Python
from gepipe.pipeline.meta import decode, encode
from gepipe.pipeline.payloadstore import PayloadStore, taken_out
from gepipe.pipeline.split import Cut, CutReader, Split, tells_shapes
from tests.chains import picture

BOX = {"box": [0, 0, 8, 8], "n": 1}
TEXT = Crop(height=48, widths=(160, 320))
TENSOR = (Normalize(scale=1 / 255), ToTensor())


def made(split, record, meta=None):
    head, parts = marshal.loads(split(record, meta or {}))
    return marshal.loads(head), [(decode(facts), shapes) for facts, shapes in parts]


def test_facts_travel_and_the_record_stays_with_the_item() -> None:
    record = {"boxes": [BOX, {"box": [8, 0, 16, 8]}], "more": 3}
    (kept, meta, key), parts = made(Split(Crop(), (), False), record, {"width": 16})

    assert pickle.loads(kept) == record
    assert (decode(meta), key) == ({"width": 16}, "boxes")
    assert parts == [(BOX, ()), ({"box": [8, 0, 16, 8]}, ())]


class Own(Splitter):
    """Says nothing of sizes."""

    def parts(self, value, meta):
        return [{"of": value, **meta}]

    def __call__(self, value, meta):
        meta["cut"] = True
        return value.picture()


def test_parts_tell_their_row_shapes() -> None:
    record = {"lines": [{"box": [0, 0, 100, 20]}, {"box": [0, 0, 30, 20]}]}
    _, parts = made(Split(TEXT, TENSOR, True), record)

    assert [shapes for _, shapes in parts] == [((3, 48, 320),), ((3, 48, 160),)]


def test_an_odd_part_gets_some_shape_and_fails_only_where_it_is_cut() -> None:
    ops = (CenterCrop(16), ToTensor())
    record = {"boxes": [{"box": [0, 0, 40, 40]}, {"box": [0, 0, 4, 4]}]}
    _, parts = made(Split(Crop(), ops, True), record)

    assert [shapes for _, shapes in parts] == [((3, 16, 16),), ((3, 16, 16),)]


@pytest.mark.parametrize(
    ("splitter", "ops", "tells"),
    [
        (TEXT, TENSOR, True),
        (Crop(), (Resize((4, 4)), ToTensor()), True),
        (Crop(), (Python(len), ToTensor()), False),
        (Crop(), (CenterCrop(5000),), False),
        (Own(), TENSOR, False),
    ],
)
def test_whether_shapes_are_told(splitter, ops, tells) -> None:
    assert tells_shapes(splitter, ops) is tells


def test_facts_must_be_small_and_plain() -> None:
    split = Split(Crop(), (), False)
    with pytest.raises(ItemError, match=r"facts of a part take .* at most 65,536"):
        split({"boxes": [{**BOX, "more": "x" * 70_000}]}, {})
    with pytest.raises(ItemError, match="no plain value"):
        split({"boxes": [{**BOX, "more": object()}]}, {})


class Two(Whole):
    def parts(self, value, meta):  # noqa: ARG002
        return [{}, {}]


def test_a_single_part_is_one() -> None:
    with pytest.raises(ItemError, match="made 2 parts, not one"):
        Split(Two(), (), False)({"boxes": []}, {})


class Counting:
    """A reader that says how often it was asked."""

    def __init__(self) -> None:
        self.reads: list[bytes] = []

    def read(self, payload):
        self.reads.append(payload)
        return payload


def reader(color="rgb", before=()):
    counting = Counting()
    original = Original.of(counting, [DecodeImage(color=color)])
    return CutReader(counting, original, color, True, before), counting


def test_the_parts_of_an_item_share_one_decode() -> None:
    cut, counting = reader()
    first, second = picture([10, 20]), picture([30])
    step = Cut(Crop())
    values = []
    for payload, box in [(first, 0), (first, 8), (second, 0), (first, 0)]:
        meta = {}
        part = cut.read((payload, encode({"box": [box, 0, box + 8, 8]})))
        values.append(int(step(part, meta).mean()))
        assert (meta["height"], meta["width"]) == (8, 8)
        assert meta["part"] == {"box": [box, 0, box + 8, 8]}

    assert values == [10, 20, 30, 10]
    assert counting.reads == [first, second]


def test_pictures_are_kept_up_to_a_limit(monkeypatch) -> None:
    import gepipe.pipeline.split as module

    monkeypatch.setattr(module, "_KEPT_NBYTES", 3 * 8 * 8 * 3)
    cut, counting = reader()
    payloads = [picture([value]) for value in range(5)]
    for index in (0, 1, 2, 0, 3, 0, 1, 4, 4):
        part = cut.read((payloads[index], encode({"box": [0, 0, 8, 8]})))
        assert int(part.picture().mean()) == index

    assert [payloads.index(each) for each in counting.reads] == [0, 1, 2, 3, 1, 4]


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_the_colour_order_is_the_pipelines_and_nobody_writes_into_the_picture(color) -> None:
    import cv2

    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[..., 2] = 200  # red, as OpenCV has it
    payload = cv2.imencode(".png", pixels)[1].tobytes()
    part = reader(color)[0].read((payload, encode({})))
    seen = part.picture()

    assert part.color == color
    assert seen[0, 0].tolist() == ([200, 0, 0] if color == "rgb" else [0, 0, 200])
    with pytest.raises(ValueError, match="read-only"):
        seen[0, 0] = 1


def test_parts_of_parts_lie_in_the_picture_of_the_part() -> None:
    cut, counting = reader(before=(Crop(),))
    payload = picture([10, 20, 30])
    outer = (payload, encode({"box": [8, 0, 24, 8]}))
    parts = [cut.read((outer, encode({"box": [x, 0, x + 8, 8]}))) for x in (0, 8)]

    assert [int(Cut(Crop())(part, {}).mean()) for part in parts] == [20, 30]
    assert counting.reads == [payload]


def test_payloads_may_be_any_plain_values() -> None:
    cut, counting = reader()
    read, counting.read = counting.read, lambda payload: read(payload["png"])
    cut.original = Original(counting, DecodeImage())
    for _ in range(2):
        for grey in (10, 20):
            payload = {"png": picture([grey]), "page": [1, 2]}
            part = cut.read((payload, encode({"box": [0, 0, 8, 8]})))
            assert int(Cut(Crop())(part, {}).mean()) == grey

    assert len(counting.reads) == 2


def test_what_is_no_picture_is_said() -> None:
    cut, _ = reader()
    cut.decodes = False
    with pytest.raises(ItemError, match="parts are cut out of pictures, but the input is bytes"):
        cut.read((b"text", encode({}))).picture()


def test_large_payloads_lie_where_other_processes_find_them() -> None:
    store, large = PayloadStore(), bytes(range(256)) * 100
    small = store.put(1, b"small")
    place = store.put(2, large)

    assert small == taken_out(small) == b"small"
    assert place != large
    assert taken_out(place) == large
    assert marshal.loads(marshal.dumps(place)) == place
    store.drop(1)
    store.drop(2)
    with pytest.raises(ItemError, match="the input is gone"):
        taken_out(place)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_large_payloads_share_descriptors_and_go_with_the_last_of_them() -> None:
    before, store = _descriptors(), PayloadStore()
    payloads = [bytes([number % 256]) * (20_000 + number) for number in range(400)]
    places = [store.put(number, payload) for number, payload in enumerate(payloads)]

    assert [taken_out(place) for place in places] == payloads
    assert _descriptors() - before < 20
    for number in range(399):
        store.drop(number)
    assert _descriptors() - before == 1
    assert taken_out(places[399]) == payloads[399]
    store.drop(399)
    assert taken_out(store.put(400, payloads[0])) == payloads[0]
    store.close()
    assert _descriptors() == before
