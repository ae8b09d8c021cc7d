"""Records of a sink, made of what a server sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from gepipe.io.jsonl import JsonlSink, encode_json
from gepipe.io.original import Origin, Original, takes_origin
from gepipe.ops.decode import DecodeImage

if TYPE_CHECKING:
    from gepipe.io.sink import Sink
    from gepipe.io.source import Entry, Reader

#: Makes a record's payload of the text that the server sent for an input.
Recorder: TypeAlias = "Callable[[bytes, Entry], bytes]"


def line_of(text: bytes, _: Entry) -> bytes:
    """Return the record of a JSON lines file: the same JSON on one line."""
    try:
        value = json.loads(text)
    except ValueError:  # of a model that was not exported from a pipeline
        return encode_json(text.decode("utf-8", "replace"))
    return encode_json(value) if b"\n" in text else text


def recorder_for(sink: Sink, reader: Reader, ops: Sequence[Any]) -> Recorder:
    """Return what makes the records of a sink.

    A sink that shows an input together with its result has it read and decoded once more, here.

    Args:
        sink: The sink.
        reader: The source's reader.
        ops: The operators of the pre stage.
    """
    encode: Callable[..., bytes] = sink.encoder
    if isinstance(sink, JsonlSink):
        return line_of
    if not takes_origin(encode):
        return lambda text, _: encode(_value(text))

    original = Original.of(reader, ops)
    is_picture = bool(ops) and isinstance(ops[0], DecodeImage)

    def with_origin(text: bytes, entry: Entry) -> bytes:
        if not is_picture:  # nobody has noted its size in a local run either
            return encode(_value(text), Origin({}, lambda: original.picture(entry.payload)))
        picture = original.picture(entry.payload)
        height, width = picture.shape[:2]
        return encode(_value(text), Origin({"height": height, "width": width}, lambda: picture))

    return with_origin


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode("utf-8", "replace")
