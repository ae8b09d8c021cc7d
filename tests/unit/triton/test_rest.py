from gepipe.triton.rest import Rest


def test_nothing_to_do_for_a_while_is_rest() -> None:
    subject = Rest(1)

    assert not subject.lasts(0, (0, 7))
    assert not subject.lasts(0.9, (0, 7))
    assert subject.lasts(1, (0, 7))


def test_what_waits_or_was_done_meanwhile_begins_it_anew() -> None:
    subject = Rest(1)
    subject.lasts(0, (0, 7))

    assert not subject.lasts(1, (2, 7))
    assert not subject.lasts(2, (0, 9))
    assert not subject.lasts(2.9, (0, 9))
    assert subject.lasts(3, (0, 9))
