"""Samples out of packages of Debian, without a network, root or Debian."""

import gzip
import importlib
import io
import lzma
import stat
import tarfile

import pytest

from gepipe import bundle

fetcher = bundle.load_fetcher()
store = fetcher.store
catalogue = importlib.import_module("gepipe_samples.catalogue")
debian = importlib.import_module("gepipe_samples.debian")

FILM = b"a film" * 1000
NAME = "opencv/opencv-doc_1+dfsg-2_all.deb"
PACKAGE = catalogue.Package(NAME, registry="debian")
MEMBER = catalogue.Member(PACKAGE, "usr/share/film.avi", store.sha256_of(FILM))


def deb(pack=lzma.compress, ending=".xz") -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path, data in (("./usr/share/other", b"x"), ("./usr/share/film.avi", FILM)):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    whole = b"!<arch>\n"
    members = (("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"))
    for name, data in (*members, (f"data.tar{ending}", pack(content.getvalue()))):
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n"
        whole += head.encode() + data + b"\n" * (len(data) % 2)
    return whole


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A folder that stands for Debian's address."""
    folder = tmp_path / "debian"
    place = folder / "o" / "opencv"
    place.mkdir(parents=True)
    monkeypatch.setattr(debian, "_ARCHIVE", folder.as_uri())
    return place / "opencv-doc_1+dfsg-2_all.deb"


@pytest.fixture
def no_apt(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))


@pytest.fixture
def sample(monkeypatch):
    assets = (
        catalogue.Asset("media/own.txt", store.sha256_of(b"own"), "own.txt", "us"),
        catalogue.Asset("media/film.avi", MEMBER.sha256, MEMBER, "somebody; MIT", optional=True),
    )
    monkeypatch.setattr(fetcher, "_own", lambda _asset, _name: b"own")
    monkeypatch.setitem(fetcher.SAMPLES, "made-up", catalogue.Sample("made-up", "", assets))


def test_the_address_is_debians_own():
    assert debian.address(PACKAGE) == (
        "https://deb.debian.org/debian/pool/main/o/opencv/opencv-doc_1%2Bdfsg-2_all.deb"
    )


@pytest.mark.parametrize(
    ("pack", "ending"), [(lzma.compress, ".xz"), (gzip.compress, ".gz"), (bytes, "")]
)
def test_a_file_is_read_however_it_is_packed(tmp_path, pack, ending):
    path = tmp_path / "package.deb"
    path.write_bytes(deb(pack, ending))

    assert debian.read(path, [MEMBER]) == {MEMBER: FILM}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"<html>", "not a package"),
        (b"!<arch>\n" + b"x" * 60, "damaged"),
        (deb(ending=".zst"), "packed as .zst"),
        (b"!<arch>\n", "no files"),
    ],
)
def test_other_files_are_refused(tmp_path, data, says):
    path = tmp_path / "package.deb"
    path.write_bytes(data)

    with pytest.raises(tarfile.TarError, match=says):
        debian.read(path, [MEMBER])


@pytest.mark.usefixtures("sample", "no_apt")
def test_the_package_is_fetched_without_apt(archive, tmp_path):
    archive.write_bytes(deb())

    files = fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")

    assert [file.read_bytes() for file in files] == [b"own", FILM]


@pytest.mark.usefixtures("sample", "archive")
def test_apt_is_asked_where_the_address_is_not_reached(tmp_path, monkeypatch):
    package = tmp_path / "mirror.deb"
    package.write_bytes(deb())
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$1" = download ] && /bin/cp {package} "$3_3_all.deb"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent))

    files = fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache")

    assert files[1].read_bytes() == FILM


@pytest.mark.usefixtures("sample", "archive", "no_apt")
def test_a_sample_is_brought_without_what_it_can_do_without(tmp_path):
    said = []

    files = fetcher.fetch("made-up", tmp_path / "to", cache=tmp_path / "cache", report=said.append)

    assert [file.name for file in files] == ["own.txt"]
    assert not (tmp_path / "to/media/film.avi").exists()
    (left_out,) = (line for line in said if line.startswith("left out"))
    assert "media/film.avi" in left_out
    assert "apt-get download opencv-doc" in left_out


def test_a_video_of_pypi_is_always_there_and_that_of_debian_optional():
    assets = {asset.path: asset for asset in catalogue.DETECT_VIDEO.assets}

    assert not assets["media/videos/bikes.mp4"].optional
    assert assets["media/videos/vtest.avi"].optional
