import json

import pytest

from gepipe.triton.description import called, curl_line, described, emulated


def config(inputs, batch=8, steps=()):
    def tensor(name, kind, dims):
        return {"name": name, "data_type": kind, "dims": dims}

    found = {
        "max_batch_size": batch,
        "input": [tensor(*each) for each in inputs],
        "output": [tensor("RESULT", "TYPE_STRING", ["1"])],
    }
    if steps:
        found["ensemble_scheduling"] = {"step": [{"model_name": step} for step in steps]}
    return found


IMAGE = ("IMAGE", "TYPE_STRING", ["1"])
PIXELS = ("pixels", "TYPE_FP32", ["3", "-1", "-1"])


def test_an_ensemble_is_told_and_its_steps_are_not() -> None:
    configs = {"photo": config([IMAGE], steps=["pre", "post"]), "pre": config([IMAGE]),
               "post": config([PIXELS]), "raw": config([PIXELS], batch=0)}  # fmt: skip

    assert called(configs) == ["photo", "raw"]
    assert described(configs) == [
        "  photo: runs pre, post; batches up to 8",
        "    takes IMAGE: bytes or text (batch, 1)",
        "    gives RESULT: bytes or text (batch, 1)",
        "  raw: no batches",
        "    takes pixels: float32 (3, any, any)",
        "    gives RESULT: bytes or text (1)",
    ]


def test_a_file_can_be_sent_to_a_model_of_one_text() -> None:
    line = curl_line("http://127.0.0.1:8000", {"a": config([PIXELS]), "photo": config([IMAGE])})

    assert line.startswith("curl -s http://127.0.0.1:8000/v2/models/photo/infer -H ")
    assert line.endswith(" --data-binary @photo.jpg | tr '\\0' '\\n' | tail -n 1")
    assert curl_line("http://x", {"a": config([PIXELS]), "b": config([IMAGE, PIXELS])}) == ""


def ge(**texts: str) -> dict:
    parameters = {key: {"string_value": value} for key, value in texts.items()}
    return {"backend": "ge", "parameters": parameters}


@pytest.mark.parametrize(
    ("config", "chosen", "expected"),
    [
        (ge(), "emulator", ["m"]),
        (ge(), "", []),
        (ge(engine_options=json.dumps({"device": "emulator"})), "", ["m"]),
        (ge(engine_options=json.dumps({"device": "npu"})), "emulator", []),
        (ge(engine="onnxruntime"), "emulator", []),
        (ge(engine_options="{"), "emulator", []),
        ({"backend": "python"}, "emulator", []),
    ],
)
def test_models_on_an_emulated_card_are_told(config, chosen, expected) -> None:
    assert emulated({"m": config}, chosen) == expected
