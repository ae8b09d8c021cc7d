"""`gepipe` over a pipeline of two models: run, stop, kill, resume, check, plan, export."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gepipe.errors import ConfigError
from tests.chains import BROKEN, SLOW, files, mean_model
from tests.support import ROOT, family_of, is_alive, wait_until

GEPIPE = [sys.executable, "-c", "from gepipe.cli.app import main; main()"]
YAML = """\
pipeline:
  name: two
  source: {{list: {folder}/list.txt}}
  stages:
    - name: preprocess
      threads: 1
      batch_size: 4
      ops: [decode_image, {{resize: {{size: [4, 4]}}}}, to_tensor]
    - name: look
      role: infer
      model: {folder}/mean.onnx
    - name: cut
      role: mid
      threads: 1
      batch_size: 4
      ops:
        - python: tests.chains:squares
        - crop
        - python: tests.chains:suffer
        - resize: {{size: [4, 4]}}
        - to_tensor
    - name: read
      role: infer
      model: {folder}/mean.onnx
    - name: postprocess
      ops: [{{python: "tests.chains:grey"}}, gather]
  sink: {{jsonl: {folder}/out.jsonl}}
"""


@pytest.fixture
def folder(tmp_path):
    mean_model(tmp_path / "mean.onnx")
    paths = files(tmp_path / "in", [[SLOW, number % 50, 2] for number in range(150)])
    (tmp_path / "list.txt").write_text("\n".join(paths))
    (tmp_path / "two.yaml").write_text(YAML.format(folder=tmp_path))
    return tmp_path


def gepipe(*args: object, **more) -> subprocess.CompletedProcess[str]:
    command = [*GEPIPE, *map(str, args)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False, **more
    )


def begun(folder: Path, *more: object) -> subprocess.Popen[bytes]:
    """Start a run, and return it once it has written some results."""
    command = [*GEPIPE, "run", str(folder / "two.yaml"), "--quiet", *map(str, more)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    out = folder / "out.jsonl"
    wait_until(lambda: out.exists() and out.stat().st_size > 300)
    assert process.poll() is None
    return process


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_goes_on_where_it_stopped(folder, signum) -> None:
    process = begun(folder)
    family = family_of(process.pid)
    os.kill(process.pid, signum)
    process.communicate(timeout=200)
    wait_until(lambda: not any(map(is_alive, family)))
    some = (folder / "out.jsonl").read_bytes()

    again = gepipe("run", folder / "two.yaml", "--resume", "--json")
    whole = gepipe("run", folder / "two.yaml", "--output", folder / "whole.jsonl", "--json")

    assert (again.returncode, whole.returncode) == (0, 0), again.stderr
    made = (folder / "out.jsonl").read_bytes()
    assert made == (folder / "whole.jsonl").read_bytes()
    assert made.startswith(some[: some.rfind(b"\n") + 1])
    assert len(some) < len(made)
    assert json.loads(again.stdout)["items"] == 150


def test_the_summary_names_all_stages_and_counts_parts(folder) -> None:
    paths = files(folder / "in", [[1, BROKEN, BROKEN], [2], [BROKEN]])
    (folder / "list.txt").write_text("\n".join(paths))

    told = gepipe("run", folder / "two.yaml")
    summary = json.loads(gepipe("run", folder / "two.yaml", "--json").stdout)

    assert "3 parts of 2 results failed" in told.stdout
    assert "no failures" not in told.stdout
    first = f"{paths[0]}, part 1: postprocess, broken: on purpose"
    assert f"first failure of a part: {first}" in told.stdout
    assert summary["first_failed_part"] == first
    assert "batch 4, 4" in told.stderr
    assert (summary["parts"], summary["failed_parts"], summary["exit_code"]) == (5, 3, 0)
    assert (summary["marred_items"], summary["failures"]) == (2, 0)
    assert {name: stage["items"] for name, stage in summary["stages"].items()} == {
        "preprocess": 3, "look": 3, "cut (split)": 3, "cut (parts)": 5, "read": 5,
        "postprocess": 5, "postprocess (gather)": 3,
    }  # fmt: skip


def test_a_run_all_of_whose_parts_failed_does_not_end_as_if_all_were_well(folder) -> None:
    paths = files(folder / "in", [[BROKEN, BROKEN], [], [BROKEN]])
    (folder / "list.txt").write_text("\n".join(paths))

    told = gepipe("run", folder / "two.yaml")
    ended = gepipe("run", folder / "two.yaml", "--json")

    assert (told.returncode, ended.returncode) == (3, 3)
    assert "3 of 3 inputs with results" in told.stdout
    assert "all 3 parts of 2 results failed" in told.stdout
    assert f"{paths[0]}, part 0: postprocess, broken: on purpose" in told.stdout
    summary = json.loads(ended.stdout)
    assert (summary["status"], summary["exit_code"]) == ("complete", 3)
    assert (summary["parts"], summary["failed_parts"], summary["failures"]) == (3, 3, 0)


def test_check_and_plan_tell_of_each_model(folder) -> None:
    checked = gepipe("check", folder / "two.yaml", "--json")
    found = json.loads(checked.stdout)
    planned = gepipe("plan", folder / "two.yaml")
    facts = json.loads(gepipe("plan", folder / "two.yaml", "--json").stdout)

    assert (checked.returncode, found["errors"], found["input_count"]) == (0, [], 150)
    assert list(found["models"]) == ["look", "read"]
    assert "look: model takes x float32 [3, 4, 4]" in found["notes"]
    for line in (
        "cut (split): 1 worker",
        "cut (parts): 1 worker",
        "postprocess (gather): 1 worker",
    ):
        assert line in planned.stdout
    assert [facts["models"][name]["batch"] for name in ("look", "read")] == [4, 4]
    assert facts["shared_nbytes"] == sum(
        model["shared_nbytes"] for model in facts["models"].values()
    )


def test_check_finds_what_does_not_fit_behind_the_first_model(folder) -> None:
    text = (folder / "two.yaml").read_text()
    size = "        - resize: {size: [4, 4]}\n"
    wrong = text.replace(size, size.replace("4, 4", "5, 5"))
    (folder / "two.yaml").write_text(wrong.replace("tests.chains:grey", "tests.chains:none"))

    found = json.loads(gepipe("check", folder / "two.yaml", "--json").stdout)

    broken, shape = found["errors"]
    assert broken.startswith("postprocess: python tests.chains:none: ")
    assert "has no function 'none'" in broken
    assert shape.startswith("stage 'cut' makes float32 [any, 5, 5]; the model's input 'x' takes")
    ran = gepipe("run", folder / "two.yaml")
    assert ran.returncode != 0
    assert "stage 'cut' makes" in ran.stderr or "no function 'none'" in ran.stderr


FIND, PREPARE = "tests.chains:squares", "tests.chains:suffer"
ALL_PARTS = "every part of the first 8 inputs fails: {first}, part 0: "


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (FIND, "tests.chains:grey", "cut: crop: what is before it made no list of boxes"),
        (FIND, "tests.chains:unfindable", "cut: the first 8 inputs all fail: {first}: KeyError"),
        (PREPARE, "tests.chains:flat", ALL_PARTS + "cut, "),
        ("tests.chains:grey", "tests.chains:none_grey", ALL_PARTS + "postprocess, broken: "),
        ("gather]", "gather, python: tests.chains:unfindable]",
         "postprocess: the first 8 inputs all fail: {first}: KeyError"),
        ("ops: [decode_image,", "ops: [python: tests.chains:opened_image,",
         "parts are cut out of pictures, and the source gives the bytes of files"),
    ],
    ids=["no list", "split", "parts", "last model", "gathered", "decoding"],
)  # fmt: skip
def test_check_tries_inputs_through_all_stages(folder, old, new, said) -> None:
    text = (folder / "two.yaml").read_text()
    assert old in text
    (folder / "two.yaml").write_text(text.replace(old, new))

    told = gepipe("check", folder / "two.yaml", "--json")

    (error,) = json.loads(told.stdout)["errors"]
    assert told.returncode == ConfigError.exit_code
    assert error.startswith(said.format(first=folder / "in/00000.png"))


def test_a_run_whose_parts_cannot_be_cut_ends_before_it_begins(folder) -> None:
    text = (folder / "two.yaml").read_text()
    opened = "ops: [python: tests.chains:opened_image,"
    (folder / "two.yaml").write_text(text.replace("ops: [decode_image,", opened))

    (folder / "out.jsonl").write_text("of before\n")

    told = gepipe("run", folder / "two.yaml")

    assert told.returncode == ConfigError.exit_code
    assert "begin with `- decode_image` and put your own function behind it" in told.stderr
    assert (folder / "out.jsonl").read_text() == "of before\n"


def test_check_leaves_alone_what_lies_in_the_inputs(folder) -> None:
    paths = files(folder / "in", [[], [], [BROKEN, 1]])
    Path(paths[1]).write_bytes(b"no picture")
    lists = {"some": paths[:2], "all": paths}
    for name, listed in lists.items():
        (folder / "list.txt").write_text("\n".join(listed))
        told = gepipe("check", folder / "two.yaml", "--json")
        found = json.loads(told.stdout)

        assert (told.returncode, found["errors"]) == (0, []), name
        untried = "no part was found in the first 2 inputs: what comes behind was not tried"
        assert (untried in found["warnings"]) == (name == "some"), name


def test_what_failed_before_a_run_went_on_is_not_counted_as_its_own(folder) -> None:
    paths = files(folder / "in", [[1, BROKEN, BROKEN]] * 20 + [[BROKEN, 2]] * 20)
    (folder / "list.txt").write_text("\n".join(paths))
    whole = gepipe("run", folder / "two.yaml", "--json")
    lines = (folder / "out.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "out.jsonl").write_bytes(b"".join(lines[:30]))

    again = gepipe("run", folder / "two.yaml", "--resume", "--json")
    (folder / "out.jsonl").write_bytes(b"".join(lines[:38]))
    told = gepipe("run", folder / "two.yaml", "--resume")

    first, second = json.loads(whole.stdout), json.loads(again.stdout)
    assert (first["parts"], first["failed_parts"], first["marred_items"]) == (100, 60, 40)
    assert first["first_failed_part"].startswith(f"{paths[0]}, part 1: ")
    assert (second["parts"], second["failed_parts"], second["marred_items"]) == (20, 10, 10)
    assert (first["first_item"], second["first_item"], second["items"]) == (0, 30, 40)
    assert second["first_failed_part"].startswith(f"{paths[30]}, part 0: ")
    assert "2 parts of 2 results of this run failed" in told.stdout


def test_what_takes_one_model_only_says_so(folder) -> None:
    told = gepipe("compare", folder / "two.yaml")

    assert told.returncode == ConfigError.exit_code
    assert "two: has several models (look, read)" in told.stderr
    assert "compared at a time" in told.stderr
