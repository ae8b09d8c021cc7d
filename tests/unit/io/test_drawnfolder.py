from __future__ import annotations

import pytest

from gepipe.io.drawnfolder import stem_of


@pytest.mark.parametrize(
    ("source", "stem"),
    [
        ("videos/street.north.mp4", "street.north"),
        ("rtsp://camera-1/stream.sdp", "stream"),
        ("tcp://127.0.0.1:18433", "127.0.0.1-18433"),
        ("rtsp://user:***@camera-1:554/", "camera-1-554"),
    ],
)
def test_files_are_named_after_what_tells_sources_apart(source: str, stem: str) -> None:
    assert stem_of(source) == stem
