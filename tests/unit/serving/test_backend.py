from __future__ import annotations

import json
import math

import numpy as np
import pytest

from gepipe.emulator.om import Gears, OmTensor, write_om
from gepipe.errors import ConfigError, ItemError, ModelLoadError, TensorMismatchError
from gepipe.pipeline.crews import pickled, worker_environment
from gepipe.runtime.memory import SlotLayout
from gepipe.serving import rawrows
from gepipe.serving.autocomplete import complete
from gepipe.serving.declared import Declared
from gepipe.serving.execution import Execution
from gepipe.serving.host import ExecutionError, ModelHost
from gepipe.serving.merging import Query, checked_rows, pack
from gepipe.serving.settings import Settings
from gepipe.serving.textrows import TextRows
from gepipe.tensors import TensorSpec
from tests.support import INPUT, OUTPUT, WIDTH, Fate, Infer, doubling_model, onnx_model

X = TensorSpec("x", "float32", (4,))
Y = TensorSpec("y", "float32", (4,))


def tensor(name: str, kind: str = "FP32", dims=(4,), **more) -> dict:
    return {"name": name, "data_type": f"TYPE_{kind}", "dims": list(dims), **more}


def config(**more) -> dict:
    """Return a configuration as the server hands it on."""
    return {
        "name": "m",
        "max_batch_size": 8,
        "input": [tensor("x")],
        "output": [tensor("y")],
        **more,
    }


def parameters(**texts) -> dict:
    return {"parameters": {name: {"string_value": text} for name, text in texts.items()}}


# --- settings -------------------------------------------------------------------------------------


@pytest.fixture
def om(tmp_path):
    """Return a version folder that holds a model for the emulator."""
    tensors = {
        side: [OmTensor(name, "float32", (-1, 4))]
        for side, name in (("inputs", "x"), ("outputs", "y"))
    }
    gears = Gears("batch", ((1,), (4,), (16,)))
    write_om(tmp_path / "model.om", None, **tensors, gears=gears)
    return tmp_path


def test_settings_say_how_the_model_is_opened(om) -> None:
    given = parameters(
        device_ids="2,5", timeout="50ms", threads="3", precision="fp16", gears="1,4",
        stage="inference", engine_options='{"device": "emulator"}',
    )  # fmt: skip

    groups = {"instance_group": [{"count": 2}]}
    settings = Settings.read(config(**given, **groups), om, "m_0_1", 8)

    assert (settings.engine, settings.stage, settings.model) == ("ge", "inference", om / "model.om")
    (options,) = settings.places
    assert (options.device, options.threads, options.batch_size) == (5, 3, 8)
    assert (options.timeout_s, options.precision, options.gears) == (0.05, "fp16", (1, 4))
    assert options.extra == {"device": "emulator"}


@pytest.mark.parametrize(
    ("instance", "device"),
    [("m_0_0", 2), ("m_0_1", 5), ("m_0_2", 2), ("m_1_0", 5), ("m_1_1", 2), ("m_0", 2)],
)
def test_instances_take_devices_in_turn(om, instance, device) -> None:
    groups = {"instance_group": [{"count": 3}, {"count": 2}]}
    settings = Settings.read(config(**parameters(device_ids="2,5"), **groups), om, instance)
    assert [each.device for each in settings.places] == [device]


@pytest.mark.parametrize(
    ("instance", "count", "instances", "devices"),
    [
        ("m_0_0", 1, "1", [2, 5, 7]),
        ("m_0_0", 1, "2", [2, 2, 5, 5, 7, 7]),
        ("m_0_0", 2, "1", [2, 7]),
        ("m_0_1", 2, "1", [5]),
    ],
)
def test_instance_that_forms_batches_serves_several_devices(
    om, instance, count, instances, devices
) -> None:
    told = parameters(device_ids="2,5,7", instances=instances, max_queue_size="9")
    settings = Settings.read(config(**told, instance_group=[{"count": count}]), om, instance)

    assert [each.device for each in settings.places] == devices


def test_instances_without_a_device_are_refused(om) -> None:
    told = parameters(device_ids="2,5", max_queue_size="9")
    with pytest.raises(ConfigError, match="at least one for each instance"):
        Settings.read(config(**told, instance_group=[{"count": 3}]), om, "m_0_0")
    with pytest.raises(ConfigError, match="parameter instances: is for a backend that forms"):
        Settings.read(config(**parameters(instances="2")), om, "m_0_0")


def test_device_without_an_instance_is_refused(om) -> None:
    given = config(**parameters(device_ids="0,1,2"), instance_group=[{"count": 1}, {}])
    with pytest.raises(ConfigError, match="3 devices for an instance_group of 2; expected `count"):
        Settings.read(given, om)


def test_settings_have_defaults(om) -> None:
    settings = Settings.read(config(), om, "m_0_0")

    assert (settings.engine, settings.stage) == ("ge", "m")
    assert [(each.device, each.timeout_s) for each in settings.places] == [(0, None)]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"engin": "ge"}, "parameter engin: unknown; did you mean 'engine'"),
        ({"engine": "tensorrt"}, "'tensorrt' is not installed; installed: ge, onnxruntime"),
        ({"device_ids": "a"}, "parameter device_ids: 'a'; expected numbers"),
        ({"device_ids": "-1"}, "parameter device_ids: '-1'; expected numbers"),
        ({"threads": "two"}, "parameter threads: 'two'"),
        ({"timeout": "soon"}, "parameter timeout: expected a duration such as 50ms"),
        ({"engine_options": "{"}, "parameter engine_options: not JSON"),
        ({"engine_options": "[1]"}, "expected a JSON object"),
    ],
)
def test_wrong_parameters_are_refused_by_name(om, texts, message) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(").replace("[", r"\[")):
        Settings.read(config(**parameters(**texts)), om)


def test_parameters_of_the_server_are_left_alone(om) -> None:
    given = parameters(EXECUTION_ENV_PATH="/opt/env", FORCE_CPU_ONLY_INPUT_TENSORS="yes")
    assert Settings.read(config(**given), om).engine == "ge"


def test_onnx_file_where_om_belongs_names_the_conversion(tmp_path) -> None:
    model = doubling_model(tmp_path / "model.onnx")

    with pytest.raises(ModelLoadError) as caught:
        Settings.read(config(), tmp_path)

    assert "model file is not .om format" in str(caught.value)
    assert f"gepipe model convert {model}" in str(caught.value)
    assert 'engine to "onnxruntime"' in str(caught.value)


def test_model_file_is_found_or_named(tmp_path) -> None:
    given = parameters(engine="onnxruntime")
    with pytest.raises(ModelLoadError, match="there is no model file"):
        Settings.read(config(**given), tmp_path)

    doubling_model(tmp_path / "b.onnx")
    (tmp_path / "notes.txt").touch()
    assert Settings.read(config(**given), tmp_path).model.name == "b.onnx"

    doubling_model(tmp_path / "a.onnx")
    with pytest.raises(ModelLoadError, match=r"several model files: a\.onnx, b\.onnx"):
        Settings.read(config(**given), tmp_path)
    named = config(**given, default_model_filename="b.onnx")
    assert Settings.read(named, tmp_path).model.name == "b.onnx"
    with pytest.raises(ModelLoadError, match=r"c\.onnx: no such file"):
        Settings.read({**named, "default_model_filename": "c.onnx"}, tmp_path)


# --- declared tensors -----------------------------------------------------------------------------


def test_open_extents_are_filled_in_from_the_configuration() -> None:
    declared = Declared.read(config(input=[tensor("x", dims=(3, 8))]))

    inputs, _ = declared.matched([TensorSpec("x", "float32", (3, -1))], [Y])

    assert inputs == (TensorSpec("x", "float32", (3, 8)),)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"input": [tensor("z")]}, "the model has no input 'z'; did you mean|the model has no"),
        ({"input": [tensor("x"), tensor("z")]}, "the model has no input 'z'"),
        ({"output": [tensor("z")]}, "the model has no output 'z'"),
        ({"input": []}, r"input x: float32 \[4\] of the model is not in the configuration"),
        (
            {"input": [tensor("x", "FP16")]},
            r"input 'x' is TYPE_FP16 \[4\] in the configuration, but in the model TYPE_FP32 \[4\]",
        ),
        ({"input": [tensor("x", dims=(5,))]}, r"TYPE_FP32 \[5\] in the configuration"),
        ({"output": [tensor("y", dims=(1, 4))]}, r"output 'y' is TYPE_FP32 \[1, 4\]"),
    ],
)
def test_configuration_that_does_not_fit_the_model_is_refused(changed, message) -> None:
    with pytest.raises(TensorMismatchError, match=message):
        Declared.read(config(**changed)).matched([X], [Y])


def test_types_that_no_engine_takes_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"'x': TYPE_BF16 is not supported: .*convert the model to FP16 or FP32"
    ):
        Declared.read(config(input=[tensor("x", "BF16")]))


PIXELS = TensorSpec("pixels", "uint8", (2, 3))


def test_rows_of_bytes_may_be_declared_as_one_element() -> None:
    given = {"input": [tensor("pixels", "STRING", (1,))], "output": [tensor("y", "STRING", (1,))]}
    labels = TensorSpec("y", "int8", (5,))
    declared = Declared.read(config(**given))

    assert declared.matched([PIXELS], [labels]) == ((PIXELS,), (labels,))
    assert rawrows.raw_of(declared.inputs, [PIXELS]) == {"pixels": (1,)}


@pytest.mark.parametrize(
    ("model", "dims", "message"),
    [
        (
            TensorSpec("x", "float32", (4,)),
            (1,),
            r"'x' is TYPE_STRING .*, which carries rows of TYPE_UINT8 or TYPE_INT8 .*FP32 \[4\]",
        ),
        (
            TensorSpec("x", "uint8", (4,)),
            (4,),
            r"'x' is TYPE_STRING .* with \[4\] elements a row; expected dims \[ 1 \]",
        ),
        (
            TensorSpec("x", "uint8", (-1, 3)),
            (1,),
            r"in the model it is TYPE_UINT8 \[-1, 3\], whose size is open",
        ),
    ],
)
def test_elements_of_bytes_that_no_row_can_be_are_refused(model, dims, message) -> None:
    declared = Declared.read(config(input=[tensor("x", "STRING", dims)]))
    with pytest.raises(TensorMismatchError, match=message):
        declared.matched([model], [Y])


def test_rows_go_through_their_bytes_and_back() -> None:
    rows = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)

    elements = rawrows.elements_of(rows, (1,))

    assert elements.tolist() == [[bytes(range(6))], [bytes(range(6, 12))]]
    assert np.array_equal(rawrows.rows_from(elements, PIXELS), rows)
    assert rawrows.elements_of(rows, ()).shape == (2,)
    assert rawrows.rows_from(rawrows.elements_of(rows[:0], (1,)), PIXELS).shape == (0, 2, 3)


def test_bytes_of_another_size_are_refused_by_name_and_row() -> None:
    elements = np.array([[b"123456"], [b"12345"]], object)
    with pytest.raises(
        ItemError,
        match=r"input 'pixels': row 1 has 5 bytes; expected 6, a row of uint8 \[2, 3\]",
    ):
        rawrows.rows_from(elements, PIXELS)
    with pytest.raises(ItemError, match=r"'pixels' is uint8 \[2, 6\]; expected BYTES \[2, 1\]"):
        rawrows.rows_from(np.zeros((2, 6), np.uint8), PIXELS)


# --- strings --------------------------------------------------------------------------------------

WORDS = TensorSpec("words", "string", (2,))


def test_strings_of_a_model_are_declared_with_their_dims() -> None:
    tags = TensorSpec("y", "string", (-1,))
    given = {"input": [tensor("words", "STRING", (2,))], "output": [tensor("y", "STRING", (3,))]}
    declared = Declared.read(config(**given))

    filled = TensorSpec("y", "string", (3,))
    assert declared.matched([WORDS], [tags]) == ((WORDS,), (filled,))
    assert rawrows.raw_of(declared.inputs, [WORDS]) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("words", "STRING", (3,)), r"TYPE_STRING \[3\] in the config.*model TYPE_STRING \[2\]"),
        (("words", "FP32", (2,)), r"TYPE_FP32 \[2\] in the config.*model TYPE_STRING \[2\]"),
    ],
)
def test_strings_that_are_declared_otherwise_are_refused(given, message) -> None:
    declared = Declared.read(config(input=[tensor(*given)]))
    with pytest.raises(TensorMismatchError, match=message):
        declared.matched([WORDS], [Y])


def test_completion_declares_strings(tmp_path) -> None:
    onnx_model(
        tmp_path / "model.onnx",
        [("Identity", ["x"], ["y"], {})],
        {"x": ("string", ["n", 4])},
        {"y": ("string", ["n", 4])},
    )

    made = completed({**EMPTY, **ONNX}, tmp_path)

    assert made["input"] == [tensor("x", "STRING")]
    assert made["output"] == [tensor("y", "STRING")]
    assert made["max_batch_size"] == 8


def test_strings_of_requests_lie_in_rows_and_come_back() -> None:
    tags = TensorSpec("tag", "string", ())
    texts = TextRows((WORDS, X, tags), 64)
    values = np.array([[b"a", "ü\0".encode()], [b"", b"0123456789"]], object)

    rows = texts.rows_from("words", values)

    assert [spec.dtype for spec in texts.packed([WORDS, X])] == ["uint8", "float32"]
    assert texts.packed([WORDS])[0].shape == rows.shape[1:] == (4 + 64,)
    assert texts.elements_of("words", rows).tolist() == values.tolist()
    assert texts.rows_from("words", values[:0]).shape == (0, *rows.shape[1:])
    assert texts.elements_of("words", rows[:0]).shape == (0, 2)
    single = texts.rows_from("tag", np.array([b"x", b"yz"], object))
    assert texts.elements_of("tag", single).tolist() == [b"x", b"yz"]


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (
            np.array([[b"a"]], object),
            "shape",
            r"'words' is object \[1, 1\]; expected BYTES \[rows, 2\]",
        ),
        (np.zeros((1, 2)), "shape", r"'words' is float64 \[1, 2\]; expected BYTES"),
        (
            np.array([[b"a", b"b"], [b"c", b"ab\xff"]], object),
            "not_text",
            r"'words': row 1 is not UTF-8: invalid start byte at byte 2",
        ),
        (
            np.array([[b"a", b"b"], [b"x" * 56, b""], [b"x" * 57, b""]], object),
            "too_large",
            r"'words': row 2 takes 65 bytes, 4 for each of 2 strings .*at most 64; .* text_bytes",
        ),
    ],
)
def test_strings_that_cannot_be_taken_are_told(values, kind, message) -> None:
    with pytest.raises(ItemError, match=message) as caught:
        TextRows((WORDS,), 64).rows_from("words", values)
    assert caught.value.kind == kind


def test_strings_of_another_shape_than_declared_are_no_answer() -> None:
    made = TextRows((TensorSpec("words", "string", (3,)),), 64)
    rows = made.rows_from("words", np.array([[b"a", b"b", b"c"]], object))
    texts = TextRows((WORDS,), 64)

    assert made.misfit({"words": [rows]}) is None
    assert "rows of shape [3]; the configuration has [2]" in str(texts.misfit({"words": [rows]}))
    right = texts.rows_from("words", np.array([[b"a", b"b"]], object))
    assert texts.misfit({"words": [right, np.concatenate([right, rows])]}) is not None


@pytest.mark.parametrize(("text", "nbytes"), [(None, 65536), ("1MiB", 1 << 20), ("300", 300)])
def test_room_for_strings_is_a_parameter(tmp_path, text, nbytes) -> None:
    doubling_model(tmp_path / "model.onnx")
    given = parameters(engine="onnxruntime", **({} if text is None else {"text_bytes": text}))
    assert Settings.read(config(**given), tmp_path).places[0].text_bytes == nbytes


@pytest.mark.parametrize("text", ["0", "much", "1.5"])
def test_room_for_strings_that_is_no_size_is_refused(tmp_path, text) -> None:
    doubling_model(tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match="parameter text_bytes: "):
        Settings.read(config(**parameters(engine="onnxruntime", text_bytes=text)), tmp_path)


def test_extents_that_stay_open_are_refused() -> None:
    declared = Declared.read(config(input=[tensor("x", dims=(-1,))]))
    with pytest.raises(TensorMismatchError, match=r"input x: float32 \[\?\] has open extents"):
        declared.matched([TensorSpec("x", "float32", (-1,))], [Y])


def test_outputs_may_be_left_out() -> None:
    more = TensorSpec("more", "int64", (2,))
    _, outputs = Declared.read(config()).matched([X], [Y, more])
    assert outputs == (Y, more)


def test_without_batches_the_first_of_the_dims_is_the_batch_axis() -> None:
    given = {"input": [tensor("x", dims=(3, 4))], "output": [tensor("y", dims=(-1, 4))]}
    declared = Declared.read(config(max_batch_size=0, **given))

    assert (declared.inputs, declared.outputs, declared.rows) == ((X,), (Y,), 3)
    with pytest.raises(ConfigError, match=r"same extent for all tensors, got \[2, 3\]"):
        Declared.read(config(max_batch_size=0, **{**given, "output": [tensor("y", dims=(2, 4))]}))


# --- completion -----------------------------------------------------------------------------------


class Auto:
    """What the server hands to `auto_complete_config`, as far as it is used."""

    def __init__(self, given: dict) -> None:
        self.given = json.loads(json.dumps(given))

    def as_dict(self) -> dict:
        return self.given

    def add_input(self, entry: dict) -> None:
        self.given.setdefault("input", []).append(entry)

    def add_output(self, entry: dict) -> None:
        self.given.setdefault("output", []).append(entry)

    def set_max_batch_size(self, size: int) -> None:
        self.given["max_batch_size"] = size

    def set_dynamic_batching(self) -> None:
        self.given["dynamic_batching"] = {}


ONNX = parameters(engine="onnxruntime")
EMPTY = {"name": "m", "max_batch_size": 0, "input": [], "output": []}


def completed(given: dict, folder) -> dict:
    auto = Auto(given)
    complete(auto, folder)
    return auto.given


def test_everything_is_completed_from_a_model_with_gears(om) -> None:
    made = completed(EMPTY, om)

    assert made["max_batch_size"] == 16
    assert "dynamic_batching" in made
    assert (made["input"], made["output"]) == ([tensor("x")], [tensor("y")])


@pytest.mark.parametrize(("batch", "expected"), [("n", 8), (3, 3), (1, 1)])
def test_batch_is_completed_from_an_onnx_model(tmp_path, batch, expected) -> None:
    doubling_model(tmp_path / "model.onnx", batch)
    assert completed({**EMPTY, **ONNX}, tmp_path)["max_batch_size"] == expected


def test_configuration_without_batches_is_left_so(tmp_path) -> None:
    doubling_model(tmp_path / "model.onnx", 3)
    given = {"input": [tensor("x", dims=(3, 4))], "output": [tensor("y", dims=(3, 4))]}

    made = completed({**EMPTY, **ONNX, **given}, tmp_path)

    assert made["max_batch_size"] == 0
    assert "dynamic_batching" not in made


def test_rows_of_bytes_leave_the_batch_to_be_completed(tmp_path) -> None:
    onnx_model(
        tmp_path / "model.onnx",
        [("Identity", ["x"], ["y"], {})],
        {"x": ("uint8", ["n", 2, 3])},
        {"y": ("uint8", ["n", 2, 3])},
    )
    given = {
        "name": "m",
        "input": [tensor("x", "STRING", (1,))],
        **parameters(engine="onnxruntime"),
    }

    made = completed(given, tmp_path)

    assert made["max_batch_size"] == 8
    assert made["output"] == [tensor("y", "UINT8", (2, 3))]


def test_only_what_is_missing_is_completed(tmp_path) -> None:
    doubling_model(tmp_path / "model.onnx")
    given = config(max_batch_size=2, output=[], **ONNX)

    made = completed(given, tmp_path)

    assert made == {**given, "output": [tensor("y")]}


def test_completion_refuses_what_does_not_fit(tmp_path) -> None:
    doubling_model(tmp_path / "model.onnx")
    with pytest.raises(TensorMismatchError, match="TYPE_INT8"):
        completed(config(input=[tensor("x", "INT8")], **ONNX), tmp_path)


def test_completion_refuses_types_that_no_engine_takes(tmp_path) -> None:
    shape = ["n", 4]
    onnx_model(
        tmp_path / "model.onnx",
        [("Identity", ["x"], ["y"], {})],
        {"x": ("bfloat16", shape)},
        {"y": ("bfloat16", shape)},
    )
    with pytest.raises(ConfigError, match="'x' is bfloat16, which no engine takes"):
        completed({**EMPTY, **ONNX}, tmp_path)


# --- requests into rows ---------------------------------------------------------------------------


def query(rows: int, first: float = 0) -> Query:
    column = np.arange(first, first + rows, dtype=np.float32)[:, None]
    return Query({"x": np.repeat(column, WIDTH, axis=1).astype(INPUT.dtype)}, rows)


def test_requests_lie_one_behind_the_other() -> None:
    queries = [query(3), query(1), query(4)]
    (spans,) = pack(queries, 8, merged=True)
    assert [(span.first, span.rows) for span in spans] == [(0, 3), (3, 1), (4, 4)]


def test_request_that_fits_into_a_slot_is_not_cut() -> None:
    slots = list(pack([query(3), query(3), query(2)], 4, merged=True))
    assert [[span.rows for span in spans] for spans in slots] == [[3], [3], [2]]


def test_request_that_is_too_long_is_cut() -> None:
    slots = list(pack([query(9), query(1), query(3)], 4, merged=True))
    assert [[(s.start, s.first, s.rows) for s in spans] for spans in slots] == [
        [(0, 0, 4)], [(4, 0, 4)], [(8, 0, 1), (0, 1, 1)], [(0, 0, 3)],
    ]  # fmt: skip


def test_requests_are_not_merged_where_no_batches_are_formed() -> None:
    assert len(list(pack([query(1), query(1)], 4, merged=False))) == 2


def test_request_without_rows_needs_no_slot() -> None:
    assert list(pack([query(0)], 4, merged=True)) == []


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "input 'x' is missing"),
        (
            {"x": np.zeros((2, 5), np.float32)},
            r"'x' is float32 \[2, 5\]; expected float32 \[rows, ",
        ),
        ({"x": np.zeros((2, 4), np.float64)}, r"'x' is float64 \[2, 4\]"),
        ({"x": np.float32(1)}, r"'x' is float32 \[\]"),
        ({"x": np.array([[b"a"]], object)}, "'x' is object"),
    ],
)
def test_wrong_tensor_is_refused_by_name(arrays, message) -> None:
    with pytest.raises(ItemError, match=message) as caught:
        checked_rows(arrays, [X])
    assert caught.value.kind == "shape"


def test_inputs_of_different_rows_are_refused() -> None:
    arrays = {"x": np.zeros((2, 4), np.float32), "z": np.zeros((3, 1), np.int8)}
    with pytest.raises(ItemError, match="differ in rows: 'x' has 2, 'z' has 3"):
        checked_rows(arrays, [X, TensorSpec("z", "int8", (1,))])


# --- execution ------------------------------------------------------------------------------------


@pytest.fixture
def executed():
    """Return a function that executes requests on a host of 4 rows; hosts close at the end."""
    hosts = []

    def run(body, queries, *, merged=True, unwanted=lambda _: None, limit_s=math.inf):
        host = ModelHost("m", pickled(body, "m"), worker_environment())
        hosts.append(host)
        host.lay_out(SlotLayout.of((INPUT,), 4), SlotLayout.of((OUTPUT,), 4), limit_s)
        reports = []
        execution = Execution(
            host, capacity=4, merged=merged, is_unwanted=unwanted,
            report=lambda rows, *_: reports.append(rows),
        )  # fmt: skip
        execution.run(queries)
        return host, reports

    yield run
    for host in hosts:
        host.close()


def is_right(each: Query) -> bool:
    made = np.concatenate(each.pieces["y"])
    return each.error is None and np.array_equal(made, 2 * each.arrays["x"] + 1)


def test_several_requests_are_one_execution(executed) -> None:
    queries = [query(1), query(2, 1), query(1, 3)]
    _, reports = executed(Infer(), queries)
    assert reports == [4]
    assert all(map(is_right, queries))


def test_long_request_is_several_executions(executed) -> None:
    queries = [query(1), query(9, 10), query(2, 30)]
    _, reports = executed(Infer(), queries)
    assert reports == [1, 4, 4, 3]
    assert all(map(is_right, queries))


def test_only_the_request_that_the_model_refuses_fails(executed) -> None:
    queries = [query(1), query(1, 1), query(1, 2), query(1, 3)]

    host, _ = executed(Infer(fail_on=2), queries)

    assert isinstance(queries[2].error, ExecutionError)
    assert "the model refuses 2" in str(queries[2].error)
    assert all(is_right(queries[number]) for number in (0, 1, 3))
    assert host.losses == 0


def test_only_the_request_that_kills_the_process_fails(executed, tmp_path) -> None:
    queries = [query(1), query(1, 1), query(1, 2), query(1, 3)]

    executed(Infer(fates=(Fate("infer", "mid-write", "SIGSEGV", str(tmp_path), 2, 9),)), queries)

    assert "SIGSEGV" in str(queries[2].error)
    assert all(is_right(queries[number]) for number in (0, 1, 3))


def test_device_that_hangs_once_costs_no_request(executed, tmp_path) -> None:
    queries = [query(1), query(1, 1)]

    host, _ = executed(
        Infer(fates=(Fate("infer", "mid-write", "hang", str(tmp_path)),)), queries, limit_s=1.0
    )

    assert all(map(is_right, queries))
    assert host.losses == 1


def test_device_that_hangs_twice_fails_its_batch_and_no_other(executed, tmp_path) -> None:
    queries = [query(2), query(2, 2), query(4, 10)]

    host, _ = executed(
        Infer(fates=(Fate("infer", "mid-write", "hang", str(tmp_path), 0, 9),)),
        queries,
        limit_s=1.0,
    )

    assert [each.error.kind for each in queries[:2]] == ["timeout", "timeout"]
    assert is_right(queries[2])
    assert host.losses == 2


def test_unwanted_request_is_not_executed(executed) -> None:
    queries = [query(1), query(4, 1)]
    gone = ItemError("cancelled", "gone")

    _, reports = executed(
        Infer(), queries, unwanted=lambda each: gone if each is queries[1] else None
    )

    assert queries[1].error is gone
    assert reports == [1]
    assert is_right(queries[0])
