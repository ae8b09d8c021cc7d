"""Google-style docstrings as data."""

from dataclasses import dataclass

from gepipe import docstrings

TEXT = """Do a thing, and tell
    about it.

    A second paragraph,
    of two lines.

    Third: with a colon.

    Args:
        one: The first: with a colon.
        two (int, optional): The second,
            over two lines.

            And a paragraph.
        *rest: All others.
        not an entry

    Returns:
        result: Nothing of note.

    Attributes:
        three: The third.
    """


def test_parameters_are_read_from_their_sections_only() -> None:
    assert docstrings.parameters(TEXT) == {
        "one": "The first: with a colon.",
        "two": "The second, over two lines. And a paragraph.",
        "rest": "All others. not an entry",
        "three": "The third.",
    }


def test_the_summary_is_the_first_paragraph_in_one_line() -> None:
    assert docstrings.summary(TEXT) == "Do a thing, and tell about it."


def test_the_body_is_what_stands_between() -> None:
    assert docstrings.body(TEXT).splitlines() == [
        "A second paragraph, of two lines.",
        "Third: with a colon.",
    ]


def test_what_has_no_docstring_has_no_texts() -> None:
    def bare() -> None:
        pass

    @dataclass
    class Generated:
        a: int

    for thing in (bare, Generated, ""):
        assert docstrings.summary(thing) == ""
        assert docstrings.body(thing) == ""
        assert docstrings.parameters(thing) == {}


def test_a_class_has_the_parameters_of_its_bases_after_its_own() -> None:
    class Base:
        """Base.

        Attributes:
            a: Of the base.
            b: Of the base.
        """

    class Derived(Base):
        """Derived.

        Args:
            c: Own.
            a: Own.
        """

    assert docstrings.parameters(Derived) == {"c": "Own.", "a": "Own.", "b": "Of the base."}
    assert list(docstrings.parameters(Derived)) == ["c", "a", "b"]
