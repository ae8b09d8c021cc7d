"""Cameras: there is none here, but what opens them opens files too."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from gepipe.errors import ItemError
from gepipe.io.videos import VideoFiles
from gepipe.video.camera import Camera
from gepipe.video.painter import Painter
from tests.clips import clip, number_in, watch


def test_frames_come_with_the_time_of_their_arrival(tmp_path):
    camera = Camera(bytes(clip(tmp_path / "a.avi", 20)), interface=cv2.CAP_FFMPEG)
    painter, shown, times = Painter(), [], []

    for each in camera.frames():
        memory = np.zeros((*painter.size(each.picture), 3), np.uint8)
        painter.paint(each.picture, memory)
        shown.append(number_in(memory))
        times.append(each.time)
    camera.close()

    assert shown == list(range(20))
    assert times == sorted(times)
    assert camera.facts.rate == 25


def test_a_device_that_is_no_camera_is_told():
    with pytest.raises(ItemError, match="no camera answers there"):
        Camera(b"/dev/null")
    assert VideoFiles("/dev/null").is_live(b"/dev/null")

    ((source, kind, text),) = watch("/dev/null", reconnect=0).failures

    assert (source, kind) == ("/dev/null", "connection")
    assert "no camera answers there" in text
