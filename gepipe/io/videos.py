"""The source of video frames: files by path, folder or glob, network streams and cameras."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final

from gepipe.errors import ConfigError
from gepipe.io.frames import FrameReader
from gepipe.io.source import PLUGIN_CONFIG, Entry
from gepipe.io.walk import as_endings, as_paths, expand
from gepipe.machine import available_memory
from gepipe.quantities import parse_duration, parse_size, parse_timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Endings of files that hold video, taken from folders.
VIDEO_EXTENSIONS: Final = (
    ".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".ts", ".mts", ".m2ts", ".mpg", ".mpeg",
    ".wmv", ".flv", ".ogv", ".3gp",
)  # fmt: skip
_ADDRESS: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://")
_PASSWORD: Final = re.compile(r"(?<=://)([^\s/@:]*):[^\s/]*@")
#: Protocols whose sender does not wait for the receiver.
_LIVE: Final = (b"rtsp:", b"rtsps:", b"rtmp:", b"rtmps:", b"rtp:", b"udp:", b"srt:", b"tcp:")
#: Number of Video4Linux among the kinds of devices.
_CAMERA_MAJOR: Final = 81
#: Share of the free memory that frames may take, and the most of it, unless told otherwise.
_MEMORY_SHARE: Final = 8
_MEMORY_MAX: Final = 1 << 29


@dataclass(frozen=True)
class VideoFiles:
    """Frames of videos: a file, a folder, a glob, an address like `rtsp://…`, or a list of these.

    Each frame is an item, called `clip.mp4#frame=12`; frames are counted from 0, also where only
    some are taken or can be decoded. A result begins with `frame` and `time`, the seconds
    from the start of the video. Videos are decoded in processes of their own, upright, into shared
    memory. Files come one after another and wait for the pipeline; of live sources, which come
    interleaved as frames arrive, those are dropped that the pipeline has no time for. What is
    damaged within a video is left out and told as one failure of that video.

    Args:
        paths: Where the videos are. `/dev/video0` is a camera.
        every: Take each n-th frame only. Not with `fps`.
        fps: Take at most so many frames a second of video. Not with `every`.
        start: Leave out what comes before: `90s`, `1.5m`. It is decoded only where it must be.
        stop: Leave out what comes behind.
        live: Whether a source is live; by default network streams other than http and cameras are.
        recursive: Whether a folder's sub-folders are searched too.
        extensions: File name endings taken from folders, in any case.
        threads: Threads of a decoder.
        memory: Shared memory for frames, such as `256MiB`; by default an eighth of what is free,
            512 MiB at most.
        timeout: How long a decoder may go without a frame, before a file's is replaced and a live
            source is connected anew.
        reconnect: How often in a row a live source is connected anew without a frame before it is
            given up; waits twice as long each time, 30 s at most.
    """

    paths: str | tuple[str, ...]
    every: int = 1
    fps: float | None = None
    start: float | str = 0.0
    stop: float | str | None = None
    live: bool | None = None
    recursive: bool = True
    extensions: tuple[str, ...] = VIDEO_EXTENSIONS
    threads: int = 1
    memory: int | str | None = None
    timeout: float | str = 30.0
    reconnect: int = 8

    shorthand: ClassVar[str] = "paths"
    #: The list of videos has an end, whether they have or not.
    listed: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", as_paths(self.paths))
        object.__setattr__(self, "extensions", as_endings(self.extensions))
        if not self.paths or not all(self.paths):
            raise ValueError(
                "paths is empty; expected a file, a folder, a glob, an address or a list"
            )
        for name, least in (("every", 1), ("threads", 0), ("reconnect", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least {least}")
        if self.fps is not None and self.fps <= 0:
            raise ValueError(f"fps is {self.fps}; expected more than 0")
        if self.fps is not None and self.every > 1:
            raise ValueError(
                f"every is {self.every} and fps is {self.fps:g}; expected one of the two, as both "
                "say how many frames are taken; leave one out (for one run: every=1, or fps=null)"
            )
        for name, parse in (
            ("start", parse_duration),
            ("stop", parse_duration),
            ("timeout", parse_timeout),
            ("memory", parse_size),
        ):
            if (value := getattr(self, name)) is not None:
                try:
                    object.__setattr__(self, name, parse(value))
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error
        if self.stop is not None and self.stop <= self.start:  # type: ignore[operator]
            raise ValueError(f"stop is {self.stop} s; expected more than start, {self.start} s")

    @property
    def finite(self) -> bool:
        """Whether every source ends by itself, so that a job over them can be resumed."""
        return not any(self.is_live(os.fsencode(path)) for path in self.paths)

    @property
    def reader(self) -> FrameReader:
        """Sees a frame where its decoder has put it."""
        return FrameReader()

    @property
    def memory_nbytes(self) -> int:
        """How much memory frames may take."""
        if isinstance(self.memory, int):
            return self.memory
        return min(_MEMORY_MAX, available_memory() // _MEMORY_SHARE)

    def is_live(self, path: bytes) -> bool:
        """Whether the source at `path` comes at its own pace."""
        if self.live is not None:
            return self.live
        return path.lower().startswith(_LIVE) or is_camera(path)

    def entries(self) -> Iterator[Entry]:
        """Enumerate the videos, not their frames; their payload is the path's bytes.

        Raises:
            ConfigError: A folder or glob holds no video, the only path does not exist, or the
                library that decodes videos is not installed.
        """
        if find_spec("av") is None:
            raise ConfigError("videos need the package av: pip install 'gepipe[video]'")
        for path in self.paths:
            name = os.fsencode(path)
            if is_address(name):
                yield Entry(without_password(os.fsdecode(name)), name)
                continue
            for found in expand(
                name,
                recursive=self.recursive,
                extensions=tuple(os.fsencode(ending) for ending in self.extensions),
                must_exist=len(self.paths) == 1,
                what="video",
            ):
                yield Entry(os.fsdecode(found), found)


def is_address(path: bytes) -> bool:
    """Whether a source is an address and no path."""
    return _ADDRESS.match(path) is not None


def without_password(text: str) -> str:
    """Return a text for people: an address with a user's password has none any more."""
    return _PASSWORD.sub(r"\1:***@", text)


def is_camera(path: bytes) -> bool:
    """Whether a path is a device of Video4Linux, as `/dev/video0` is and `/dev/zero` is not."""
    try:
        status = os.stat(path)  # noqa: PTH116 - bytes
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == _CAMERA_MAJOR


def is_video(path: str) -> bool:
    """Whether a path's ending is one of a video, or it is an address."""
    return path.lower().endswith(VIDEO_EXTENSIONS) or is_address(os.fsencode(path))
