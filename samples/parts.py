"""What a sample is made of: files inside published packages, files of the repository, drawings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LINUX_X86_64 = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_24_x86_64",
    "manylinux2014_x86_64",
)


@dataclass(frozen=True)
class Package:
    """A published package: a wheel of PyPI, a tarball of npm, or a package of Debian.

    Attributes:
        requirement: Exact name and version, as `name==version`, or `name@version` of npm, or
            `source/name_version_architecture.deb` of Debian.
        python_version: The Python that a compiled wheel is made for; None for a pure one.
        registry: Where it is published.
    """

    requirement: str
    python_version: str | None = None
    registry: Literal["pypi", "npm", "debian"] = "pypi"

    @property
    def selection(self) -> tuple[str, ...]:
        """The options that make a package client take this very wheel on any machine."""
        if self.python_version is None:
            return ()
        platforms = (option for name in LINUX_X86_64 for option in ("--platform", name))
        return ("--implementation", "cp", "--python-version", self.python_version, *platforms)


@dataclass(frozen=True)
class Member:
    """A file inside a package.

    Attributes:
        package: What holds it.
        path: Its path inside.
        sha256: Its pinned sum; a file with another one is refused.
    """

    package: Package
    path: str
    sha256: str


@dataclass(frozen=True)
class Drawing:
    """A picture that is drawn here, the same one each time.

    Attributes:
        module: The module beside this one whose `draw(number) -> bytes` makes it.
        number: Which of its pictures.
    """

    module: str
    number: int


@dataclass(frozen=True)
class Asset:
    """A file that a sample puts under its destination.

    Attributes:
        path: Where it goes, relative to the destination.
        sha256: The pinned sum of the finished file; empty for a drawing, as another version of
            OpenCV draws letters a little otherwise.
        member: What it is made from; text if it is a file of the repository, whose path beside
            this module it is.
        credit: Author and licence, for the credits file.
        converter: The module beside this one whose `convert(bytes) -> bytes` makes it from the
            member; None if it is the member itself.
        also: Further files that the converter takes, behind the member.
        optional: Whether the sample is of use without it, where it cannot be had.
    """

    path: str
    sha256: str
    member: Member | Drawing | str
    credit: str
    converter: str | None = None
    also: tuple[Member, ...] = ()
    optional: bool = False

    @property
    def members(self) -> tuple[Member, ...]:
        """What it is made from out of packages."""
        return (self.member, *self.also) if isinstance(self.member, Member) else ()


@dataclass(frozen=True)
class Sample:
    """The model and the media that one ready pipeline needs."""

    name: str
    summary: str
    assets: tuple[Asset, ...]
