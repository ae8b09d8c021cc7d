"""The models as Python code uses them."""

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from gepipe.spec import PipelineSpec
from gepipe.spec.chain import STAGES
from gepipe.spec.parts import name_of, sink_of, source_of
from gepipe.spec.stages import RESERVED

STAGE_LIST = [{"name": "preprocess"}, {"name": "inference"}, {"name": "postprocess"}]


def test_a_pipeline_can_be_written_in_python() -> None:
    spec = PipelineSpec(
        source=[Path("a"), Path("b")],
        stages=[{"name": "preprocess", "threads": 2}, *STAGE_LIST[1:]],
        sink=Path("o.csv"),
    )

    assert spec.pre.threads == 2
    assert spec.source.paths == ("a", "b")
    assert type(spec.sink).__name__ == "CsvSink"


def test_mistakes_in_python_name_their_place_as_well() -> None:
    with pytest.raises(ValidationError, match="expected a whole number of at least 1, or auto"):
        PipelineSpec(stages=[{"name": "preprocess", "threads": 0}, *STAGE_LIST[1:]])


def test_a_source_and_a_sink_come_from_paths_given_on_the_command_line() -> None:
    assert name_of("sources", source_of(["a.jpg", "b.jpg"])) == "images"
    assert name_of("sources", source_of("a.jpg")) == "images"
    assert name_of("sinks", sink_of("o.parquet")) == "parquet"


def test_given_instances_are_kept() -> None:
    source, sink = source_of("a"), sink_of("o.csv")

    spec = PipelineSpec(source=source, stages=STAGE_LIST, sink=sink)

    assert (spec.source, spec.sink) == (source, sink)


def test_a_copy_with_another_sink_keeps_the_rest() -> None:
    spec = PipelineSpec(stages=STAGE_LIST, depth=3)

    changed = spec.model_copy(update={"sink": sink_of("o.csv")})

    assert (changed.depth, changed.sink.path, spec.sink) == (3, "o.csv", None)


def test_a_specification_can_be_pickled() -> None:
    spec = PipelineSpec(source="a", stages=STAGE_LIST, max_failures="1%")

    assert pickle.loads(pickle.dumps(spec)) == spec


def test_no_stage_can_be_named_like_a_key_of_the_pipeline() -> None:
    assert {"pipeline", *PipelineSpec.model_fields} == RESERVED


def test_every_key_has_a_description_of_one_sentence_or_two() -> None:
    for model in (PipelineSpec, *STAGES.values()):
        for name, field in model.model_fields.items():
            assert field.description, name
            assert field.description.endswith("."), name
