import os
from pathlib import Path

from gepipe.triton.reload import Changes, load_order, scan

ENSEMBLE = """
platform: "ensemble"  # model_name: "not_me"
ensemble_scheduling { step [ { model_name: "a" }, { model_name: "b" } ] }
"""


def write(repository: Path, name: str, config: str = 'backend: "python"\n') -> Path:
    model = repository / name / "1" / "model.py"
    model.parent.mkdir(parents=True)
    model.write_text("x = 1\n")
    (repository / name / "config.pbtxt").write_text(config)
    return model


def test_models_are_folders_with_a_configuration(tmp_path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "e", ENSEMBLE)
    write(tmp_path, ".hidden")
    (tmp_path / "empty").mkdir()
    (tmp_path / "README.md").touch()

    found = scan(tmp_path)

    assert list(found) == ["a", "e"]
    assert found["a"].steps == ()
    assert found["e"].steps == ("a", "b")


def test_a_repository_that_is_gone_has_no_models(tmp_path) -> None:
    assert scan(tmp_path / "none") == {}


def test_a_change_counts_when_it_is_quiet(tmp_path) -> None:
    model = write(tmp_path, "a")
    subject = Changes(scan(tmp_path))

    model.write_text("x = 22\n")
    assert subject.look(scan(tmp_path)) is None
    write(tmp_path, "b")
    assert subject.look(scan(tmp_path)) is None
    change = subject.look(scan(tmp_path))

    assert change is not None
    assert change.changed == ("a", "b")
    assert change.removed == ()
    assert subject.look(scan(tmp_path)) is None


def test_a_model_that_goes_is_removed(tmp_path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b")
    subject = Changes(scan(tmp_path))

    (tmp_path / "b" / "config.pbtxt").unlink()
    subject.look(scan(tmp_path))
    change = subject.look(scan(tmp_path))

    assert change is not None
    assert (change.changed, change.removed) == ((), ("b",))


def test_what_python_writes_beside_a_model_is_no_change(tmp_path) -> None:
    model = write(tmp_path, "a")
    before = scan(tmp_path)

    cache = model.parent / "__pycache__"
    cache.mkdir()
    (cache / "model.pyc").write_bytes(b"x")

    assert scan(tmp_path) == before


def test_an_older_file_of_the_same_size_is_a_change(tmp_path) -> None:
    model = write(tmp_path, "a")
    before = scan(tmp_path)

    os.utime(model, (1e9, 1e9))

    assert scan(tmp_path) != before


def test_a_change_behind_a_link_is_one(tmp_path) -> None:
    model = write(tmp_path / "real", "a")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a").symlink_to(tmp_path / "real" / "a")
    before = scan(tmp_path / "models")

    model.write_text("x = 22\n")

    assert scan(tmp_path / "models") != before


def test_steps_come_with_their_ensemble(tmp_path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path, name)
    write(tmp_path, "e", ENSEMBLE)
    models = scan(tmp_path)

    assert load_order(models, models) == ["e", "c"]
    assert load_order(["a", "c"], models) == ["a", "c"]
