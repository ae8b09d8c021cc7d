"""A run that is really killed lets go of its files and can be taken up again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gepipe.errors import ConfigError
from gepipe.io.failures import Failure
from gepipe.io.jsonl import JsonlSink
from gepipe.io.manifest import Manifest
from gepipe.io.outputs import Outputs
from gepipe.io.sink import Record
from gepipe.io.source import Entry
from gepipe.spec.normal import difference

COUNT = 100_000
CHILD = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("resume_killed", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
out = module.opened(sys.argv[2], resume=False)
while True:
    module.write(out, out.next + 7)
    print("written", flush=True)
"""


class Numbers:
    finite = True
    reader = None

    def entries(self):
        return (Entry(f"{number}.jpg", b"%d.jpg" % number) for number in range(COUNT))


def opened(path, *, resume):
    with Manifest.snapshot(Numbers()) as manifest:
        form = {"version": 1}
        return Outputs.open(JsonlSink(path), manifest, form, difference=difference, resume=resume)


def write(out, stop):
    out.write(
        Record(index, f"{index}.jpg", b"%d" % index)
        if index % 5
        else Failure(index, f"{index}.jpg", "pre", "empty", "")
        for index in range(out.next, stop)
    )


def test_a_killed_run_is_finished_byte_for_byte(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    out = opened(str(whole / "out.jsonl"), resume=False)
    write(out, COUNT)
    out.close("complete")
    path = str(broken / "out.jsonl")
    command = [sys.executable, "-c", CHILD, __file__, path]

    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        for _ in range(50):
            assert child.stdout.readline() == b"written\n"
        with pytest.raises(ConfigError, match="is being written by another run"):
            opened(path, resume=True)
        child.kill()
    out = opened(path, resume=True)
    first = out.first
    write(out, COUNT)
    out.close("complete")

    assert first >= 50 * 7
    assert {each.name: each.read_bytes() for each in whole.iterdir()} == {
        each.name: each.read_bytes() for each in broken.iterdir()
    }
