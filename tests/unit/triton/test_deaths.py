from gepipe.triton.deaths import MOST_DEATHS, Deaths


def test_the_delay_doubles_until_it_is_given_up() -> None:
    subject = Deaths()

    assert [subject.add(now) for now in range(6)] == [0, 1, 2, 4, 8, None]
    assert len(subject) == MOST_DEATHS + 1


def test_deaths_of_long_ago_do_not_count() -> None:
    subject = Deaths()
    for now in range(5):
        subject.add(now)

    assert subject.add(700) == 0
    assert len(subject) == 1
