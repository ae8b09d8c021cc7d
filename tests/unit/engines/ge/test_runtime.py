from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from gepipe.engines.engine import EngineOptions
from gepipe.engines.ge import devices, library
from gepipe.engines.ge.codes import CODES
from gepipe.engines.ge.engine import GeEngine
from gepipe.engines.ge.failures import error_class
from gepipe.engines.ge.runtime import Acl
from gepipe.errors import (
    BackendError,
    ConfigError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceTimeoutError,
    ModelLoadError,
)


def module(**functions) -> ModuleType:
    fake = ModuleType("acl")
    for name in ("rt", "mdl"):
        setattr(fake, name, SimpleNamespace())
    for name, function in functions.items():
        part, _, last = name.partition("__")
        setattr(getattr(fake, part) if last else fake, last or part, function)
    return fake


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_becomes_an_error_with_its_name(code) -> None:
    acl = Acl(module(rt__malloc=lambda *_: (0, code), get_recent_err_msg=lambda: "EL0004: no\n"))

    with pytest.raises(DeviceError) as failure:
        acl.malloc(64, 0)

    text = str(failure.value)
    assert text.startswith(f"acl.rt.malloc(size=64, policy=0): {code} {CODES[code].name}: ")
    assert text.endswith("; CANN says: EL0004: no")
    assert failure.value.code == code
    assert type(failure.value) is error_class(code)


def test_unknown_code_is_an_error_too() -> None:
    acl = Acl(module(rt__free=lambda _: 999, get_recent_err_msg=lambda: None))

    with pytest.raises(DeviceError, match=r"acl\.rt\.free\(pointer=64\): 999 \(unknown code\)$"):
        acl.free(64)


def test_codes_mean_what_is_to_be_done() -> None:
    assert error_class(207001) is DeviceMemoryError
    assert error_class(507046) is DeviceTimeoutError
    assert error_class(507010) is DeviceLostError
    assert DeviceLostError.fatal
    assert not DeviceMemoryError.fatal


def test_function_of_a_newer_release_is_missed_when_it_is_called() -> None:
    acl = Acl(module())

    assert not acl.has("mdl.get_desc_from_file")
    with pytest.raises(BackendError, match=r"has no acl\.rt\.malloc"):
        acl.malloc(1, 0)


def test_without_cann_there_is_no_silent_emulator(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("GEPIPE_ACL", raising=False)
    monkeypatch.setitem(sys.modules, "acl", None)

    with pytest.raises(BackendError, match=r"pyACL does not import.*set_env\.sh"):
        GeEngine.open(tmp_path / "m.om", EngineOptions())


def test_another_module_of_that_name_is_refused(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("GEPIPE_ACL", raising=False)
    monkeypatch.setitem(sys.modules, "acl", ModuleType("acl"))

    with pytest.raises(BackendError, match="is not pyACL"):
        GeEngine.open(tmp_path / "m.om", EngineOptions())


def test_option_and_environment_have_the_same_words(monkeypatch) -> None:
    monkeypatch.setenv("GEPIPE_ACL", "npu")
    assert not library.wants_emulator("auto")
    assert library.wants_emulator("emulator")
    monkeypatch.setenv("GEPIPE_ACL", "emulator")
    assert library.wants_emulator("auto")
    assert not library.wants_emulator("npu")

    monkeypatch.setenv("GEPIPE_ACL", "card")
    for refused in ("auto", "card"):
        with pytest.raises(ConfigError, match=r"'card': expected `emulator` or `npu`"):
            library.wants_emulator(refused)


def test_model_is_needed() -> None:
    with pytest.raises(ModelLoadError, match="needs a model"):
        GeEngine.open(None, EngineOptions())


def test_profile_without_emulator_is_refused(monkeypatch) -> None:
    monkeypatch.delenv("GEPIPE_ACL", raising=False)

    with pytest.raises(ConfigError, match="device: emulator"):
        library.acquire("auto", "published")


@pytest.mark.parametrize(
    ("listed", "seen"),
    [
        (None, (0, 1, 2, 3)),
        ("1,3", (0, 1)),
        ("2", (0,)),
        ("", ()),
        ("1, 3", (0,)),
        ("3,1", (0,)),
        ("0,9,1", (0,)),
    ],
)
def test_visible_devices_are_read_as_cann_reads_them(monkeypatch, listed, seen) -> None:
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", listed)

    assert devices.visible(4) == seen


def test_cards_are_counted_by_their_nodes(tmp_path) -> None:
    for name in ("davinci0", "davinci3", "davinci_manager", "null"):
        (tmp_path / name).touch()

    assert devices.cards(tmp_path) == 2
    assert devices.cards(tmp_path / "missing") == 0


def test_emulated_devices_are_those_of_the_profile(monkeypatch) -> None:
    monkeypatch.setenv("GEPIPE_ACL", "emulator")
    monkeypatch.setenv("GEPIPE_ACL_PROFILE", "published")
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)

    assert GeEngine.visible_devices() == (0, 1)
    assert GeEngine.visible_devices({"profile": "default"}) == (0,)
    assert "acl" not in sys.modules
