"""Text of lines and pages: greedy CTC against a plain loop, characters, and rows joined."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.reading import Ctc, PageText

LETTERS = ["a", "b", "ß", "漢", "e\u0301", " "]
CLASSES = len(LETTERS) + 1


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    path = tmp_path_factory.mktemp("characters") / "letters.txt"
    path.write_text("".join(f"{letter}\n" for letter in LETTERS), encoding="utf-8")
    return path


def rows(best, value=0.75, classes=CLASSES):
    """Return probabilities whose best class a step is given."""
    array = np.full((len(best), classes), (1 - value) / (classes - 1), np.float32)
    array[np.arange(len(best)), best] = value
    return array


def read(op, array, meta=None):
    return op({"out": array}, {} if meta is None else meta)


def plain_text(array, letters, blank=0):
    """Decode step by step, as textbooks do."""
    names = [*letters[:blank], None, *letters[blank:]]
    text, values, last = "", [], None
    for step in array:
        best = max(range(len(step)), key=lambda i: step[i])
        if best not in (last, blank):
            text += names[best]
            values.append(float(step[best]))
        last = best
    return text, sum(values) / len(values) if values else 0.0


@given(
    st.integers(1, 40).flatmap(
        lambda steps: st.lists(
            st.lists(st.integers(0, 50), min_size=CLASSES, max_size=CLASSES),
            min_size=steps,
            max_size=steps,
        )
    ),
    st.integers(-1, CLASSES - 1),
)
def test_lines_are_read_as_a_plain_loop_reads_them(letters, values, blank):
    array = np.array(values, np.float32) / 50

    made = read(Ctc(letters, blank), array)

    text, confidence = plain_text(array, LETTERS, blank % CLASSES)
    assert made["text"] == text
    assert made["confidence"] == pytest.approx(confidence)
    json.dumps(made)


def test_a_letter_that_comes_twice_has_a_blank_between(letters):
    assert read(Ctc(letters), rows([1, 1, 0, 1, 2, 2]))["text"] == "aab"
    assert read(Ctc(letters), rows([1, 1, 1]))["text"] == "a"


def test_a_line_of_blanks_has_no_text_and_no_confidence(letters):
    assert read(Ctc(letters), rows([0, 0, 0])) == {"text": "", "confidence": 0.0}


def test_confidence_is_the_mean_of_the_letters(letters):
    array = np.concatenate([rows([1, 0], 0.5), rows([2], 0.9), rows([2, 0], 0.6)])

    assert read(Ctc(letters), array)["confidence"] == pytest.approx(0.7)


def test_axes_of_one_in_front_say_nothing(letters):
    array = rows([1, 0, 4])

    assert read(Ctc(letters), array[None]) == read(Ctc(letters), array)
    assert read(Ctc(letters), array.astype(np.float16))["text"] == "a漢"


def test_what_a_line_was_filled_up_with_adds_no_letter(letters):
    array = rows([1, 0, 2, 3, 3, 3, 4, 5])

    assert read(Ctc(letters), array)["text"] == "abß漢e\u0301"
    assert read(Ctc(letters), array, {"filled": [30, 80]})["text"] == "ab"
    assert read(Ctc(letters), array, {"filled": [31, 80]})["text"] == "abß"
    assert read(Ctc(letters), array, {"filled": [80, 80]})["text"] == "abß漢e\u0301"
    assert read(Ctc(letters), array, {"filled": [1, 800]})["text"] == "a"


@given(st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=30), st.integers(0, 20))
def test_however_far_a_line_is_filled_up_its_text_is_the_same(letters, best, more):
    filled = [8 * len(best) - 3, 8 * (len(best) + more)]
    noise = np.random.default_rng(more).random((more, CLASSES), np.float32)
    array = np.concatenate([rows(best), noise])

    assert read(Ctc(letters), array, {"filled": filled}) == read(Ctc(letters), rows(best))


def test_steps_that_are_no_number_are_blanks(letters):
    array = rows([1, 2, 0, 2])
    array[1, 5] = np.nan
    array[2] = np.nan

    made = read(Ctc(letters), array)

    assert made == {"text": "ab", "confidence": pytest.approx(0.75)}


@pytest.mark.parametrize("shape", [(7,), (2, 4, 7), (0, 7)])
def test_an_output_of_another_shape_is_told(letters, shape):
    with pytest.raises(ItemError, match=r"expected \[steps, classes\]"):
        read(Ctc(letters), np.zeros(shape, np.float32))


# --- characters ---


def test_a_list_of_json_says_the_same(letters, tmp_path):
    path = tmp_path / "letters.json"
    path.write_text(json.dumps(LETTERS))

    assert read(Ctc(path), rows([5, 6, 4])) == read(Ctc(letters), rows([5, 6, 4]))


def test_a_file_that_is_one_short_gets_a_space(tmp_path):
    path = tmp_path / "letters.txt"
    path.write_text("a\r\nb\r\n", encoding="utf-8-sig", newline="")

    assert read(Ctc(path), rows([1, 3, 2], classes=4))["text"] == "a b"
    assert read(Ctc(path), rows([1, 0, 2], classes=3))["text"] == "ab"


def test_odd_characters_are_not_taken_for_ends_of_lines(tmp_path):
    odd = ["\u2028", "\x85", "\x0b", "[", "\u3000"]
    path = tmp_path / "letters.txt"
    path.write_text("\n".join(odd), encoding="utf-8", newline="")

    assert read(Ctc(path), rows([1, 2, 3, 4, 5], classes=6))["text"] == "".join(odd)


@pytest.mark.parametrize("classes", [3, CLASSES - 1, CLASSES + 2])
def test_characters_of_another_model_are_refused(letters, classes):
    with pytest.raises(ConfigError, match="use the file that belongs to the model"):
        read(Ctc(letters), rows([0], classes=classes))


def test_a_blank_that_the_model_lacks_is_refused(letters):
    with pytest.raises(ConfigError, match="with the blank, which is 9"):
        read(Ctc(letters, blank=9), rows([0]))
    with pytest.raises(ValueError, match="blank must be"):
        Ctc(letters, blank=-2)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "entry 1 is missing"),
        (b"a\n\nb\n", "entry 2 is missing"),
        (b'["a", ""]', "entry 2 is missing"),
        (b"[]", "entry 1 is missing"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_file_without_characters_is_told(tmp_path, content, text):
    path = tmp_path / "letters.txt"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=text):
        Ctc(path).setup()


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"characters: cannot read .*: no such file"):
        Ctc(tmp_path / "none.txt").setup()


def test_a_prepared_operator_travels_to_workers(letters):
    op = Ctc(letters)
    op.setup()
    before = read(op, rows([1]))

    assert read(pickle.loads(pickle.dumps(op)), rows([1])) == before


# --- pages ---


def line(x, y, text=None, **more):
    box = [[x, y], [x + 80, y], [x + 80, y + 20], [x, y + 20]]
    return {"polygon": box, **({} if text is None else {"text": text, "confidence": 0.9}), **more}


def test_the_text_of_a_page_is_joined_along_rows():
    lines = [line(200, 52, "12.50"), line(0, 100, "Thank you"), line(0, 50, "Total:")]

    made = PageText()({"pages": 1, "lines": lines}, {})

    assert list(made) == ["text", "pages", "lines"]
    assert made["text"] == "Total: 12.50\nThank you"
    assert [each["text"] for each in made["lines"]] == ["Total:", "12.50", "Thank you"]


def test_lines_may_keep_rows_of_their_own():
    lines = [line(200, 52, "12.50"), line(0, 50, "Total:")]

    assert PageText(join=None)({"lines": lines}, {})["text"] == "Total:\n12.50"
    assert PageText(join="\t")({"lines": lines}, {})["text"] == "Total:\t12.50"


def upright(x, y, text, turned, confidence=0.9):
    box = [[x, y], [x + 20, y], [x + 20, y + 80], [x, y + 80]]
    return {"polygon": box, "turned": turned, "text": text, "confidence": confidence}


def test_of_a_line_that_was_read_both_ways_the_surer_one_stays():
    why = {"stage": "recognise", "kind": "shape", "error": "…"}
    failed = [{**upright(150, 0, "", turned), "failure": why} for turned in (90, 270)]
    for each in failed:
        del each["text"], each["confidence"]
    down, up = upright(0, 0, "down", 90, 0.99), upright(50, 0, "up", 270, 0.98)
    good = upright(100, 0, "good", 270, 0.1)
    others = [upright(0, 0, "umop", 270, 0.7), upright(50, 0, "dn", 90, 0.0), failed[0]]

    made = PageText()({"lines": [
        down, others[0], others[1], up, {**failed[0], "polygon": good["polygon"]}, good,
        *failed, line(300, 0, "a"), line(300, 0, "a"), line(300, 100, "-" * 9),
    ]}, {})  # fmt: skip

    kept = [each["turned"] for each in made["lines"] if "turned" in each]
    texts = [each.get("text") for each in made["lines"] if "turned" in each]
    assert sorted(zip(kept, map(str, texts), strict=True)) == [
        (90, "None"), (90, "down"), (270, "good"), (270, "up")
    ]  # fmt: skip
    assert [each["text"] for each in made["lines"] if "turned" not in each] == ["a", "a", "-" * 9]


@pytest.mark.parametrize(("turned", "first"), [(90, 200), (270, 0)])
def test_a_page_on_its_side_is_read_column_by_column(turned, first):
    at = [first, 200 - first]
    lines = [upright(at[1], 0, "below", turned), upright(at[0], 100, "a", turned)]
    lines.append(upright(at[0], 0, "b", turned))
    lines.append(line(90, 90, "x"))

    made = PageText()({"lines": lines}, {})

    row = ["b", "a"] if turned == 90 else ["a", "b"]
    assert made["text"].split("\n")[0] == " ".join(row)
    assert made["text"].endswith("below")


def test_a_line_that_failed_stays_and_adds_nothing():
    failed = line(0, 50, failure={"stage": "recognise", "kind": "shape", "error": "…"})

    made = PageText()({"lines": [line(0, 90, "b"), failed, line(0, 10, "a"), line(0, 130, "")]}, {})

    assert made["text"] == "a\nb"
    assert len(made["lines"]) == 4
    assert made["lines"][1] == failed


def test_a_line_without_a_place_comes_last():
    lost = {"polygon": [], "failure": {"stage": "lines", "kind": "shape", "error": "…"}}

    made = PageText()({"lines": [lost, line(0, 50, "b"), line(0, 10, "a")]}, {})

    assert made == {"text": "a\nb", "lines": [line(0, 10, "a"), line(0, 50, "b"), lost]}


def test_lines_that_are_hard_to_read_may_be_left_out():
    lines = [line(0, 10, "a"), line(0, 50, "?", confidence=0.2), line(0, 90, failure={})]

    made = PageText(min_confidence=0.5)({"lines": lines}, {})

    assert made["text"] == "a"
    assert made["lines"] == [lines[0], lines[2]]


def test_an_empty_page_has_an_empty_text():
    assert PageText()({"lines": []}, {}) == {"text": "", "lines": []}


@pytest.mark.parametrize("record", [{}, {"parts": []}, 3, {"lines": None}])
def test_a_record_without_lines_is_told(record):
    with pytest.raises(ConfigError, match="no list 'lines'"):
        PageText()(record, {})
