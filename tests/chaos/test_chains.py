"""Workers of all legs of a chain die at random, and the fork server with them."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress

import pytest
from multiprocess import forkserver

from gepipe.runtime.supervisor import Supervisor
from tests.chains import UNSPLIT, expected, files, opened
from tests.support import workers_of

COUNTS = [0, 1, 3, 5, 12, 40]
assert UNSPLIT not in COUNTS


@pytest.mark.parametrize("seed", range(2))
def test_random_kills_in_a_chain_lose_and_double_no_part(tmp_path, monkeypatch, seed) -> None:
    rng = random.Random(seed)
    pictures = [[rng.randrange(100, 250) for _ in range(rng.choice(COUNTS))] for _ in range(200)]
    supervisors: list[Supervisor] = []
    begin = Supervisor.run

    def run(self, *args):
        supervisors.append(self)
        return begin(self, *args)

    monkeypatch.setattr(Supervisor, "run", run)
    killed = 0
    made = []
    with opened(tmp_path) as pipeline:
        for result in pipeline.run(files(tmp_path / "in", pictures)):
            made.append(result)
            if result.index % 12 == 5:
                pids = [
                    pid for subject in supervisors for pid in workers_of(subject, attached=True)
                ]
                server = forkserver._forkserver._forkserver_pid
                victims = pids if pids and rng.random() < 0.9 else [server]
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(victims), signal.SIGKILL)
                    killed += 1

        assert pipeline.failures == []
    assert killed
    assert [result.index for result in made] == list(range(len(pictures)))
    assert [result.value for result in made] == [expected(values) for values in pictures]
    assert len(supervisors) == 3
