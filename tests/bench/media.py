"""The photos that the benchmarks work on, made once from the sample photos."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PHOTOS = ROOT / "samples" / "media" / "photos"
STREET = ROOT / "samples" / "media" / "videos" / "vtest.avi"
CACHE = ROOT / ".cache" / "bench"
_VERSION = 2
_GRAIN = 5.0  # enlarged photos are too smooth
_QUALITY = 88  # with the grain, some 240 KB a photo of 1280x720, as from a camera


def jpegs(count: int, width: int = 1280, height: int = 720) -> list[str]:
    """Return paths of different photos of that size; made at the first call."""
    folder = CACHE / f"jpeg-{width}x{height}-v{_VERSION}"
    done = folder / f"{count}.done"
    paths = [folder / f"{number:05}.jpg" for number in range(count)]
    if not done.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        photos = [cv2.imread(str(path)) for path in sorted(PHOTOS.iterdir())]
        grain = np.random.default_rng(0).normal(0, _GRAIN, (height, width, 1)).astype(np.float32)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda n: _write(paths[n], n, photos, grain), range(count)))
        done.touch()
    return [str(path) for path in paths]


def _write(path: Path, number: int, photos: list[np.ndarray], grain: np.ndarray) -> None:
    random = np.random.default_rng(number)
    photo = photos[number % len(photos)]
    high, wide = photo.shape[:2]
    part_wide = int(wide * random.uniform(0.6, 0.95))
    part_high = min(high, int(part_wide * grain.shape[0] / grain.shape[1]))
    top, left = random.integers(high - part_high + 1), random.integers(wide - part_wide + 1)
    part = photo[top : top + part_high, left : left + part_wide]
    image = cv2.resize(part, grain.shape[1::-1], interpolation=cv2.INTER_CUBIC)
    shift = tuple(int(step) for step in random.integers(0, grain.shape[:2]))
    noisy = image.astype(np.float32) + np.roll(grain, shift, axis=(0, 1))
    ok, content = cv2.imencode(
        ".jpg", noisy.clip(0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY]
    )
    assert ok
    path.write_bytes(content.tobytes())


def answers_of_the_detector(rows: int = 16) -> str:
    """Return an .npy file of the sample detector's outputs for frames of the street."""
    path = CACHE / f"nanodet-street-{rows}.npy"
    if not path.is_file():
        import video_loops

        model, letterbox = video_loops.onnx(2), video_loops.Letterbox()
        frames = list(video_loops.decode(str(STREET), 16 * rows))[::16]
        batch = np.zeros((rows, 3, video_loops.SIDE, video_loops.SIDE), np.float32)
        for frame, row in zip(frames, batch, strict=True):
            letterbox.write(frame.image, row)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, model(batch))
    return str(path)


def clips(count: int = 32, frames: int = 24) -> list[str]:
    """Return paths of short videos of many sizes, cut from the street; made at the first call."""
    folder = CACHE / f"clips-{count}x{frames}"
    paths = [folder / f"{number:03}.mp4" for number in range(count)]
    if not (done := folder / "done").is_file():
        import av

        folder.mkdir(parents=True, exist_ok=True)
        with av.open(str(STREET)) as container:
            decoded = container.decode(video=0)
            for number, path in enumerate(paths):
                width = 320 + 16 * (number % 16)
                with av.open(str(path), "w") as clip:
                    stream = clip.add_stream("libx264", rate=10)
                    stream.width, stream.height, stream.pix_fmt = width, 240, "yuv420p"
                    for _, frame in zip(range(frames), decoded, strict=False):
                        picture = frame.reformat(width, 240, format="yuv420p")
                        picture.pts = None
                        clip.mux(stream.encode(picture))
                    clip.mux(stream.encode())
        done.touch()
    return [str(path) for path in paths]


def clear() -> None:
    """Remove what was made."""
    shutil.rmtree(CACHE, ignore_errors=True)
