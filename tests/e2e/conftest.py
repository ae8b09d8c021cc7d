"""A real Triton server for the tests, installed where it is missing."""

from __future__ import annotations

import os

import pytest

from gepipe.errors import GepipeError
from gepipe.triton.install import install
from gepipe.triton.kit import Kit


@pytest.fixture(scope="session")
def triton_kit() -> Kit:
    """Return what a server is started from; it stays in the user's cache between runs."""
    try:
        return install()
    except GepipeError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"Triton cannot be installed here: {error}")
