"""Cameras: there is none here, but what opens them opens files too."""

from __future__ import annotations

import os
import stat

import cv2
import numpy as np
import pytest

from gepipe.errors import ItemError
from gepipe.io.videos import VideoFiles
from gepipe.video.camera import Camera
from gepipe.video.framewriter import FrameWriter
from tests.clips import clip, number_in, watch


def test_frames_come_with_the_time_of_their_arrival(tmp_path):
    camera = Camera(bytes(clip(tmp_path / "a.avi", 20)), interface=cv2.CAP_FFMPEG)
    writer, shown, times = FrameWriter(), [], []

    for each in camera.frames():
        memory = np.zeros((*writer.size(each.picture), 3), np.uint8)
        writer.write(each.picture, memory)
        shown.append(number_in(memory))
        times.append(each.time)
    camera.close()

    assert shown == list(range(20))
    assert times == sorted(times)
    assert camera.facts.rate == 25


def test_a_camera_that_does_not_answer_is_told(tmp_path):
    with pytest.raises(ItemError, match="no camera answers there"):
        Camera(b"/dev/null")
    path = tmp_path / "video63"
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(81, 63))
    except PermissionError:
        pytest.skip("making devices is for root")
    assert VideoFiles(str(path)).is_live(bytes(path))

    ((source, kind, text),) = watch(path, reconnect=0).failures

    assert (source, kind) == (str(path), "connection")
    assert "no camera answers there" in text


def test_a_device_that_is_no_camera_holds_nothing_up():
    assert not VideoFiles("/dev/zero").is_live(b"/dev/zero")

    ((source, kind, text),) = watch("/dev/zero").failures

    assert (source, kind) == ("/dev/zero", "unreadable")
    assert text == "'/dev/zero' is a device, and no camera"
