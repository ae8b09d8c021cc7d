from pathlib import Path
from types import SimpleNamespace

import pytest

from gepipe.engines.ge.description import describe
from gepipe.errors import ModelLoadError


def test_dynamic_aipp_is_refused_and_what_to_do_is_said():
    # The emulator has no such models, so this part of ACL is told by hand.
    acl = SimpleNamespace(
        get_num_inputs=lambda _: 1,
        get_input_name=lambda *_: "ascend_dynamic_aipp_data",
        get_input_size=lambda *_: 64,
    )

    with pytest.raises(ModelLoadError, match=r"gepipe model convert MODEL\.onnx --aipp-from"):
        describe(acl, 1, Path("m.om"))  # type: ignore[arg-type]
