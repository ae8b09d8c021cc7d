from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gepipe.errors import ConfigError
from gepipe.models.aipp import fit_model, split_for_aipp
from gepipe.ops.decode import DecodeImage
from gepipe.ops.image import CenterCrop, Letterbox
from gepipe.ops.plan import plan_pre
from gepipe.ops.resize import Resize
from gepipe.ops.tensor import Cast, Normalize, ToTensor
from gepipe.ops.user import Python

GOLDEN = Path(__file__).parents[2] / "golden" / "aipp"
HEAD = (DecodeImage(), Resize(short_side=16), CenterCrop((8, 12)))
IMAGENET = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "1/255")
CHAINS = {
    "imagenet": ((*HEAD, IMAGENET, ToTensor()), None),
    "imagenet_bgr": ((*HEAD, IMAGENET, ToTensor()), "bgr"),
    "plain": ((*HEAD, ToTensor()), None),
    "grey": ((DecodeImage("gray"), Resize((8, 12)), Normalize(127.5, 127.5), ToTensor()), None),
    "half": ((DecodeImage(), Letterbox((8, 8)), Normalize(scale="1/255"), Cast("float16")), None),
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_file_for_atc_is_as_it_was(name):
    ops, order = CHAINS[name]

    assert split_for_aipp(ops, order=order).aipp.config() == (GOLDEN / f"{name}.cfg").read_text()


@pytest.mark.parametrize("name", CHAINS)
def test_host_and_card_together_do_what_the_host_did_alone(name):
    from gepipe.emulator.om import Aipp
    from gepipe.emulator.preprocess import apply_aipp

    ops, order = CHAINS[name]
    image = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    if name == "grey":
        image = image[:, :, :1]
    split = split_for_aipp(ops, order=order)
    whole = image
    for op in ops[1:]:
        whole = op(whole, {})
    pixels = np.ascontiguousarray(image[:, :, ::-1]) if split.aipp.swap else image
    for op in split.ops[1:]:
        pixels = op(pixels, {})
    assert pixels.dtype == np.uint8

    config = Aipp(
        split.aipp.input_format,
        rbuv_swap_switch=split.aipp.swap,
        min_chn=split.aipp.min_chn,
        var_reci_chn=split.aipp.var_reci_chn,
    )
    by_card = apply_aipp(
        config, pixels[None], str(whole.dtype), channels_first=split.aipp.layout == "nchw"
    )

    np.testing.assert_allclose(by_card[0], whole, rtol=1e-3, atol=2e-5)
    assert split.ops + split.dropped == ops or split.changed


def test_what_is_left_makes_pixels():
    split = split_for_aipp(CHAINS["imagenet_bgr"][0], order="bgr")

    made = plan_pre(split.ops).output_specs()

    assert made is not None
    assert (made.dtype, made.shape) == ("uint8", (8, 12, 3))
    assert [after.title for _, after in split.changed] == ["decode_image bgr"]


@pytest.mark.parametrize(
    ("ops", "order", "words"),
    [
        (HEAD, None, "nothing to move"),
        ((IMAGENET, ToTensor()), None, "what the source gives is not known"),
        ((*HEAD, Python("numpy:sqrt"), IMAGENET, ToTensor()), None, "is not known before it runs"),
        ((*HEAD, ToTensor(), IMAGENET), None, "behind to_tensor"),
        ((*HEAD, IMAGENET, ToTensor(dtype="int8")), None, "floating-point"),
        ((*HEAD, Normalize(-10.0), ToTensor()), None, "0 to 255"),
        ((*HEAD, Normalize((1.0, 2.0)), ToTensor()), None, "3 channels"),
        ((DecodeImage("gray"), Resize(8), ToTensor()), "bgr", "colour image"),
        ((*HEAD, ToTensor(), Resize(9)), None, "the operators do not end|makes"),
    ],
)
def test_what_the_card_cannot_express_is_refused(ops, order, words):
    with pytest.raises(ConfigError, match=words):
        split_for_aipp(ops, order=order)


def test_the_image_must_be_what_the_model_takes():
    aipp = split_for_aipp(CHAINS["imagenet"][0]).aipp

    assert fit_model(aipp, (-1, 3, 8, 12), varies=False) == aipp
    assert fit_model(aipp, (1, 3, -1, -1), varies=True).config().count("_h: 0") == 1
    with pytest.raises(ConfigError, match="8 x 12 x 3"):
        fit_model(aipp, (1, 3, 12, 8), varies=False)
    with pytest.raises(ConfigError, match="4 axes"):
        fit_model(aipp, (1, 3), varies=False)
    unsized = split_for_aipp((DecodeImage(), ToTensor())).aipp
    assert fit_model(unsized, (1, 3, 5, 6), varies=False).width == 6
    with pytest.raises(ConfigError, match="is open in pipeline and model"):
        fit_model(unsized, (1, 3, -1, -1), varies=False)
