"""How far a run is: a live line on a terminal, a plain line now and then in a pipe."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TextIO

from gepipe.cli.signals import show_cursor
from gepipe.cli.text import count, duration, harmless, is_terminal, print_error

if TYPE_CHECKING:
    from typing_extensions import Self

    from gepipe.pipeline.job import Job
    from gepipe.video.progress import VideoProgress

_FRAME_S: Final = 0.2
_LINE_S: Final = 5.0
#: How long the last line may take to be wiped out.
_END_S: Final = 1.0
#: Weight of the newest interval in the rate that the remaining time is reckoned with.
_NEW: Final = 0.1


class Progress:
    """Watches a job from a thread of its own; the run itself never waits for the terminal."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._live: Any = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen: tuple[float, int] | None = None
        self._rate = 0.0

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        if self._thread is None:
            return
        self._thread.join(_END_S)
        # An interrupt in the middle of an import leaves the lock of imports held for good.
        if self._thread.is_alive():
            show_cursor()

    def say(self, text: str) -> None:
        """Write lines to standard error, above the live line if there is one."""
        live = self._live
        if live is None:
            print_error(text)
        else:
            from rich.text import Text

            live.console.print(Text(text), soft_wrap=True)

    def line(self) -> str | None:
        """Return the line for this moment; None before the run began."""
        job, statistics = self._job, self._job.statistics()
        if statistics is None or not statistics.elapsed_s:
            return None
        done, videos = job.done, job.video_progress()
        if videos is None and job.total is None:
            return None
        self._measure(done)
        parts = self._far(done, job.total) if videos is None else self._seen_of(done, videos)
        if statistics.failed:
            parts.append(count(statistics.failed, "failure"))
        slowest = statistics.slowest
        if slowest is not None:
            parts.append(f"{slowest.name} is slowest, busy {slowest.utilisation:.0%}")
        return harmless(" · ".join(parts))

    def _far(self, done: int, total: int | None) -> list[str]:
        """Return how far a run over a list of known length is."""
        total = total or 0
        share = done / total if total else 1.0
        parts = [f"{done:,}/{total:,} ({share:.0%})"]
        if self._rate:
            parts.append(f"{self._rate:,.1f} items/s")
        if self._rate and done < total:
            parts.append(f"{duration(round((total - done) / self._rate))} left")
        return parts

    def _seen_of(self, done: int, videos: VideoProgress) -> list[str]:
        """Return how far a run over videos is: nobody knows how many frames there are."""
        parts = []
        if videos.source:
            about = f" of about {videos.estimate:,}" if videos.estimate >= videos.frames else ""
            of = f"/{videos.videos:,}" if videos.videos is not None else ""
            name = videos.source.rstrip("/").rpartition("/")[2]
            parts.append(f"video {videos.begun:,}{of}, {name}: frame {videos.frames:,}{about}")
        parts.append(f"{count(done, 'frame')} done")
        if self._rate:
            parts.append(f"{self._rate:,.1f} frames/s")
        if videos.dropped:
            parts.append(f"{videos.dropped:,} dropped")
        return parts

    def _measure(self, done: int) -> None:
        now = time.monotonic()
        if self._seen is None:
            self._seen = (now, done)
            return
        elapsed_s = now - self._seen[0]
        if elapsed_s < _FRAME_S / 2:
            return
        rate = (done - self._seen[1]) / elapsed_s
        # Until it has settled, the mean of all; results leave batch by batch.
        self._rate = rate if not self._rate else self._rate + (rate - self._rate) * _NEW
        self._seen = (now, done)

    def _watch(self) -> None:
        try:
            if _draws(sys.stderr):
                self._watch_terminal()
            else:
                while not self._over.wait(_LINE_S):
                    if line := self.line():
                        print_error(line)
        except OSError:  # the terminal is gone; SIGHUP tells the rest
            return

    def _watch_terminal(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(stderr=True, highlight=False)
        # No redirection: whoever writes elsewhere must not wait for this thread.
        live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with live:
            self._live = live
            try:
                while not self._over.wait(_FRAME_S):
                    if line := self.line():
                        text = Text(line, no_wrap=True, overflow="ellipsis")
                        live.update(text, refresh=True)
            finally:
                self._live = None


def _draws(stream: TextIO | None) -> bool:
    """Whether a line of the stream can be drawn over."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb"
