"""What the README and the docs show is run, loaded and looked up, so that it stays true.

Marks in front of a code block, invisible to readers:

    <!-- file: my_ops.py -->   the page's scripts find it under this name; in samples/user_code
    <!-- prints -->            the output of the script before it, word for word
    <!-- server -->            it calls a server; see `test_docs_triton`
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gepipe.serving import kinds

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "samples" / "user_code"
PAGES = sorted([ROOT / "README.md", ROOT / "README.zh.md", *(ROOT / "docs").glob("*.md")])
GENERATED = ("yaml.md", "yaml.zh.md")  # held to the spec by their own test
#: Ready pipelines, and what their samples bring last.
SAMPLES = {
    "classify": "models/efficientnet_lite0.onnx",
    "embed": "models/all_minilm_l6_v2.onnx",
    "detect-video": "media/videos/vtest.avi",
}
FETCHED = {name: (ROOT / "samples" / path).exists() for name, path in SAMPLES.items()}

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]+?) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_PICTURE = re.compile(r'!\[([^\]]+)\]\(([^)\s]+)\)|<img src="([^"]+)"[^>]* alt="([^"]+)"')
_INLINE = re.compile(r"`([^`\n]+)`")

#: The stages that a fragment of a pipeline file is put into, to be loaded.
_AROUND = """
stages:
  - name: preprocess
  - {name: inference, model: model.onnx}
  - name: postprocess
"""

_LOADER = """
import json, sys
import yaml
from gepipe.errors import ConfigError
from gepipe.spec.load import loads

def tries(text):
    data = yaml.safe_load(text)
    if isinstance(data, dict) and ("stages" in data or "stages" in (data.get("pipeline") or {})):
        yield text
    elif isinstance(data, dict):  # keys of the pipeline, or of one stage
        base = yaml.safe_load(AROUND)
        yield yaml.safe_dump(base | data)
        for stage in range(3):
            base = yaml.safe_load(AROUND)
            base["stages"][stage] |= data
            yield yaml.safe_dump(base)
    else:  # operators or stages
        for stage in (0, 2):
            base = yaml.safe_load(AROUND)
            base["stages"][stage]["ops"] = data
            yield yaml.safe_dump(base)
        yield yaml.safe_dump({"stages": data})

def why_not(text):
    problems = []
    for candidate in tries(text):
        try:
            loads(candidate)
        except ConfigError as error:
            problems.append(str(error))
        else:
            return None
    return problems

AROUND, texts = json.load(sys.stdin)
print(json.dumps([(text, why) for text in texts if (why := why_not(text))]))
"""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    mark: str

    @property
    def file(self) -> str | None:
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m["language"], m["text"], m["mark"] or "") for m in _BLOCK.finditer(text)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def furnish(page: Path, folder: Path) -> dict[str, str]:
    """Put the page's files and the samples into a folder; return the environment of its scripts."""
    for block in blocks(page):
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text, encoding="utf-8")
            if block.file == "pyproject.toml":
                install(block.text, folder)
    (folder / "samples").symlink_to(ROOT / "samples")
    (folder / "pipelines").symlink_to(ROOT / "pipelines")
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def install(project: str, folder: Path) -> None:
    """Register the plugins of a pyproject.toml, as installing it would."""
    info = folder / "plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins\nVersion: 1.0\n")
    points = re.sub(r'\[project\.entry-points\."([^"]+)"\]', r"[\1]", project)
    _, _, points = points.partition("[gepipe.")
    (info / "entry_points.txt").write_text("[gepipe." + points.replace('"', ""))


def run_python(code: str, folder: Path, env: dict[str, str], stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder, env=env, input=stdin, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert not done.returncode, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_python_of_a_page_runs_and_prints_what_the_page_says(
    page: Path, tmp_path: Path
) -> None:
    scripts = [b for b in blocks(page) if b.language == "python" and not b.mark]
    for sample, fetched in FETCHED.items():
        if not fetched and any(f"/{sample}.yaml" in script.text for script in scripts):
            pytest.skip(f"its sample is not fetched: python -m samples.fetch {sample}")
    env = furnish(page, tmp_path)

    printed: str | None = ""
    for block in blocks(page):
        if block in scripts:
            printed = run_python(block.text, tmp_path, env)
        elif block.mark == "server":
            printed = None
        elif block.mark == "prints" and printed is not None:
            assert printed == block.text


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_yaml_of_a_page_loads(page: Path, tmp_path: Path) -> None:
    texts = [block.text for block in blocks(page) if block.language == "yaml"]
    if not texts or page.name in GENERATED:
        return
    env = furnish(page, tmp_path)

    refused = json.loads(run_python(_LOADER, tmp_path, env, json.dumps([_AROUND, texts])))

    assert not refused


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_files_of_a_page_are_those_of_the_samples(page: Path) -> None:
    for block in blocks(page):
        if block.file:
            places = [EXAMPLES / block.file, EXAMPLES / "extras" / block.file]
            (file,) = [place for place in places if place.exists()]
            assert file.read_text(encoding="utf-8") == block.text


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        file = page.parent / target if target else page
        assert file.exists(), link
        if anchor:
            assert anchor in anchors(file), link


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_pictures_of_a_page_are_there_and_small(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = _PICTURE.findall(text)

    assert len(found) == text.count("![") + text.count("<img ")  # each says what it shows
    for _, one, other, _ in found:
        assert (page.parent / (one or other)).stat().st_size < 100_000


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def commands(page: Path) -> list[str]:
    """Return the commands that a page names: in blocks, in tables and in the text."""
    found = [
        line.split(" #")[0].strip()
        for block in blocks(page)
        if block.language == "sh"
        for line in block.text.splitlines()
    ]
    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    found += [code for code in _INLINE.findall(prose) if code.startswith(("gepipe ", "make "))]
    return [each for each in found if each and not each.startswith("#")]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    import typer.main

    from gepipe.cli.app import application

    root = typer.main.get_command(application())
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in commands(page):
        program, *words = line.split()
        if program == "make":
            assert words[0] in targets, line
        if program != "gepipe":
            continue
        command = root
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert not hasattr(command, "commands"), f"{line}: no such command"
        known = {o for param in command.params for o in (*param.opts, *param.secondary_opts)}
        asked = {word.split("=")[0] for word in words if word.startswith("--")}
        assert asked <= known, line


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_options_of_a_page_exist(page: Path) -> None:
    import typer.main

    from gepipe.cli.app import application

    waiting, known = [typer.main.get_command(application())], {"--help"}
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for param in command.params:
            known |= {*param.opts, *param.secondary_opts}

    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    named = {code.split()[0] for code in _INLINE.findall(prose) if code.startswith("--")}
    assert named <= known


@pytest.mark.parametrize("page", [p for p in PAGES if p.name.endswith(".zh.md")], ids=name)
def test_a_translation_names_the_same_commands_and_code(page: Path) -> None:
    original = page.with_name(page.name.replace(".zh.md", ".md"))

    assert set(commands(page)) == set(commands(original))
    assert len(blocks(page)) == len(blocks(original))
    for ours, theirs in zip(blocks(page), blocks(original), strict=True):
        assert (ours.language, ours.mark) == (theirs.language, theirs.mark)
        assert without_comments(ours) == without_comments(theirs)


def without_comments(block: Block) -> list[str]:
    """Return a block's lines without what a translation may change: comments, and pictures."""
    if block.language == "text" and "──" in block.text:
        return []
    sign = r"\s*#.*$" if block.language in ("yaml", "sh", "python", "toml") else r"$^"
    return [line for line in (re.sub(sign, "", each) for each in block.text.splitlines()) if line]


def test_each_ready_pipeline_has_a_page_and_a_row_in_the_readmes() -> None:
    readmes = [(ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "README.zh.md")]
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))

    for file in sorted((ROOT / "pipelines").glob("*.yaml")):
        how = "make run" if file.stem == "classify" else f"make run PIPELINE={file.stem}"
        for text in readmes:
            assert f"| [{file.stem}](pipelines/{file.name}) |" in text
            assert f"| `{how}` |" in text
        assert f"gepipe init {file.stem}" in pages


def test_the_readme_can_be_read_in_three_minutes() -> None:
    for page in (ROOT / "README.md", ROOT / "README.zh.md"):
        assert len(page.read_text(encoding="utf-8").splitlines()) < 200


@pytest.mark.parametrize("page", ["failures.md", "failures.zh.md"])
def test_the_table_of_failures_has_the_kinds_of_the_code(page: str) -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "gepipe").rglob("*.py"))
    raised = set(re.findall(r'(?:ItemError|NanError)\(\s*"([a-z_]+)"', code)) | {"crash", "timeout"}
    raised |= set(re.findall(r'Refused\(\s*"[a-z]+",\s*"([a-z_]+)"', code))
    raised |= {kinds.OVERLOADED, kinds.CANCELLED, kinds.EXPIRED, kinds.UNAVAILABLE}

    listed = set(
        re.findall(r"^\| `([a-z_]+)` \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    )

    assert listed == raised


@pytest.mark.skipif(not FETCHED["classify"], reason="the samples are not fetched")
def test_the_readme_shows_what_a_run_says(tmp_path: Path) -> None:
    (shown,) = [b.text for b in blocks(ROOT / "README.md") if b.text.startswith("classify: 8")]
    opening, rows, end = (part.splitlines() for part in re.split(r"\n\n.*─\n|\n\n", shown))

    done = subprocess.run(
        [sys.executable, "-c", "from gepipe.cli.app import main; main()", "run",
         "pipelines/classify.yaml", "--output", str(tmp_path / "classify.jsonl")],
        cwd=ROOT, capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip

    said, table = done.stderr.splitlines(), done.stdout.splitlines()
    assert [masked(line) for line in said[:2]] == [masked(line) for line in opening]
    assert [masked(line) for line in table[-2:-1]] == [masked(line) for line in end[:1]]
    found = [re.split(r" {2,}", line.strip()) for line in table]
    for row in rows[-8:]:
        assert re.split(r" {2,}", row.strip()) in found


def masked(line: str) -> str:
    """Return a line without what differs from machine to machine."""
    line = re.sub(r" \(up to \d+\)|(?<=thread)s", "", line)
    return re.sub(r"[\d.]+|(?<=slowest stage: )\w+", "#", line)
