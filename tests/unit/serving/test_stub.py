import os
import sys

import pytest

from gepipe.serving.stub import settle


@pytest.mark.parametrize(
    "named", ["/cann/python:/cann/tbe", ":/cann/python::/cann/tbe:/cann/python:"]
)
def test_what_pythonpath_names_comes_behind_the_stubs_own(monkeypatch, named):
    own = ["", "/stub/lib", "", "/stub/site-packages"]
    monkeypatch.setattr(sys, "path", own.copy())
    monkeypatch.setenv("PYTHONPATH", named.replace(":", os.pathsep))

    settle()
    settle()  # a server may load several models in a process

    assert sys.path == ["/stub/lib", "/stub/site-packages", "/cann/python", "/cann/tbe"]


def test_without_pythonpath_only_the_working_folder_goes(monkeypatch):
    monkeypatch.setattr(sys, "path", ["", "/stub/lib"])
    monkeypatch.delenv("PYTHONPATH", raising=False)

    settle()

    assert sys.path == ["/stub/lib"]
