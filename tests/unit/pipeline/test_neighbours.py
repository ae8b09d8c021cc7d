import json

import pytest

from gepipe.io.files import FileReader
from gepipe.pipeline import followers, neighbours
from gepipe.runtime.body import ModelInfo
from gepipe.spec import loads
from gepipe.tensors import TensorSpec

IMAGE = TensorSpec("input", "float32", (3, 224, 224))
PROBS = TensorSpec("probs", "float32", (1000,))


def model(inputs=(IMAGE,), outputs=(PROBS,), gears=()):
    return ModelInfo(tuple(inputs), tuple(outputs), tuple(gears))


def pipeline(pre="", post="", batch="auto"):
    return loads(
        f"""
stages:
  - {{name: preprocess, batch_size: {batch}, ops: [{pre}]}}
  - {{name: inference, model: m.onnx}}
  - {{name: postprocess, ops: [{post}]}}
"""
    )


def chain(size=224, layout="nchw", color="rgb", normalize=True):
    ops = [f"decode_image: {{color: {color}}}", f"resize: {{size: {size}}}"]
    ops += ["normalize: {mean: 127, std: 128}"] * normalize
    ops += [f"to_tensor: {{layout: {layout}, dtype: {'float32' if normalize else 'uint8'}}}"]
    return ", ".join(f"{{{op}}}" for op in ops)


def inputs_of(pre, **info):
    return list(neighbours.input_mismatches(pipeline(pre), model(**info)))


def test_a_tensor_that_fits_is_no_finding():
    assert inputs_of(chain()) == []


def test_a_wrong_size_names_both_ends_and_what_to_do():
    (found,) = inputs_of(chain(256))

    assert found == (
        "stage 'preprocess' makes float32 [3, 256, 256]; the model's input 'input' takes float32 "
        "[3, 224, 224]; set the size in resize, center_crop or letterbox to [224, 224]"
    )


@pytest.mark.parametrize(
    ("pre", "row", "remedy"),
    [
        (chain(layout="nhwc"), IMAGE, "to_tensor: {layout: nchw}"),
        (chain(), TensorSpec("x", "float32", (224, 224, 3)), "to_tensor: {layout: nhwc}"),
        (chain(normalize=False), IMAGE, "cast: float32"),
        (chain(), TensorSpec("x", "float32", (1, 224, 224)), "with gray"),
        (chain(), TensorSpec("x", "float32", (150528,)), "make 1 axes"),
    ],
)
def test_each_mismatch_has_its_remedy(pre, row, remedy):
    (found,) = inputs_of(pre, inputs=[row])

    assert remedy in found


def test_a_model_without_a_batch_axis_is_recognised():
    (found,) = inputs_of(chain(), inputs=[TensorSpec("input", "float32", (224, 224))], gears=[3])

    assert "no batch axis" in found


def test_one_tensor_does_not_fill_two_inputs():
    (found,) = inputs_of(chain(), inputs=[IMAGE, TensorSpec("mask", "bool", (7,))])

    assert "'mask' bool [7]" in found
    assert "python: module:function" in found


def test_what_user_code_makes_is_unknown_and_said():
    spec = pipeline("{python: 'numpy:asarray'}")

    assert list(neighbours.input_mismatches(spec, model())) == []
    (found,) = neighbours.unknown_input(spec, model())
    assert "float32 [3, 224, 224]" in found


@pytest.mark.parametrize(
    ("batch", "gears", "padding"),
    [("8", [], None), ("8", [1, 4, 8], None), ("auto", [4], None), ("3", [8], "5 of 8")],
)
def test_padding_is_said(batch, gears, padding):
    found = list(neighbours.batch_mismatches(pipeline(batch=batch), model(gears=gears)))

    assert [padding in each for each in found] == [True] * (padding is not None)


def outputs_of(post, *rows):
    return list(followers.output_mismatches(pipeline(post=post), model(outputs=rows or [PROBS])))


def test_an_output_that_the_model_lacks_is_named_with_the_nearest():
    (found,) = outputs_of("{top_k: {output: prob}}")

    assert found.endswith("the model has no output 'prob'; did you mean 'probs'?")


def test_of_several_outputs_one_must_be_chosen():
    (found,) = outputs_of("top_k", PROBS, TensorSpec("boxes", "float32", (10, 4)))

    assert "'probs', 'boxes'; say which" in found


def test_scores_must_be_one_row():
    (found,) = outputs_of("{top_k: {output: boxes}}", TensorSpec("boxes", "float32", (10, 4)))

    assert "'boxes' makes float32 [10, 4] for one item" in found


def test_labels_must_be_as_many_as_the_classes(tmp_path):
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps(["a", "b", "c"]))

    (found,) = outputs_of(f"{{top_k: {{labels: {labels}}}}}")

    assert "names 3 classes, but the output 'probs' has 1000" in found


def test_boxes_must_be_a_table_whose_layout_the_labels_fit(tmp_path):
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps(["a", "b", "c"]))
    boxes = TensorSpec("output0", "float32", (84, 8400))

    assert outputs_of("yolo", boxes) == []
    assert outputs_of("yolo", TensorSpec("output0", "float32", (84, -1))) == []
    (found,) = outputs_of(f"{{yolo: {{labels: {labels}}}}}", boxes)
    assert "names 3 classes, but the output 'output0' has 80" in found
    (found,) = outputs_of("yolo", PROBS)
    assert "yolo takes a table of boxes; the model's output 'probs' makes float32 [1000]" in found
    (found,) = outputs_of("{yolo: {layout: v5}}", TensorSpec("output0", "float32", (84, 5)))
    assert "which is not of the layout v5" in found
    (found,) = outputs_of("yolo", boxes, PROBS)
    assert "say which one it works on" in found


def test_text_is_found_in_a_map_and_read_from_steps_with_the_models_own_characters(tmp_path):
    characters = tmp_path / "characters.txt"
    characters.write_text("a\nb\n")
    ctc, steps = f"{{ctc: {characters}}}", TensorSpec("steps", "float32", (-1, 3))

    assert outputs_of("text_boxes", TensorSpec("map", "float32", (1, -1, -1))) == []
    (found,) = outputs_of("text_boxes", PROBS)
    assert "text_boxes takes a map of probabilities; the model's output 'probs'" in found
    assert outputs_of(ctc, steps) == outputs_of(ctc, TensorSpec("steps", "float32", (40, 4))) == []
    (found,) = outputs_of(ctc, TensorSpec("steps", "float32", (-1, 18710)))
    assert "has 2 characters, but the output 'steps' has 18710 classes with the blank" in found
    (found,) = outputs_of(ctc, PROBS)
    assert "ctc takes the characters' probabilities a step" in found
    assert outputs_of("{ctc: /no/such/file}", steps) == []  # the operator itself tells
    assert outputs_of(f"{{ctc: {{characters: {characters}, output: best}}}}", steps) != []


def test_what_follows_user_code_or_a_record_is_not_judged():
    assert outputs_of("{python: 'numpy:asarray'}, {top_k: {output: other}}") == []
    assert outputs_of("top_k, {threshold: {min_score: 0.5, output: other}}") == []
    assert outputs_of("softmax, top_k") == []
    assert outputs_of("{identity: [probs, nothing]}") != []


@pytest.mark.parametrize(
    ("ops", "found"),
    [
        ("{resize: {size: 224}}, to_tensor", "begins with resize"),
        ("", "has no operators"),
        ("decode_image, to_tensor", None),
        ("{python: 'json:loads'}", None),
    ],
)
def test_files_that_nobody_decodes_are_a_finding(ops, found):
    lines = list(neighbours.undecoded_source(pipeline(ops), FileReader()))

    assert [found in line and "decode_image" in line for line in lines] == [True] * bool(found)


def test_arrays_need_no_decoding():
    assert not list(neighbours.undecoded_source(pipeline("to_tensor"), object()))


def test_an_open_size_for_a_fixed_input_is_said():
    ops = "{decode_image: rgb}, {normalize: {mean: 127}}, to_tensor"

    (found,) = neighbours.open_size(pipeline(ops), model())

    assert "makes float32 [3, any, any], as large as the inputs are" in found
    assert not list(neighbours.open_size(pipeline(chain()), model()))
    assert not list(neighbours.open_size(pipeline("{python: 'a:b'}, to_tensor"), model()))
    free = TensorSpec("input", "float32", (3, -1, -1))
    assert not list(neighbours.open_size(pipeline(ops), model(inputs=[free])))


@pytest.mark.parametrize(("layout", "shape"), [("nchw", (3, 8, 6)), ("nhwc", (8, 6, 3))])
def test_an_open_number_of_channels_is_no_open_size(layout, shape):
    ops = "{python: 'a:b'}, {resize: [8, 6]}, {normalize: {mean: 127}}, {to_tensor: LAYOUT}"
    row = TensorSpec("input", "float32", shape)

    (found,) = neighbours.open_size(pipeline(ops.replace("LAYOUT", layout)), model(inputs=[row]))

    assert found.startswith("how many channels stage 'preprocess' makes is only known when it runs")
    assert "resize" not in found


def test_a_model_with_aipp_and_one_without_are_told_apart():
    pixels = TensorSpec("input", "uint8", (224, 224, 3))

    (found,) = inputs_of(chain(), inputs=[pixels])
    assert found.endswith("or set `backend: {ge: {aipp: true}}`")
    plain = "{decode_image: rgb}, {resize: 224}"
    (found,) = neighbours.input_mismatches(pipeline(plain), model(), aipp=True)
    assert found.endswith("convert it with --aipp-from, or leave `aipp: true` out")
