"""A real RTSP server that goes and comes back, where GStreamer's is installed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("av")

from gepipe.io.jsonl import JsonlSink
from gepipe.io.videos import VideoFiles
from gepipe.ops.decode import DecodeImage
from gepipe.ops.user import Python
from gepipe.pipeline.job import Job
from gepipe.spec.model import PipelineSpec
from gepipe.triton.ports import free_ports
from tests.support import doubling_model, wait_until

SERVER = """
import sys, gi
gi.require_version("Gst", "1.0"); gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer
Gst.init(None)
assert Gst.ElementFactory.find("x264enc")
if len(sys.argv) > 1:
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1"); server.set_service(sys.argv[1])
    camera = GstRtspServer.RTSPMediaFactory()
    camera.set_launch(
        "( videotestsrc is-live=true ! video/x-raw,width=160,height=120,framerate=15/1"
        " ! x264enc tune=zerolatency speed-preset=ultrafast key-int-max=15"
        " ! rtph264pay name=pay0 )")
    server.get_mount_points().add_factory("/camera", camera); server.attach(None)
    print("up", flush=True)
    GLib.MainLoop().run()
"""
#: Debian's own interpreter has GStreamer's bindings.
PYTHON = "/usr/bin/python3"


def has_server() -> bool:
    if sys.platform != "linux" or not Path(PYTHON).exists():
        return False
    return not subprocess.run([PYTHON, "-c", SERVER], capture_output=True, check=False).returncode


@contextmanager
def camera(port: int) -> Iterator[None]:
    with subprocess.Popen(
        [PYTHON, "-c", SERVER, str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"up\n"
            yield
        finally:
            server.kill()


@pytest.mark.skipif(not has_server(), reason="needs GStreamer's RTSP server and its x264enc")
def test_a_camera_that_comes_back_is_seen_again(tmp_path: Path) -> None:
    port = free_ports("127.0.0.1", {"rtsp": 0})["rtsp"]
    out = tmp_path / "out.jsonl"
    spec = PipelineSpec(
        source=VideoFiles((f"rtsp://127.0.0.1:{port}/camera",), live=True),
        sink=JsonlSink(str(out)),
        stages=[
            {"name": "pre", "ops": [DecodeImage(), Python("tests.filmstages:shown")]},
            {"name": "infer", "model": doubling_model(tmp_path / "m.onnx")},
            {"name": "post"},
        ],
    )
    job = Job(spec, limit=60)
    thread = threading.Thread(target=job.run)
    with camera(port):
        thread.start()
        wait_until(lambda: job.done >= 20)
    with camera(port):
        thread.join(120)
    assert not thread.is_alive()

    results = [json.loads(line)["result"] for line in out.read_text().splitlines()]
    assert len(results) == 60
    times = [result["time"] for result in results]
    assert times == sorted(times)
    assert max(b - a for a, b in pairwise(times)) > 0.3  # while it was away
