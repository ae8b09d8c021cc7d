from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from gepipe.triton.region import Region, remove_leftovers

KILLED = """
import os, signal
from gepipe.triton.region import Region
print(Region(4096).name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_region_holds_an_array_and_goes_with_its_client() -> None:
    region = Region(64)
    path = Path("/dev/shm") / region.name
    region.write(np.arange(8, dtype=np.int64))
    assert np.array_equal(np.fromfile(path, np.int64), np.arange(8))

    region.close()

    assert not path.exists()


def test_region_of_a_killed_client_is_removed_and_that_of_a_living_one_is_not() -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, check=False, timeout=120
    )
    left = Path("/dev/shm") / killed.stdout.strip()
    assert left.exists()
    mine = Region(64)

    remove_leftovers()

    assert not left.exists()
    assert (Path("/dev/shm") / mine.name).exists()
    mine.close()
