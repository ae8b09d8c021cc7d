from __future__ import annotations

import base64
import io
import os
import struct
import zlib
from contextlib import suppress

import cv2
import numpy as np
import pytest
from PIL import Image

from gepipe.errors import ItemError
from gepipe.io.walk import IMAGE_EXTENSIONS
from gepipe.ops.decode import DecodeImage

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")


def decode(data, **options):
    op = DecodeImage(**options)
    op.setup()
    meta = {}
    return op(data, meta), meta


def failure(data, **options):
    with pytest.raises(ItemError) as caught:
        decode(data, **options)
    return caught.value


def difference(a, b):
    return np.abs(a.astype(int) - b.astype(int)).mean()


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_becomes_rgb_of_the_right_size(files, kind):
    image = files.picture()

    pixels, meta = decode(files.encode(image, kind, quality=95))

    assert pixels.shape == (48, 64, 3)
    assert pixels.dtype == np.uint8
    assert difference(pixels, image) < 12
    assert meta == {"height": 48, "width": 64}


def test_colour_order_and_grey_are_what_was_asked_for(files):
    data = files.encode(files.picture(), "PNG")

    rgb, _ = decode(data)
    bgr, _ = decode(data, color="bgr")
    gray, _ = decode(data, color="gray")

    assert (rgb == bgr[:, :, ::-1]).all()
    assert gray.shape == (48, 64, 1)
    assert difference(gray[:, :, 0], cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)) < 1


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF"])
def test_grey_files_become_three_equal_channels(files, kind):
    image = files.picture()[:, :, 0]

    pixels, _ = decode(files.encode(image, kind))

    assert pixels.shape == (48, 64, 3)
    assert difference(pixels[:, :, 0], pixels[:, :, 2]) < 3
    assert difference(pixels[:, :, 1], image) < 4


def test_palette_and_one_bit_files_become_rgb(files):
    image = Image.fromarray(files.picture())
    palette = files.encode(image.quantize(64), "PNG")
    one_bit = files.encode(image.convert("1"), "PNG")

    assert difference(decode(palette)[0], files.picture()) < 12
    assert set(np.unique(decode(one_bit)[0])) == {0, 255}


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_transparency_is_laid_onto_white_or_dropped(files, kind):
    red = Image.new("RGBA", (16, 16), (200, 0, 0, 0))
    data = files.encode(red, kind, **({"lossless": True, "exact": True} if kind == "WEBP" else {}))

    assert decode(data)[0].min() == 255
    assert decode(data, alpha="drop")[0][0, 0].tolist() == [200, 0, 0]


def test_a_transparent_palette_entry_is_laid_onto_white(files):
    image = Image.new("P", (8, 8), 0)
    image.putpalette([10, 20, 30] * 256)

    pixels, _ = decode(files.encode(image, "PNG", transparency=0))

    assert pixels.min() == 255


def ramp():
    return np.tile(np.arange(0, 65536, 64, dtype=np.uint16), (4, 1))


def test_i12_sixteen_bit_files_keep_their_levels(files):
    big_endian = io.BytesIO()
    Image.fromarray(ramp().astype(">u2")).save(big_endian, "TIFF")
    sixteen = {
        "png": cv2.imencode(".png", ramp())[1].tobytes(),
        "png rgb": cv2.imencode(".png", np.dstack([ramp()] * 3))[1].tobytes(),
        "png rgba": cv2.imencode(".png", np.dstack([ramp()] * 3 + [np.full_like(ramp(), 65535)]))[
            1
        ].tobytes(),
        "tiff": cv2.imencode(".tiff", ramp())[1].tobytes(),
        "tiff rgb": cv2.imencode(".tiff", np.dstack([ramp()] * 3))[1].tobytes(),
        "tiff big endian": big_endian.getvalue(),
        "pillow png": files.encode(Image.fromarray(ramp()), "PNG"),
    }

    levels = {name: len(np.unique(decode(data)[0])) for name, data in sixteen.items()}

    assert min(levels.values()) >= 250, levels
    for name, data in sixteen.items():
        assert (np.diff(decode(data)[0][0, :, 0].astype(int)) >= 0).all(), name


@pytest.mark.parametrize("orientation", range(1, 9))
def test_i9_orientation_is_the_same_for_every_format(files, orientation):
    image = files.picture()
    block = files.exif(orientation)
    upright = np.asarray(_turned(image, orientation))
    kinds = {
        "PNG": files.encode(image, "PNG", exif=block),
        "TIFF": files.encode(image, "TIFF", exif=block),
        "JPEG": files.encode(image, "JPEG", quality=98, exif=block),
        "WEBP": files.encode(image, "WEBP", lossless=True, exif=block),
    }

    for kind, data in kinds.items():
        pixels, meta = decode(data)
        assert pixels.shape == upright.shape, kind
        assert difference(pixels, upright) < 3, kind
        assert (meta["height"], meta["width"]) == upright.shape[:2], kind
        stored, meta = decode(data, exif="ignore")
        assert difference(stored, image) < 3, kind
        assert (meta["height"], meta["width"]) == (48, 64), kind


def _turned(image, orientation):
    ways = Image.Transpose
    how = {
        2: ways.FLIP_LEFT_RIGHT, 3: ways.ROTATE_180, 4: ways.FLIP_TOP_BOTTOM, 5: ways.TRANSPOSE,
        6: ways.ROTATE_270, 7: ways.TRANSVERSE, 8: ways.ROTATE_90,
    }  # fmt: skip
    picture = Image.fromarray(image)
    return picture.transpose(how[orientation]) if orientation in how else picture


def _without_app14(data: bytes) -> bytes:
    at = data.index(b"\xff\xee")
    length = struct.unpack_from(">H", data, at + 2)[0]
    return data[:at] + data[at + 2 + length :]


def test_i11_cmyk_jpeg_has_the_right_colours_with_and_without_adobes_marker(files):
    ink = np.zeros((32, 32, 4), np.uint8)
    ink[:, :] = (20, 180, 220, 10)  # an orange
    reference = np.array([(255 - c) * (255 - 10) / 255 for c in (20, 180, 220)])
    adobe = files.encode(_cmyk(ink), "JPEG")
    plain = _without_app14(files.encode(_cmyk(255 - ink), "JPEG"))

    for data in (adobe, plain):
        pixels, _ = decode(data)
        assert np.abs(pixels.mean(axis=(0, 1)) - reference).max() < 6


def _cmyk(ink):
    return Image.frombytes("CMYK", (ink.shape[1], ink.shape[0]), ink.tobytes())


def test_i11_ycck_jpeg_has_the_right_colours(files):
    rgb = np.zeros((32, 32, 3), np.uint8)
    rgb[:, :] = (20, 180, 220)
    ycc = np.asarray(Image.fromarray(rgb).convert("YCbCr"))
    # As Photoshop writes it: YCbCr of the ink taken for RGB, and K inverted, so that 255 is none.
    planes = np.dstack([ycc, np.full((32, 32), 255, np.uint8)])
    data = bytearray(files.encode(_cmyk(255 - planes), "JPEG", quality=98))
    at = data.index(b"Adobe")
    data[at + 11] = 2  # the transform: YCCK

    pixels, _ = decode(bytes(data))

    assert np.abs(pixels.mean(axis=(0, 1)) - (235, 75, 35)).max() < 6


def test_tiff_directories_in_a_circle_are_counted_once():
    from gepipe.ops.header_other import read_tiff

    page = struct.pack("<HHHIIHHIII", 2, 256, 4, 1, 5, 257, 4, 1, 7, 8)

    header = read_tiff(b"II*\0" + struct.pack("<I", 8) + page)

    assert (header.width, header.height, header.frames) == (5, 7, 1)


def test_i14_of_several_frames_the_first_is_taken_and_the_number_noted(files):
    colours = [(250, 0, 0), (0, 250, 0), (0, 0, 250)]
    frames = [Image.new("RGB", (20, 10), colour) for colour in colours]
    options = {"save_all": True, "append_images": frames[1:]}
    several = {
        "GIF": files.encode(frames[0], "GIF", **options),
        "WEBP": files.encode(frames[0], "WEBP", lossless=True, **options),
        "TIFF": files.encode(frames[0], "TIFF", **options),
        "PNG": files.encode(frames[0], "PNG", **options),
    }

    for kind, data in several.items():
        pixels, meta = decode(data)
        assert meta["frames"] == 3, kind
        assert pixels.shape == (10, 20, 3), kind
        assert np.abs(pixels[5, 5].astype(int) - (250, 0, 0)).max() < 8, kind


# 24x16, red left of blue, written by `jpegtran -arithmetic`.
ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4R"
    "DgsLEBYQERMUFRUVDA8XGBYUGBIUFRT/2wBDAQMEBAUEBQkFBQkUDQsNFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU"
    "FBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBT/yQARCAAQABgDASIAAhEBAxEB/8wACgAQEAUBEBEF/9oADAMBAAIR"
    "AxEAPwD/ALPhKEi1dTV9lq+WUXq+QG2g6K21ZOjOhelqgECPV9F9ooQgUOJg4fa5Na6A/9k="
)


def test_i16_progressive_and_arithmetic_jpeg_decode(files):
    image = files.picture()
    progressive = files.encode(image, "JPEG", quality=95, progressive=True)

    assert difference(decode(progressive)[0], image) < 12
    pixels, _ = decode(ARITHMETIC)
    assert np.abs(pixels[8, 4].astype(int) - (200, 60, 30)).max() < 6
    assert np.abs(pixels[8, 20].astype(int) - (20, 90, 180)).max() < 6


def test_i16_jpeg_of_twelve_bits_fails_cleanly(files):
    data = bytearray(files.encode(files.picture(), "JPEG"))
    data[data.index(b"\xff\xc0") + 4] = 12

    assert failure(bytes(data)).kind == "unreadable"


def test_i4_an_empty_file_is_named_as_such():
    error = failure(b"")

    assert error.kind == "empty"
    assert "0 bytes" in str(error)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("kind", FORMATS)
def test_i1_cut_files_of_every_format_are_truncated(files, kind, share):
    data = files.encode(files.picture(96, 128), kind)

    error = failure(data[: int(len(data) * share)])

    assert error.kind == "truncated"
    assert kind in str(error).upper()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_cut_anywhere_never_raises_anything_else(files, kind):
    data = files.encode(files.picture(16, 24), kind)

    for end in range(1, len(data), 7):
        error = failure(data[:end])
        assert error.kind in ("truncated", "not_an_image"), (end, error)
        assert error.kind == "truncated" or end < 3, (end, error)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_cut_file_is_kept_when_asked_for(files, kind):
    image = files.picture(96, 128)
    data = files.encode(image, kind, **({"quality": 98} if kind == "JPEG" else {}))

    pixels, meta = decode(data[: int(len(data) * 0.8)], truncated="keep")

    assert pixels.shape == (96, 128, 3)
    assert meta["truncated"] is True
    assert difference(pixels[:30], image[:30]) < 12


def test_a_jpeg_whose_tail_is_zeros_is_truncated(files):
    data = files.encode(files.picture(96, 128), "JPEG")
    half = len(data) // 2 + 200

    assert failure(data[:half] + bytes(len(data) - half)).kind == "truncated"


def test_bytes_behind_the_end_of_a_jpeg_do_no_harm(files):
    image = files.picture()

    pixels, _ = decode(files.encode(image, "JPEG", quality=95) + b"\0" * 100 + b"trailer")

    assert difference(pixels, image) < 12


def test_a_damaged_png_is_unreadable_and_not_half_black(files):
    rng = np.random.default_rng(0)
    data = bytearray(files.encode(rng.integers(0, 256, (64, 64, 3), np.uint8), "PNG"))
    data[len(data) // 2] ^= 0x10

    assert failure(bytes(data)).kind == "unreadable"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<!DOCTYPE html><html>404</html>", "HTML"),
        (b"hello, this is a text file named .jpg", "text"),
        (b"%PDF-1.7 and so on", "PDF"),
        (bytes(1000), "zeros"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        (bytes(range(200, 256)), "unknown format"),
        (b"x", "text"),
    ],
)
def test_fakes_are_not_images_and_the_message_says_what_they_are(data, words):
    error = failure(data)

    assert error.kind == "not_an_image"
    assert words in str(error)


def _png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def test_i7_a_huge_picture_is_refused_before_decoding():
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0)
    row = b"\0" + bytes(3750)
    packer = zlib.compressobj(1)
    body = b"".join(packer.compress(row) for _ in range(30)) + packer.flush()
    data = (
        b"\x89PNG\r\n\x1a\n"
        + _png_chunk(b"IHDR", header)
        + _png_chunk(b"IDAT", body)
        + _png_chunk(b"IEND", b"")
    )

    error = failure(data)

    assert error.kind == "too_large"
    assert "30000x30000" in str(error)
    assert "max_pixels" in str(error)


def test_i6_a_header_that_claims_too_much_is_refused_before_decoding(files):
    data = bytearray(files.encode(files.picture(), "JPEG"))
    at = data.index(b"\xff\xc0")
    struct.pack_into(">HH", data, at + 5, 60_000, 60_000)

    error = failure(bytes(data[: at + 200]))

    assert error.kind == "too_large"


def test_the_pixel_limit_can_be_set(files):
    data = files.encode(files.picture(48, 64), "JPEG")

    assert failure(data, max_pixels=48 * 64 - 1).kind == "too_large"
    assert decode(data, max_pixels=48 * 64)[0].shape == (48, 64, 3)


def test_i19_files_of_different_length_and_size_decode_one_by_one(files):
    shapes = [decode(files.encode(files.picture(h, 32), "JPEG"))[0].shape for h in (16, 24, 40)]

    assert shapes == [(16, 32, 3), (24, 32, 3), (40, 32, 3)]


@pytest.mark.parametrize("kind", FORMATS)
def test_random_damage_gives_a_picture_or_an_item_error(files, kind):
    rng = np.random.default_rng(7)
    data = files.encode(files.picture(24, 32), kind)

    for _ in range(60):
        damaged = bytearray(data)
        for at in rng.integers(0, len(data), 4):
            damaged[at] = rng.integers(256)
        try:
            pixels, _ = decode(bytes(damaged), max_pixels=4_000_000)
        except ItemError:
            continue
        assert pixels.ndim == 3
        assert pixels.dtype == np.uint8


def test_what_is_decoded_already_is_named(files):
    error = failure(files.picture())

    assert error.kind == "shape"
    assert "remove" in str(error)


def test_bytes_may_come_in_any_container(files):
    data = files.encode(files.picture(), "PNG")

    for value in (bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
        assert decode(value)[0].shape == (48, 64, 3)


def test_floating_point_tiff_is_refused_with_advice(files):
    data = files.encode(Image.fromarray(np.zeros((8, 8), np.float32)), "TIFF")

    error = failure(data)

    assert error.kind == "unsupported"
    assert "python operator" in str(error)


def test_a_damaged_colour_profile_does_no_harm(files):
    ink = np.full((8, 8, 4), (20, 180, 220, 10), np.uint8)

    with_profile, _ = decode(files.encode(_cmyk(ink), "JPEG", icc_profile=b"no profile at all"))
    without, _ = decode(files.encode(_cmyk(ink), "JPEG"))

    assert (with_profile == without).all()


def with_noise_inside(data: bytes) -> bytes:
    """Overwrite 300 bytes in the middle of a JPEG's scan, so that its codes make no sense."""
    middle = len(data) // 2
    noise = np.random.default_rng(0).integers(0, 255, 300, np.uint8).tobytes()
    return data[:middle] + noise + data[middle + 300 :]


@pytest.fixture
def noisy_jpeg():
    steps = np.arange(320 * 240 * 3, dtype=np.float64).reshape(240, 320, 3)
    pixels = (127 + 120 * np.sin(steps / 97)).astype(np.uint8)
    return with_noise_inside(cv2.imencode(".jpg", pixels)[1].tobytes())


def test_jpeg_damaged_within_is_set_aside_although_it_decodes(noisy_jpeg, capfd):
    op = DecodeImage()
    with pytest.raises(ItemError) as caught:
        op(noisy_jpeg, {})

    assert caught.value.kind == "damaged"
    assert "truncated: keep" in str(caught.value)
    assert capfd.readouterr().err == ""  # libjpeg's words are in the error, not on the terminal


def test_jpeg_damaged_within_is_taken_on_request(noisy_jpeg):
    meta = {}
    image = DecodeImage(truncated="keep")(noisy_jpeg, meta)

    assert image.shape == (240, 320, 3)
    assert "Corrupt JPEG data" in meta["damaged"]


def test_what_other_libraries_say_is_kept_from_the_terminal(capfd):
    from gepipe.ops.complaints import Complaints

    complaints = Complaints()
    result, damage = complaints.during(lambda: os.write(2, b"something else\n"))
    complaints.close()

    assert (result, damage, complaints.last) == (15, "", "something else")
    assert capfd.readouterr().err == ""


def png_claiming(width, height):
    def chunk(kind, body):
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    rows = zlib.compress(bytes(height * (1 + width)))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_png_wider_than_the_library_takes_has_a_reason(capfd):
    with pytest.raises(ItemError, match=r"^the PNG file does not decode: \S+"):
        DecodeImage()(png_claiming(100_000_000, 1), {})

    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits"])
@pytest.mark.parametrize("keep", ["fail", "keep"])
def test_damaged_files_of_c_libraries_leave_the_terminal_alone(capfd, compression, keep):
    pixels = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "TIFF", compression=compression)
    data = file.getvalue()
    for at in range(100, len(data) - 40, len(data) // 7):
        broken = data[:at] + b"\xff\x00" * 20 + data[at + 40 :]
        with suppress(ItemError):
            DecodeImage(truncated=keep)(broken, {})

    assert capfd.readouterr().err == ""


PNM = {
    b"P1\n# c\n2 1\n1 0": [0, 255],
    b"P2 2 1 7 1 7": [36, 255],
    b"P4\n9 1\n\xff\x00": [0] * 8 + [255],
    b"P5\n2 1\n255\n\x05\x06": [5, 6],
    b"P5\n2 1\n#c\n100\n\x32\x64": [128, 255],
    b"P5\n2 1\n65535\n\x05\x00\x80\x06": [5, 128],
}


@pytest.mark.parametrize("data", PNM)
def test_pnm_files_are_decoded(data):
    gray = DecodeImage(color="gray")(data, meta := {})

    assert gray[0, :, 0].tolist() == PNM[data]
    assert (meta["height"], meta["width"]) == (1, len(PNM[data]))


@pytest.mark.parametrize("data", [b"P6 2 1 255\n\1\2\3\4\5\6", b"P3 2 1 255\n1 2 3 4 5 6\n"])
def test_pnm_files_have_their_colours(data):
    assert DecodeImage()(data, {}).tolist() == [[[1, 2, 3], [4, 5, 6]]]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"P5", "truncated"),
        (b"P5\n2", "truncated"),
        (b"P5\n2 1\n# c", "truncated"),
        (b"P5\n2 1\n255\n\x05", "truncated"),
        (b"P3\n2 1\n255\n1 2 3 4", "truncated"),
        (b"P5\n0 1\n255\n\x05", "unreadable"),
        (b"P5\n2 1\n0\n\x05\x06", "unreadable"),
        (b"P5\n20000 20000\n255\n\x05", "too_large"),
        (b"P5 is what the processor was called", "not_an_image"),
        (b"P6", "truncated"),
        (b"P8\n1 1\n255\n1", "not_an_image"),
    ],
)
def test_pnm_files_that_are_wrong_are_told_apart(data, kind):
    with pytest.raises(ItemError) as caught:
        DecodeImage()(data, {})

    assert caught.value.kind == kind


def test_a_cut_pnm_file_is_taken_on_request():
    assert DecodeImage(truncated="keep")(b"P5\n2 2\n255\n\5\6\7", {}).shape == (2, 2, 3)


def test_every_ending_that_folders_are_searched_for_is_decoded():
    for ending in IMAGE_EXTENSIONS:
        file = io.BytesIO()
        name = "BMP" if ending == ".dib" else Image.registered_extensions()[ending]
        Image.new("RGB", (9, 9)).save(file, name)
        assert DecodeImage()(file.getvalue(), {}).shape == (9, 9, 3), ending
