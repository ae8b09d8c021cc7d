"""Cards for the contract tests.

`card` runs a test on the emulator in strict mode and, with `-m npu`, on a real card. Rules whose
breach is undefined on hardware take `emulated` (strict) or `lenient` (compatible), never a real
card. The models for a real card are made with atc and found by GEPIPE_NPU_MODELS, a folder with
static.om, batch.om, hw.om, dims.om and range.om of the same graphs as in `card.write_models`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gepipe.emulator.installation import create
from gepipe.emulator.profile import parse_profile
from tests.contract.card import Card, write_models


@pytest.fixture(autouse=True)
def sigint_is_as_before() -> Iterator[None]:
    """Put the handler back that acl.util.start_thread takes away."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def make(models: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Card]]:
    """Return a function that makes emulated cards, strict unless told otherwise."""
    made: list[Card] = []

    def make_card(mode: str = "strict", **profile: Any) -> Card:
        described = parse_profile({"name": f"test-{os.getpid()}", **profile})
        card = Card(create(described, mode, quiet=True), tmp_path, models=models)
        made.append(card)
        return card

    yield make_card
    for card in made:
        card.machine.close()


@pytest.fixture
def emulated(make: Callable[..., Card]) -> Card:
    return make().open()


@pytest.fixture
def lenient(make: Callable[..., Card]) -> Card:
    return make("compatible").open()


@pytest.fixture(params=["emulator", pytest.param("npu", marks=pytest.mark.npu)])
def card(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Card]:
    """A card with a device, a context and a stream; fails a test that leaves anything behind."""
    if request.param == "emulator":
        opened = request.getfixturevalue("emulated")
    else:
        opened = real_card(tmp_path).open()
    yield opened
    opened.close()


def real_card(folder: Path) -> Card:
    assert "gepipe.emulator.auto" not in sys.modules
    acl = pytest.importorskip("acl")
    assert acl.init() in (0, 100002)
    found = Path(os.environ.get("GEPIPE_NPU_MODELS", "/nonexistent")).glob("*.om")
    return Card(acl, folder, real=True, models={path.stem: str(path) for path in found})
