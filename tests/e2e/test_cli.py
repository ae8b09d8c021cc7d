"""The real command line in processes of its own, over a tiny model and small pictures."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from tests.support import family_of, is_alive, jpeg, onnx_model, wait_until

GEPIPE = [sys.executable, "-c", "from gepipe.cli.app import main; main()"]
KEYS = [
    "status", "exit_code", "error", "items", "results", "failures", "seconds", "items_per_s",
    "slowest_stage", "output", "failures_file", "engine", "stages", "parts", "failed_parts",
    "marred_items", "first_failed_part", "notes", "videos", "dropped", "first_item",
]  # fmt: skip
YAML = """\
pipeline:
  name: tiny
  source: {images: photos}
  stages:
    - name: preprocess
      threads: 1
      batch_size: 4
      ops:
        - decode_image: {color: rgb}
        - resize: {size: [8, 8]}
        - normalize: {scale: 1/255}
        - to_tensor: {layout: nchw}
    - name: inference
      model: tiny.onnx
    - name: postprocess
      ops:
        - top_k: {k: 2, labels: labels.txt}
  sink: {jsonl: out/tiny.jsonl}
"""
SLOW = """
import threading

def slow(value, meta):
    threading.Event().wait(0.05)
    return value
"""


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    pytest.importorskip("onnx")
    return onnx_model(
        tmp_path_factory.mktemp("model") / "tiny.onnx",
        [("ReduceMean", ["input"], ["scores"], {"axes": [2, 3], "keepdims": 0})],
        {"input": ("float32", ["n", 3, 8, 8])},
        {"scores": ("float32", ["n", 3])},
    ).read_bytes()


@pytest.fixture
def place(tmp_path, model):
    (tmp_path / "tiny.onnx").write_bytes(model)
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\n")
    (tmp_path / "tiny.yaml").write_text(YAML)
    (tmp_path / "ops.py").write_text(SLOW)
    (tmp_path / "photos").mkdir()
    for seed in range(6):
        (tmp_path / "photos" / f"{seed}.jpg").write_bytes(jpeg(seed=seed))
    return tmp_path


def gepipe(place, *arguments, **options):
    return subprocess.run(
        [*GEPIPE, *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        **options,
    )


def many(place, count=400):
    """Return the options of a run that takes seconds."""
    (place / "many.txt").write_text("".join(f"photos/{i % 6}.jpg\n" for i in range(count)))
    ops = "decode_image, {resize: 8}, {python: './ops.py:slow'}, normalize, to_tensor"
    return ["--set", "source={list: many.txt}", "--set", f"preprocess.ops=[{ops}]"]


def written(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


# --- run ------------------------------------------------------------------------------------------


def test_a_run_writes_results_and_shows_them(place):
    done = gepipe(place, "run", "tiny.yaml")

    assert done.returncode == 0, done.stderr
    lines = (place / "out" / "tiny.jsonl").read_text().splitlines()
    assert [json.loads(line)["source"] for line in lines] == [f"photos/{i}.jpg" for i in range(6)]
    assert re.search(r"^photos/0\.jpg +(red|green|blue) +\d+\.\d%$", done.stdout, re.MULTILINE)
    assert re.search(
        r"^6 of 6 inputs with results · in .* s · .* items/s · no failures · slowest stage: \w+, "
        r"busy \d+%$",
        done.stdout,
        re.MULTILINE,
    )
    assert "results: out/tiny.jsonl" in done.stdout
    assert "engine onnxruntime" in done.stderr
    workers = (
        r"workers: preprocess 1, inference \d( \(up to \d+\))?, postprocess 1; batch 4; slots \d+"
    )
    assert re.search(workers, done.stderr)


def test_in_a_pipe_there_are_no_control_codes(place):
    (place / "photos" / "a\x1b[31m[red].jpg").write_bytes(b"")
    (place / "photos" / "0.jpg").rename(place / "photos" / os.fsdecode(b"\xff.jpg"))

    done = gepipe(place, "run", "tiny.yaml", env={**os.environ, "FORCE_COLOR": "1"})

    assert done.returncode == 3
    assert "\x1b" not in done.stdout + done.stderr
    assert "photos/\\xff.jpg" in done.stdout
    assert "first failure: photos/a\\x1b[31m[red].jpg: " in done.stdout


def test_failures_are_counted_and_the_code_is_3(place):
    (place / "photos" / "3.jpg").write_bytes(b"no picture")

    done = gepipe(place, "run", "tiny.yaml", "--json")

    assert done.returncode == 3
    summary = json.loads(done.stdout)
    assert (summary["status"], summary["exit_code"]) == ("complete", 3)
    assert (summary["items"], summary["results"], summary["failures"]) == (6, 5, 1)
    failed = json.loads((place / summary["failures_file"]).read_text())
    assert failed["source"] == "photos/3.jpg"


def test_the_json_summary_has_its_keys(place):
    done = gepipe(place, "run", "tiny.yaml", "--json", "--output", "other.jsonl")

    summary = json.loads(done.stdout)
    assert done.returncode == 0
    assert list(summary) == KEYS
    assert summary["output"] == "other.jsonl"
    assert summary["engine"] == "onnxruntime"
    assert summary["slowest_stage"] in summary["stages"]
    assert set(summary["stages"]) == {"preprocess", "inference", "postprocess"}
    assert set(summary["stages"]["inference"]) == {
        "role", "workers", "items", "busy_s", "utilisation", "restarts",
    }  # fmt: skip


def test_quiet_says_nothing(place):
    done = gepipe(place, "run", "tiny.yaml", "--quiet")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_another_format_is_written_without_a_table(place):
    done = gepipe(place, "run", "tiny.yaml", "--output", "out/tiny.csv", "--limit", "2")

    assert done.returncode == 0
    assert "probability" not in done.stdout
    assert "2 of 2 inputs" in done.stdout
    assert (place / "out" / "tiny.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tiny.yaml", "--set", "preproces.batch_size=2"], "did you mean"),
        (["tiny.yaml", "--set", "preprocess.batch_sice=2"], "did you mean"),
        (["missing.yaml"], "there is no such file"),
        (["tiny.yaml", "--input", "nowhere"], "no such file"),
        (["tiny.yaml", "--set", "inference.model=other.onnx"], "no such model file"),
        (["tiny.yaml", "--set", "source={list: '/dev/null'}"], "empty"),
        (["tiny.yaml", "--input", "a.jpg", "b.jpg"], "quote a pattern: --input 'in/*.mp4'"),
        (["tiny.yaml", "--limit", "0"], "--limit"),
        (["tiny.yaml", "--nonsense"], "--nonsense"),
        ([], "FILE"),
    ],
)
def test_a_wrong_request_is_refused_with_2(place, arguments, says):
    done = gepipe(place, "run", *arguments)

    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_model_that_does_not_open_is_5(place):
    (place / "tiny.onnx").write_bytes(b"no model")

    done = gepipe(place, "run", "tiny.yaml", "--json")

    assert done.returncode == 5
    assert "ONNX Runtime cannot open it" in done.stderr
    summary = json.loads(done.stdout)
    assert (summary["status"], summary["exit_code"]) == ("failed", 5)
    assert "cannot open" in summary["error"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_goes_on_with_resume(place, number):
    options = many(place, 200)
    with subprocess.Popen(
        [*GEPIPE, "run", "tiny.yaml", *options],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        wait_until(lambda: written(place / "out" / "tiny.jsonl") >= 8)
        family = family_of(process.pid)
        os.killpg(process.pid, number)  # as a terminal or a service manager does
        _, said = process.communicate(timeout=200)

    assert process.returncode == 130
    wait_until(lambda: not any(map(is_alive, family)))
    got = written(place / "out" / "tiny.jsonl")
    assert f"stopped: {got} of 200 done; go on with: " in said
    assert said.rstrip().endswith(" --resume")  # the whole command, ready to be pasted
    assert "warning" not in said
    assert "Traceback" not in said

    resumed = gepipe(place, "run", "tiny.yaml", *options, "--resume", "--limit", "200")
    assert resumed.returncode == 0, resumed.stderr
    assert f"{200 - got} inputs left of 200" in resumed.stderr
    lines = (place / "out" / "tiny.jsonl").read_text().splitlines()
    assert [json.loads(line)["index"] for line in lines] == list(range(200))


def test_nobody_is_told_to_go_on_with_what_has_no_end(place):
    pytest.importorskip("av")
    from tests.clips import clip

    clip(place / "clip.mp4", 20)
    source = "source={videos: {paths: clip.mp4, live: true, reconnect: 1000}}"
    with subprocess.Popen(
        [*GEPIPE, "run", "tiny.yaml", "--set", source],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        wait_until(lambda: written(place / "out" / "tiny.jsonl") >= 4)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=200)

    assert process.returncode == 130
    assert re.search(r"^stopped: [\d,]+ frames done$", said, re.MULTILINE)


def test_a_finished_job_has_nothing_to_resume(place):
    assert gepipe(place, "run", "tiny.yaml").returncode == 0

    done = gepipe(place, "run", "tiny.yaml", "--resume")

    assert done.returncode == 0
    assert "nothing left to do" in done.stderr
    assert "6 of 6 inputs with results" in done.stdout


def test_resuming_another_pipeline_is_refused(place):
    assert gepipe(place, "run", "tiny.yaml").returncode == 0

    done = gepipe(place, "run", "tiny.yaml", "--resume", "--set", "postprocess.ops=[{top_k: 1}]")

    assert done.returncode == 2
    assert "the pipeline has changed" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_run_ends_quietly(place, number):
    os.mkfifo(place / "list")  # the run waits here for its inputs
    with subprocess.Popen(
        [*GEPIPE, "run", "tiny.yaml", "--set", "source={list: list}"],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        fifo = wait_until(lambda: opened(place / "list"))
        try:
            out, said = ended(process, number)
        finally:
            process.kill()
            os.close(fifo)

    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in said


def ended(process, number):
    """Send a signal and return what was said.

    A signal that arrives in the instant before a read blocks is noticed at the next one only: the
    interpreter runs handlers between its own steps. People press the keys again.
    """
    for _ in range(3):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=20)
    raise AssertionError("it does not end")


def opened(fifo):
    """Return a descriptor of the writing end, once somebody reads the other."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def test_output_that_nobody_reads_is_no_error(place):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*GEPIPE, "run", "tiny.yaml"], cwd=place, stdout=write, stderr=subprocess.PIPE,
        text=True, timeout=200, check=False,
    )  # fmt: skip
    os.close(write)

    assert done.returncode == 0
    assert "Broken pipe" not in done.stderr
    assert "Traceback" not in done.stderr


def test_warnings_are_plain_lines(place):
    (place / "ops.py").write_text(
        "import os\n\ndef slow(value, meta):\n"
        "    if value[0, 0, 0] == value[0, 0, 0] and not os.path.exists('died'):\n"
        "        open('died', 'x').close()\n"
        "        os.kill(os.getpid(), 9)\n"
        "    return value\n"
    )

    done = gepipe(place, "run", "tiny.yaml", *many(place, 6))

    assert done.returncode == 0, done.stderr
    assert re.search(r"^warning: pre.* killed by SIGKILL .*; replaced$", done.stderr, re.MULTILINE)


def test_a_bug_of_ours_is_70_and_asks_for_a_report(place):
    code = (
        "import gepipe.pipeline.job as j\n"
        "def bug(*a, **k): raise ZeroDivisionError('ours')\n"
        "j.Job.run = bug\n"
        "from gepipe.cli.app import main; main()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, "run", "tiny.yaml"],
        cwd=place, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert done.returncode == 70
    assert "ZeroDivisionError: ours" in done.stderr
    assert "please report" in done.stderr


def test_a_run_without_standard_streams_works(place):
    shell = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    code = subprocess.call([*shell, *GEPIPE, "run", "tiny.yaml"], cwd=place, timeout=200)

    assert code == 0
    assert len((place / "out/tiny.jsonl").read_text().splitlines()) > 0


def test_a_list_from_a_closed_standard_input_is_refused_with_2(place):
    (place / "tiny.yaml").write_text(YAML.replace("{images: photos}", '{list: "-"}'))
    shell = ["/bin/sh", "-c", 'exec "$@" <&-', "sh"]
    done = subprocess.run(
        [*shell, *GEPIPE, "run", "tiny.yaml"],
        check=False, cwd=place, capture_output=True, text=True, timeout=200,
    )  # fmt: skip

    assert done.returncode == 2
    assert "standard input is closed" in done.stderr


def test_an_output_that_is_removed_during_the_run_is_no_success(place):
    (place / "gone.py").write_text(
        "import os\n\ndef gone(value, meta):\n    os.path.lexists('out/tiny.jsonl') and "
        "os.unlink('out/tiny.jsonl')\n    return value\n"
    )
    slow = YAML.replace("- decode_image", "- python: ./gone.py:gone\n        - decode_image")
    (place / "tiny.yaml").write_text(slow)

    done = gepipe(place, "run", "tiny.yaml")

    assert done.returncode == 1
    assert "'out/tiny.jsonl' was changed or removed while the run wrote it" in done.stderr
    (place / "gone.py").write_text("def gone(value, meta):\n    return value\n")
    assert gepipe(place, "run", "tiny.yaml", "--resume").returncode == 0
    assert len((place / "out/tiny.jsonl").read_text().splitlines()) == 6


# --- a terminal -----------------------------------------------------------------------------------


def in_terminal(place, arguments, *, press=None):
    """Run in a terminal of 120 columns; `press` is asked what to type, given what was shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place)
        os.environ.update(TERM="xterm", COLUMNS="120")
        os.environ.pop("NO_COLOR", None)
        os.execv(GEPIPE[0], [*GEPIPE, *arguments])
    shown = b""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:  # how a terminal says that the other end is closed
            break
        if not data:
            break
        shown += data
        if press is not None and (keys := press(shown.decode(errors="replace"))):
            os.write(terminal, keys)
            press = None
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), shown.decode(errors="replace")


def test_a_terminal_shows_one_live_line_and_then_the_table(place):
    code, shown = in_terminal(place, ["run", "tiny.yaml", *many(place, 40)])

    assert code == 0, shown
    assert re.search(r"\d+/40 \(\d+%\) · [\d.]+ items/s .*is slowest, busy \d+%", shown)
    assert "\x1b[2K" in shown  # drawn over
    assert shown.index("batch 4") < shown.index("40 of 40 inputs with results")
    assert shown.count("40 of 40 inputs") == 1


def test_ctrl_c_in_a_terminal_stops_the_run(place):
    code, shown = in_terminal(
        place,
        ["run", "tiny.yaml", *many(place)],
        press=lambda shown: b"\x03" if re.search(r"[1-9]\d*/400 \(", shown) else None,
    )

    assert code == 130
    assert re.search(r"stopped: \d+ of 400 done; go on with: .* --resume", shown)
    assert "Traceback" not in shown


# --- check and plan -------------------------------------------------------------------------------


def test_a_good_pipeline_passes_the_check(place):
    done = gepipe(place, "check", "tiny.yaml")

    assert (done.returncode, done.stderr) == (0, "")
    assert "inputs: 6" in done.stdout
    assert "model takes input float32 [3, 8, 8]" in done.stdout
    assert "tiny.yaml: good to run" in done.stdout


def test_a_mismatch_names_both_ends(place):
    (place / "tiny.yaml").write_text(YAML.replace("size: [8, 8]", "size: [9, 8]"))

    done = gepipe(place, "check", "tiny.yaml")

    assert done.returncode == 2
    assert (
        "error: stage 'preprocess' makes float32 [3, 9, 8]; the model's input 'input' takes "
        "float32 [3, 8, 8]; set the size in" in done.stderr
    )
    run = gepipe(place, "run", "tiny.yaml")  # rather than six failures of the same kind
    assert (run.returncode, run.stderr) == (2, done.stderr.splitlines()[0] + "\n")


def test_a_check_finds_everything_at_once(place):
    (place / "labels.txt").write_text("just\none\n")
    (place / "tiny.yaml").write_text(
        YAML.replace("size: [8, 8]", "size: [9, 8]")
        .replace("images: photos", "images: nowhere")
        .replace("- to_tensor", "- python: nothing_here:function\n        - to_tensor")
        .replace("jsonl: out/tiny.jsonl", "jsonl: labels.txt/tiny.jsonl")
    )

    done = gepipe(place, "check", "tiny.yaml", "--json")

    found = json.loads(done.stdout)
    assert done.returncode == 2
    assert not found["ok"]
    said = "\n".join(found["errors"])
    for each in ("nowhere", "nothing_here", "labels.txt", "names 2 classes"):
        assert each in said


BAD_OPS = """
def grey(value):
    return value[:, :, 0]

def broken(value):
    return value.nothing

def picky(value):
    from gepipe.errors import ItemError
    raise ItemError("blurred", "not sharp")
"""


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ("decode_image, {normalize: {scale: 1/255}}, to_tensor", "inputs all fail"),
        ("decode_image, {resize: 8}, {python: './bad.py:grey'}, to_tensor", "[1, 8, 8]"),
        ("decode_image, {python: './bad.py:broken'}, to_tensor", "AttributeError"),
        ("decode_image, {resize: 8}, {python: {function: './bad.py:grey', args: {x: 1}}}", "'x'"),
        ("decode_image, {resize: 8}, {normalize: {mean: [1, 2]}}, to_tensor", "2 values"),
        ("decode_image, {resize: 8}, {center_crop: 9}, to_tensor", "smaller than size"),
    ],
)
def test_what_every_item_would_fail_of_is_refused_before_the_start(place, ops, words):
    (place / "bad.py").write_text(BAD_OPS)

    done = gepipe(place, "check", "tiny.yaml", "--set", f"preprocess.ops=[{ops}]")

    assert done.returncode == 2, done.stdout
    assert words in done.stderr


def test_what_post_makes_of_no_item_is_refused_before_the_start(place):
    (place / "bad.py").write_text(BAD_OPS)
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}

    done = gepipe(
        place, "check", "tiny.yaml", "--set", "postprocess.ops=[{python: './bad.py:broken'}]"
    )

    assert done.returncode == 2, done.stdout
    assert "postprocess: the first " in done.stderr
    assert "AttributeError: 'dict' object has no attribute 'nothing'" in done.stderr
    after = {
        path: path.stat().st_mtime_ns for path in place.rglob("*") if "pycache" not in str(path)
    }
    assert {path: before.get(path) for path in after} == after, "nothing is written"


def test_inputs_that_are_bad_themselves_are_no_reason_to_refuse(place):
    (place / "bad.py").write_text(BAD_OPS)
    picky = "decode_image, {resize: 8}, {python: './bad.py:picky'}, to_tensor"
    for name in range(5):
        (place / "photos" / f"{name}.jpg").write_bytes(b"")

    assert gepipe(place, "check", "tiny.yaml").returncode == 0
    assert gepipe(place, "check", "tiny.yaml", "--set", f"preprocess.ops=[{picky}]").returncode == 0


def test_a_check_does_not_load_the_engine_into_its_own_process(place):
    code = (
        "import sys\n"
        "from gepipe.pipeline.check import check\n"
        "assert not check('tiny.yaml').errors\n"
        "assert not {'onnxruntime', 'cv2', 'acl'} & set(sys.modules), 'loaded'\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr


def test_user_code_that_kills_its_process_is_a_finding(place):
    (place / "ops.py").write_text("import os\nos.kill(os.getpid(), 11)\n")
    slow = "{python: './ops.py:slow'}"

    done = gepipe(place, "check", "tiny.yaml", "--set", f"postprocess.ops=[{slow}]")

    assert done.returncode == 2
    assert "killed by SIGSEGV during set-up" in done.stderr


def test_a_model_with_a_scalar_output_is_explained(place):
    onnx_model(
        place / "tiny.onnx",
        [("ReduceMean", ["input"], ["mean"], {"keepdims": 0})],
        {"input": ("float32", ["n", 3, 8, 8])},
        {"mean": ("float32", [])},
    )

    done = gepipe(place, "check", "tiny.yaml")

    assert done.returncode == 2
    assert "'mean'" in done.stderr
    assert "the batch as its first axis" in done.stderr


def test_a_plan_shows_what_a_run_would_use(place):
    done = gepipe(place, "plan", "tiny.yaml", "--set", "inference.instances=1")

    assert done.returncode == 0
    for each in ("engine onnxruntime", "fused into one pass", "batch 4", "slots: 2 a link"):
        assert each in done.stdout


def test_a_plan_as_json(place):
    done = gepipe(place, "plan", "tiny.yaml", "--json", "--set", "inference.instances=1")
    facts = json.loads(done.stdout)

    assert facts["batch"] == 4
    assert facts["workers"] == {"pre": 1, "infer": 1, "post": 1}
    assert facts["inputs"] == [{"name": "input", "dtype": "float32", "shape": [4, 3, 8, 8]}]
    assert facts["shared_nbytes"] == 2 * sum(facts["slot_nbytes"].values())


# --- the rest -------------------------------------------------------------------------------------


def test_init_writes_a_pipeline_and_never_over_another(tmp_path):
    assert gepipe(tmp_path, "init", "classify").returncode == 0
    ours = tmp_path / "classify.yaml"
    assert "pipeline:" in ours.read_text()
    ours.write_text("mine")

    refused = gepipe(tmp_path, "init", "classify")

    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert ours.read_text() == "mine"
    assert gepipe(tmp_path, "init", "classify", "--force").returncode == 0
    assert "pipeline:" in ours.read_text()


def test_init_lists_what_there_is_and_corrects(tmp_path):
    assert "classify" in gepipe(tmp_path, "init").stdout
    wrong = gepipe(tmp_path, "init", "clasify")

    assert wrong.returncode == 2
    assert "did you mean 'classify'?" in wrong.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_schema_is_json(tmp_path):
    assert json.loads(gepipe(tmp_path, "schema").stdout)["title"] == "gepipe pipeline"
    assert gepipe(tmp_path, "schema", "--output", "s.json").returncode == 0
    assert json.loads((tmp_path / "s.json").read_text())["$defs"]


def test_operators_are_listed_and_described(tmp_path):
    listed = gepipe(tmp_path, "ops").stdout
    assert re.search(r"^  resize +Resize an image", listed, re.MULTILINE)
    assert "jsonl" not in listed
    assert "jsonl" in gepipe(tmp_path, "ops", "--all").stdout

    one = gepipe(tmp_path, "ops", "resize").stdout
    assert "short_side: integer" in one
    parts = json.loads(gepipe(tmp_path, "ops", "top_k", "--json").stdout)
    assert parts[0]["parameters"][0] == {
        "name": "k", "type": "integer", "required": False, "default": 5,
        "description": "How many classes.",
    }  # fmt: skip

    wrong = gepipe(tmp_path, "ops", "resise")
    assert wrong.returncode == 2
    assert "did you mean 'resize'?" in wrong.stderr


def test_samples_are_listed(tmp_path):
    assert gepipe(tmp_path, "samples", "list").stdout.startswith("classify ")
    wrong = gepipe(tmp_path, "samples", "fetch", "clasify")
    assert wrong.returncode == 2
    assert "did you mean 'classify'?" in wrong.stderr


def test_the_doctor_looks_at_the_machine(tmp_path):
    done = gepipe(tmp_path, "doctor", "--json")

    looked_at = {finding["what"] for finding in json.loads(done.stdout)["findings"]}
    assert {"python", "numpy", "onnxruntime", "pyarrow", "processors", "memory", "npu"} <= looked_at


def test_the_version_and_an_unknown_command(tmp_path):
    assert re.fullmatch(r"gepipe \d+\.\d+\.\d+\n", gepipe(tmp_path, "--version").stdout)
    wrong = gepipe(tmp_path, "rum")
    assert wrong.returncode == 2
    assert "run" in wrong.stderr


@pytest.mark.parametrize(
    "command", ["run", "check", "plan", "schema", "ops", "init", "samples", "doctor"]
)
def test_every_command_has_a_help(tmp_path, command):
    done = gepipe(tmp_path, command, "--help")

    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_the_help_of_run_has_three_examples(tmp_path):
    assert gepipe(tmp_path, "run", "--help").stdout.count("gepipe run ") == 4  # and its usage


def test_json_is_one_object_also_when_the_pipeline_is_wrong(place):
    (place / "wrong.yaml").write_text("stages: [{name: preprocess, layout: x}]\n")

    done = gepipe(place, "run", "wrong.yaml", "--json")

    summary = json.loads(done.stdout)
    assert done.returncode == summary["exit_code"] == 2
    assert summary["status"] == "failed"
    assert "unknown key 'layout'" in summary["error"]
    assert "unknown key 'layout'" in done.stderr
