import pytest
import yaml

from gepipe import bundle, plugins
from gepipe.errors import ConfigError, InternalError


def test_classify_is_a_ready_pipeline():
    assert "classify" in bundle.pipeline_names()


@pytest.mark.parametrize("name", bundle.pipeline_names())
def test_ready_pipelines_are_yaml_and_use_registered_names(name):
    pipeline = yaml.safe_load(bundle.pipeline_text(name))["pipeline"]

    ops = [op for stage in pipeline["stages"] for op in stage.get("ops", [])]
    used = {op if isinstance(op, str) else next(iter(op)) for op in ops}
    assert used <= set(plugins.names("ops"))
    assert set(pipeline["source"]) <= set(plugins.names("sources"))
    assert set(pipeline["sink"]) <= set(plugins.names("sinks"))


def test_an_unknown_pipeline_gets_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'classify'"):
        bundle.pipeline_text("clasify")


@pytest.mark.parametrize("name", ["../secret", "classify.yaml", ""])
def test_a_pipeline_name_is_not_a_path(name):
    with pytest.raises(ConfigError):
        bundle.pipeline_text(name)


def test_what_the_wheel_carries_goes_before_a_neighbouring_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "_PACKAGE", tmp_path / "gepipe")
    (tmp_path / "pipelines").mkdir()
    assert bundle.folder("pipelines") == tmp_path / "pipelines"

    carried = tmp_path / "gepipe" / "_bundled" / "pipelines"
    carried.mkdir(parents=True)

    assert bundle.folder("pipelines") == carried


def test_an_incomplete_installation_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "_PACKAGE", tmp_path / "gepipe")

    with pytest.raises(InternalError, match="installation is incomplete"):
        bundle.folder("samples")


def test_the_fetcher_loads_once():
    assert bundle.load_fetcher() is bundle.load_fetcher()
