from __future__ import annotations

import os
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from gepipe.runtime.arena import Arena

PAGE = 4096


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9 * PAGE)), max_size=60), st.data())
def test_pieces_never_overlap_and_all_memory_comes_back(steps, data):
    with closing(Arena(32 * PAGE)) as arena:
        dealt: dict[int, int] = {}
        for gives_back, nbytes in steps:
            if gives_back and dealt:
                arena.free(start := data.draw(st.sampled_from(sorted(dealt))))
                del dealt[start]
            elif (start := arena.allocate(nbytes)) is not None:
                dealt[start] = nbytes
            places = [0, *(at for start in sorted(dealt) for at in (start, start + dealt[start]))]
            assert places == sorted(places)
            assert places[-1] <= arena.memory.nbytes
            assert len(arena) == len(dealt)
        for start in dealt:
            arena.free(start)

        assert arena.used == 0
        assert arena.allocate(32 * PAGE) == 0, "in one piece"


def test_memory_is_taken_as_it_is_needed_and_dealt_out_again_before_new():
    arena = Arena(64 << 20)

    def taken():
        return os.fstat(arena.memory.fd).st_blocks * 512

    assert taken() == 0
    pieces = [arena.allocate(1 << 20) for _ in range(3)]
    assert taken() == 3 << 20
    for piece in pieces:
        arena.free(piece)
    assert [arena.allocate(1 << 20) for _ in range(3)] == pieces
    assert taken() == 3 << 20
    arena.close()
