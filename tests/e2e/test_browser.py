"""Films play in a real browser, where there is one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

pytest.importorskip("av")

from gepipe.io.videos import VideoFiles
from gepipe.ops.decode import DecodeImage
from gepipe.ops.user import Python
from gepipe.pipeline.job import Job
from gepipe.spec.model import PipelineSpec
from gepipe.video.sink import VideoSink
from tests.clips import clip
from tests.support import doubling_model

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

PAGE = b"""<video id="film" src="/film.mp4" muted autoplay></video>
<script>
  const film = document.getElementById("film");
  film.onerror = () => fetch("/seen/error/" + film.error.message);
  film.onended = () => fetch(`/seen/ended/${film.videoWidth}x${film.videoHeight}/${film.duration}`);
</script>"""


class Site(ThreadingHTTPServer):
    """Serves a page with a film, and waits for what the page says of it."""

    def __init__(self, film: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Visit)
        self.files = {"/": ("text/html", PAGE), "/film.mp4": ("video/mp4", film)}
        self.seen: Queue[list[str]] = Queue()


class Visit(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        if self.path.startswith("/seen/"):
            self.server.seen.put(self.path.split("/")[2:])
        kind, content = self.server.files.get(self.path, ("text/plain", b""))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(OSError):  # the browser asks for the film in pieces, and may hang up
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
def test_a_film_of_an_odd_size_plays_to_its_end(tmp_path: Path) -> None:
    video = clip(tmp_path / "odd.mkv", 30, (49, 131), codec="ffv1", pix_fmt="bgr0")
    spec = PipelineSpec(
        source=VideoFiles(str(video)),
        sink=VideoSink(str(tmp_path / "out.jsonl")),
        stages=[
            {"name": "pre", "ops": [DecodeImage(), Python("tests.filmstages:shown")]},
            {"name": "infer", "model": doubling_model(tmp_path / "m.onnx")},
            {"name": "post", "ops": [Python("tests.filmstages:found")]},
        ],
    )
    Job(spec).run()
    (film,) = tmp_path.rglob("*.mp4")

    with Site(film.read_bytes()) as site:
        Thread(target=site.serve_forever, daemon=True).start()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        options += [f"--user-data-dir={tmp_path}/profile"]
        options += ["--autoplay-policy=no-user-gesture-required"]
        browser = subprocess.Popen(
            [BROWSER, *options, f"http://127.0.0.1:{site.server_port}/"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            seen = site.seen.get(timeout=200)
        finally:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
            site.shutdown()

    assert seen[:2] == ["ended", "132x50"]
    assert float(seen[2]) == pytest.approx(30 / 25, abs=0.05)
