import json

import pytest

from gepipe.cli.results import table


def write(path, results, source="photos/{}.jpg"):
    lines = (
        json.dumps({"index": i, "source": source.format(i), "result": result})
        for i, result in enumerate(results)
    )
    path.write_text("".join(line + "\n" for line in lines))
    return path


def top(label, score, number=3):
    return {"top_k": [{"class": number, "label": label, "score": score}]}


def test_classes_are_shown_with_their_probability(tmp_path):
    path = write(tmp_path / "o.jsonl", [top("tiger cat", 0.389), top(None, 1.0)])

    lines = list(table(path, 2, color=False))

    assert lines == [
        "file          class      probability",
        "photos/0.jpg  tiger cat   38.9%",
        "photos/1.jpg  3          100.0%",
    ]


def test_scores_that_are_no_probabilities_are_shown_as_they_are(tmp_path):
    path = write(tmp_path / "o.jsonl", [top("cat", 12.345678), {"classes": []}])

    lines = list(table(path, 2, color=False))

    assert lines[0].split() == ["file", "class", "score"]
    assert lines[1].split() == ["photos/0.jpg", "cat", "12.35"]
    assert lines[2].split() == ["photos/1.jpg", "none"]


def test_detections_are_counted_by_label(tmp_path):
    one = {"class": 0, "label": "person", "score": 0.9, "box": [0, 0, 1, 1]}
    found = [one, {**one, "class": 1, "label": "dog"}, one, {**one, "class": 7, "label": None}]
    path = write(tmp_path / "o.jsonl", [{"detections": found}, {"detections": []}])

    assert list(table(path, 2, color=False)) == [
        "file          objects",
        "photos/0.jpg  2 person, 1 dog, 1 #7",
        "photos/1.jpg  none",
    ]


def test_of_objects_that_a_second_model_has_seen_the_kind_is_shown(tmp_path):
    cat = {"class": 15, "label": "cat", "score": 0.9, "box": [0, 0, 1, 1]}
    found = [{**cat, **top("tabby", 0.7)}, {**cat, "top_k": []}, {**cat, **top(None, 0.7)}]
    path = write(tmp_path / "o.jsonl", [{"detections": found}])

    assert list(table(path, 1, color=False))[1] == "photos/0.jpg  1 cat (tabby), 1 cat, 1 cat (#3)"


def test_texts_that_were_read_are_shown_on_one_line(tmp_path):
    pages = [{"text": "Total:\n12.50", "lines": []}, {"text": "", "lines": []}]
    path = write(tmp_path / "o.jsonl", [*pages, {"text": "ab" * 50, "lines": []}])

    assert list(table(path, 3, color=False)) == [
        "file          text",
        "photos/0.jpg  Total: / 12.50",
        "photos/1.jpg  none",
        f"photos/2.jpg  {('ab' * 30)[:59]}…",
    ]


def test_other_records_are_shown_in_short(tmp_path):
    path = write(tmp_path / "o.jsonl", [{"boxes": [[0.123456, 1.0]] * 30}, {"text": "hello"}])

    lines = list(table(path, 2, color=False))

    assert lines[0].split() == ["file", "result"]
    assert '{"boxes": [[0.1235, 1.0], ' in lines[1]
    assert lines[1].endswith("…")
    assert lines[2].endswith('{"text": "hello"}')


def test_only_the_first_rows_are_shown(tmp_path):
    path = write(tmp_path / "o.jsonl", [top("cat", 0.5)] * 1000)

    lines = list(table(path, 1000, color=False))

    assert len(lines) == 22
    assert lines[-1] == f"… and 980 more in {path}"


def test_names_are_harmless_on_a_terminal_too(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    path = write(tmp_path / "o.jsonl", [top("[red]cat\x1b[2J", 0.5)], "[bold]\x1b]0;x\x07{}.jpg")

    drawn = "\n".join(table(path, 1, color=True))

    assert "[bold]\\x1b]0;x\\x070.jpg" in drawn
    assert "[red]cat\\x1b[2J" in drawn
    assert "\x1b]0" not in drawn
    assert "\x1b[2J" not in drawn


def test_there_is_no_table_of_other_files_or_of_nothing(tmp_path):
    assert list(table(tmp_path / "o.parquet", 5, color=False)) == []
    assert list(table(write(tmp_path / "o.jsonl", []), 0, color=False)) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read back: no such file"),
        (b"", "holds fewer results than were written"),
        (b'{"index": 0, "sou', "holds lines that are no results"),
        (b"\xff\xfe\n", "holds lines that are no results"),
        (b"[1]\n", "holds lines that are no results"),
        (b'{"index": 0}\n', "holds lines that are no results"),
    ],
)
def test_a_file_that_somebody_took_away_is_told(tmp_path, content, says):
    path = tmp_path / "o.jsonl"
    if content is not None:
        path.write_bytes(content)

    (line,) = table(path, 2, color=False)

    assert line.startswith(f"{path}: {says}")
