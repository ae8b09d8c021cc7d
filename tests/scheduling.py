"""Which worker of pytest-xdist runs which tests, so that no server of a file is started twice."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from pathlib import Path

#: What the tests of a file share, such as a server: it takes seconds to make.
_SHARED = '@pytest.fixture(scope="module")'


class SharedFixtures(LoadScopeScheduling):
    """Deals tests one by one, but those of a file that share something to one worker, first."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if _shares(self.config.rootpath / file) else nodeid


@cache
def _shares(file: Path) -> bool:
    return _SHARED in file.read_text(encoding="utf-8")
