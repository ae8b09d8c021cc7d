"""Image sources and lists of files: what they find, in which order, under which names."""

from __future__ import annotations

import io
import json
import os
import pickle
import socket
import sys
import threading
import unicodedata
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest

from gepipe.errors import ConfigError, ItemError
from gepipe.io.arrays import NpyRows
from gepipe.io.files import FileList, FileReader, ImageFiles
from gepipe.io.jsonl import quoted
from gepipe.io.memory import MemoryItems

AWKWARD = [
    os.fsencode(unicodedata.normalize("NFC", "é-ø-照片.jpg")),
    os.fsencode(unicodedata.normalize("NFD", "é-ø.jpg")),
    "שלום.jpg".encode(),
    b" two  spaces .jpg",
    b"new\nline.jpg",
    b"-rf.jpg",
    b"100%d%s.jpg",
    b"quote\"and'back\\slash.jpg",
    b"#hash.jpg",
    b"[a].jpg",
    b"star*.jpg",
    b"l" * 246 + b".jpg",
    b"caf\xe9-\xff\x80.jpg",
]


def names(source):
    return [entry.source for entry in source.entries()]


def touch(folder, *paths):
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")


def lock(path):
    path.chmod(0)
    if os.access(path, os.R_OK):
        path.chmod(0o700)
        pytest.skip("root may read everything")


@pytest.fixture(autouse=True)
def _inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_folder_gives_its_images_in_byte_order_of_the_whole_path(tmp_path):
    touch(tmp_path / "p", "b.jpg", "a/z.png", "a.jpg", "a-b.JPEG", "c/d/e.webp", "notes.txt")

    found = names(ImageFiles("p"))

    assert found == ["p/a-b.JPEG", "p/a.jpg", "p/a/z.png", "p/b.jpg", "p/c/d/e.webp"]
    assert found == sorted(found, key=os.fsencode)


def test_a_folder_is_searched_without_its_sub_folders_on_request(tmp_path):
    touch(tmp_path / "p", "b.jpg", "a/z.png")

    assert names(ImageFiles("p", recursive=False)) == ["p/b.jpg"]


def test_hidden_files_and_folders_are_skipped(tmp_path):
    touch(tmp_path / "p", "a.jpg", ".hidden.jpg", ".git/b.jpg")

    assert names(ImageFiles("p/")) == ["p/a.jpg"]


def test_extensions_may_be_chosen_with_or_without_a_dot(tmp_path):
    touch(tmp_path / "p", "a.jpg", "b.HEIC", "c.raw")

    assert names(ImageFiles("p", extensions=("heic", ".raw"))) == ["p/b.HEIC", "p/c.raw"]


def test_links_in_a_circle_end_and_other_links_are_followed(tmp_path):
    touch(tmp_path / "p", "a.jpg", "sub/b.jpg")
    touch(tmp_path / "far", "c.jpg")
    (tmp_path / "p/sub/up").symlink_to(tmp_path / "p")
    (tmp_path / "p/far").symlink_to(tmp_path / "far")
    (tmp_path / "p/self.d").symlink_to("self.d")

    assert names(ImageFiles("p")) == ["p/a.jpg", "p/far/c.jpg", "p/sub/b.jpg"]


def test_a_dangling_link_to_an_image_is_an_input_that_fails_later(tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p/gone.jpg").symlink_to("nowhere")

    assert names(ImageFiles("p")) == ["p/gone.jpg"]


def test_a_glob_matches_files_of_any_ending_and_walks_folders(tmp_path):
    touch(tmp_path / "p", "b.dat", "a.dat", "c.txt", "class_1/x.jpg", "class_1/y.txt")

    assert names(ImageFiles("p/*.dat")) == ["p/a.dat", "p/b.dat"]
    assert names(ImageFiles("p/class_*")) == ["p/class_1/x.jpg"]
    assert names(ImageFiles("p/**/*.txt")) == ["p/c.txt", "p/class_1/y.txt"]


def test_a_name_that_exists_is_no_glob(tmp_path):
    touch(tmp_path, "[ab].jpg", "a.jpg")

    assert names(ImageFiles("[ab].jpg")) == ["[ab].jpg"]


def test_several_paths_keep_their_order(tmp_path):
    touch(tmp_path, "b.jpg", "a.jpg", "p/c.jpg")

    assert names(ImageFiles(("p", "b.jpg", "a.jpg"))) == ["p/c.jpg", "b.jpg", "a.jpg"]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ("missing.jpg", "'missing.jpg': no such file or folder in"),
        ("*.jpg", r"'\*\.jpg': this glob matches no file in"),
        ("empty", "'empty': no image in this folder, sub-folders included; looked for .jpg, .jpeg"),
        ("texts", "there are other files, such as 'a.txt'"),
        (("a.jpg", "empty"), "'empty': no image in this folder"),
    ],
)
def test_nothing_to_read_is_an_error_that_says_what_was_looked_for(tmp_path, paths, message):
    touch(tmp_path, "texts/a.txt")
    (tmp_path / "empty").mkdir()

    with pytest.raises(ConfigError, match=message):
        names(ImageFiles(paths))


def test_a_missing_file_among_several_is_left_to_fail_as_an_item(tmp_path):
    touch(tmp_path, "a.jpg")

    assert names(ImageFiles(("a.jpg", "missing.jpg"))) == ["a.jpg", "missing.jpg"]


def test_no_path_at_all_is_refused():
    with pytest.raises(ValueError, match="paths is empty"):
        ImageFiles(())


@pytest.mark.parametrize("name", AWKWARD)
def test_any_file_name_is_read_and_comes_back_from_json(tmp_path, name):
    (tmp_path / "p").mkdir()
    with open(os.path.join(b"p", name), "wb") as file:  # noqa: PTH118, PTH123
        file.write(name)

    (entry,) = ImageFiles("p").entries()

    assert FileReader().read(entry.payload) == name
    assert os.fsencode(json.loads(quoted(entry.source))) == b"p/" + name
    quoted(entry.source).decode("utf-8")


def test_large_folders_are_sorted_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("gepipe.io.walk._SORT_COUNT", 3)
    touch(tmp_path / "p", *(f"{number:02}.jpg" for number in range(10)))

    assert names(ImageFiles("p")) == [f"p/{number:02}.jpg" for number in range(10)]


def test_a_list_names_a_file_a_line_and_has_no_comments(tmp_path):
    (tmp_path / "list.txt").write_bytes(
        b"\xef\xbb\xbfa.jpg\r\n\n/abs/b.jpg\n#c.jpg\n d .jpg \ncaf\xe9.jpg"
    )

    assert names(FileList("list.txt")) == [
        "a.jpg",
        "/abs/b.jpg",
        "#c.jpg",
        " d .jpg ",
        "caf\udce9.jpg",
    ]


def test_a_list_may_end_its_names_with_nul(tmp_path):
    (tmp_path / "list.bin").write_bytes(b"new\nline.jpg\0\0b.jpg\r\0")

    assert names(FileList("list.bin", null_separated=True)) == ["new\nline.jpg", "b.jpg\r"]


def test_a_lists_paths_are_looked_for_here_first_and_then_beside_the_list(tmp_path):
    touch(tmp_path, "data/x.jpg", "here.jpg")
    (tmp_path / "data/list.txt").write_text("gone.jpg\nx.jpg\ny.jpg\n")
    (tmp_path / "data/other.txt").write_text("here.jpg\nx.jpg\n")

    assert names(FileList("data/list.txt")) == ["gone.jpg", "data/x.jpg", "data/y.jpg"]
    assert names(FileList("data/other.txt")) == ["here.jpg", "x.jpg"]


def test_a_long_list_is_read_in_blocks(tmp_path):
    expected = [f"{number:0100}.jpg" for number in range(3000)]
    (tmp_path / "list.txt").write_text("\n".join(expected))

    assert names(FileList("list.txt")) == expected


def test_a_dash_reads_the_list_from_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a.jpg\nb.jpg\n")))

    assert names(FileList("-")) == ["a.jpg", "b.jpg"]


@pytest.mark.parametrize(
    ("content", "message"), [(b"\n\n", "the list is empty"), (None, "no such file or directory")]
)
def test_a_list_that_names_nothing_is_an_error(tmp_path, content, message):
    if content is not None:
        (tmp_path / "list.txt").write_bytes(content)

    with pytest.raises(ConfigError, match=message):
        names(FileList("list.txt"))


def refused(payload, **options):
    with pytest.raises(ItemError) as caught:
        FileReader(**options).read(os.fsencode(payload))
    return caught.value.kind, str(caught.value)


def test_a_vanished_file_is_missing():
    assert refused("gone.jpg") == (
        "missing",
        "cannot read 'gone.jpg': no such file or directory",
    )


def test_an_empty_file_is_empty(tmp_path):
    (tmp_path / "a.jpg").touch()

    assert refused("a.jpg") == ("empty", "'a.jpg' is an empty file")


def test_a_nul_byte_in_the_name_of_a_list_is_refused():
    with pytest.raises(ConfigError, match=r"'a.x00b': cannot read this list of files: embedded"):
        next(FileList("a\0b").entries())


def test_a_large_file_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "a.jpg").open("wb") as file:
        file.truncate(1 << 40)

    kind, message = refused("a.jpg")

    assert kind == "too_large"
    assert message == (
        "'a.jpg' has 1,099,511,627,776 bytes; at most 1,073,741,824 are read; "
        "raise the source's max_bytes if the file is right"
    )


def test_a_folder_is_unreadable(tmp_path):
    (tmp_path / "d.jpg").mkdir()

    assert refused("d.jpg") == (
        "unreadable",
        "'d.jpg' is a directory; expected a regular file",
    )


def test_a_file_without_permission_is_unreadable(tmp_path):
    touch(tmp_path, "a.jpg")
    lock(tmp_path / "a.jpg")

    assert refused("a.jpg")[0] == "unreadable"


def test_pipes_devices_and_sockets_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock.jpg")

        assert refused("pipe.jpg")[0] == "unreadable"
        assert refused("sock.jpg")[0] == "unreadable"
        assert refused("/dev/zero")[0] == "unreadable"


def test_a_path_that_no_file_can_have_is_an_item_failure():
    assert refused(b"nul\0.jpg")[0] == "unreadable"
    assert refused(b"l" * 300)[0] == "unreadable"


def test_readers_travel_to_workers(tmp_path):
    touch(tmp_path, "a.jpg")

    assert pickle.loads(pickle.dumps(ImageFiles("a.jpg").reader)).read(b"a.jpg") == b"x"


def test_a_sub_folder_that_cannot_be_listed_fails_as_an_item(tmp_path):
    touch(tmp_path / "p", "a.jpg", "locked/b.jpg")
    lock(tmp_path / "p/locked")
    try:
        assert names(ImageFiles("p")) == ["p/a.jpg", "p/locked"]
        assert refused("p/locked")[0] == "unreadable"
    finally:
        (tmp_path / "p/locked").chmod(0o700)


def listed(monkeypatch, stdin, **options):
    monkeypatch.setattr(sys, "stdin", stdin)
    return list(FileList("-", **options).entries())


def test_a_closed_standard_input_is_said(monkeypatch):
    with pytest.raises(ConfigError, match="standard input is closed"):
        listed(monkeypatch, None)


def test_a_folder_as_standard_input_is_said(monkeypatch, tmp_path):
    class Folder(io.RawIOBase):
        def fileno(self):
            return fd

        def read(self, count=-1):
            return os.read(fd, count)

    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        stdin = SimpleNamespace(buffer=Folder())
        with pytest.raises(ConfigError, match=r"standard input: cannot read .*: is a dir"):
            listed(monkeypatch, stdin)
    finally:
        os.close(fd)


@pytest.mark.parametrize("null_separated", [False, True])
def test_a_list_that_never_ends_is_refused(null_separated):
    with pytest.raises(ConfigError, match="'/dev/zero' is a device; expected a text file"):
        next(FileList("/dev/zero", null_separated=null_separated).entries())


def test_a_line_without_an_end_is_refused(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write():
        with suppress(BrokenPipeError), path.open("wb") as file:
            while True:
                file.write(b"x" * 65536)

    thread = threading.Thread(target=write)
    thread.start()
    with pytest.raises(ConfigError, match="bytes without a line break; expected a text file"):
        next(FileList(str(path)).entries())
    thread.join()


def test_a_list_may_come_through_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    thread = threading.Thread(target=path.write_bytes, args=(b"/a.jpg\n/b.jpg\n",))
    thread.start()

    assert [entry.source for entry in FileList(str(path)).entries()] == ["/a.jpg", "/b.jpg"]
    thread.join()


def test_a_relative_path_starts_where_the_run_started(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    (tmp_path / "a.jpg").write_bytes(b"a")
    (tmp_path / "list.txt").write_text("a.jpg\n")
    np.save(tmp_path / "a.npy", np.arange(3))
    monkeypatch.chdir(tmp_path)
    sources = [ImageFiles("a.jpg"), FileList("list.txt"), MemoryItems(["a.jpg"]), NpyRows("a.npy")]
    entries = [next(source.entries()) for source in sources]
    readers = [source.reader for source in sources]
    monkeypatch.chdir(tmp_path / "other")

    read = [
        pickle.loads(pickle.dumps(reader)).read(entry.payload)
        for reader, entry in zip(readers, entries, strict=True)
    ]

    assert read == [b"a", b"a", b"a", 0]
    assert [entry.source for entry in entries] == ["a.jpg", "a.jpg", "a.jpg", "a.npy[0]"]
