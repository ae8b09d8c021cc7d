"""The sample classifier, judged without gepipe's own operators; and what the wheel carries."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest

from gepipe import bundle
from gepipe.ops.plan import plan_post, plan_pre
from gepipe.spec.load import loads

ROOT = Path(__file__).resolve().parents[2]

# Photo, its class and probability, and the classes that are right as well.
ANSWERS = [
    ("coffee.png", 967, 0.952, ()),  # espresso
    ("camera.png", 872, 0.957, ()),  # tripod
    ("chelsea.png", 282, 0.389, (281, 285)),  # tiger cat; tabby, Egyptian cat
    ("motorcycle_left.png", 665, 0.443, (670,)),  # moped; motor scooter
    ("rocket.jpg", 657, 0.327, (744,)),  # missile; projectile
    ("flower.jpg", 985, 0.327, ()),  # daisy
    ("china.jpg", 698, 0.274, (663,)),  # palace; monastery
]


@pytest.fixture(scope="module")
def samples():
    fetcher = bundle.load_fetcher()
    fetcher.fetch("classify", report=print)
    return fetcher.default_destination()


@pytest.fixture(scope="module")
def classify(samples):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = str(samples / "models" / "efficientnet_lite0.onnx")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def classify(photos):
        images = np.stack([tensor(samples / "media" / "photos" / name) for name in photos])
        return session.run(["probs"], {"input": images})[0]

    return classify


def tensor(path):
    """Decode, short side to 256, centre crop of 224, normalise, channels first; by hand."""
    image = cv2.cvtColor(cv2.imread(str(path), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    height, width = image.shape[:2]
    scale = 256 / min(height, width)
    image = cv2.resize(image, (round(width * scale), round(height * scale)))
    top, left = (image.shape[0] - 224) // 2, (image.shape[1] - 224) // 2
    crop = image[top : top + 224, left : left + 224].astype(np.float32)
    return ((crop - 127) / 128).transpose(2, 0, 1)


@pytest.mark.parametrize(("photo", "label", "probability", "as_right"), ANSWERS)
def test_the_sample_classifier_is_right(classify, photo, label, probability, as_right):
    (probs,) = classify([photo])

    top3 = list(np.argsort(-probs)[:3])
    assert probs[label] == pytest.approx(probability, abs=0.03)
    assert top3[0] == label
    assert set(as_right) <= set(top3)


def test_a_batch_gives_what_its_photos_give_alone(classify):
    photos = [answer[0] for answer in ANSWERS]

    alone = np.concatenate([classify([photo]) for photo in photos])

    np.testing.assert_allclose(classify(photos), alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fuse", [True, False])
def test_the_operators_of_the_ready_pipeline_give_the_right_answers(samples, monkeypatch, fuse):
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(samples.parent)
    spec = loads(bundle.pipeline_text("classify"))
    pre, post = plan_pre(spec.pre.ops, fuse=fuse), plan_post(spec.post.ops)
    pre.setup()
    post.setup()
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(str(spec.infer.model), providers=providers)

    best = {}
    for entry in spec.source.entries():
        meta, row = {}, np.zeros((3, 224, 224), np.float32)
        pre(spec.source.reader.read(entry.payload), meta, {"input": row})
        (probs,) = session.run(["probs"], {"input": row[None]})
        best[Path(entry.source).name] = post({"probs": probs[0]}, meta)["top_k"][0]

    assert len(best) == 8
    for photo, label, probability, _ in ANSWERS:
        assert best[photo]["class"] == label
        assert best[photo]["score"] == pytest.approx(probability, abs=0.03)


def test_the_labels_name_the_classes(samples):
    labels = json.loads((samples / "models" / "imagenet_labels.json").read_text())

    assert len(labels) == 1000
    assert [labels[str(answer[1])] for answer in ANSWERS[:3]] == ["espresso", "tripod", "tiger cat"]


def test_the_photo_folder_holds_the_eight_photos_and_nothing_else(samples):
    photos = sorted(path.name for path in (samples / "media" / "photos").iterdir())

    assert photos == sorted([*(answer[0] for answer in ANSWERS), "astronaut.png"])


@pytest.mark.usefixtures("samples")
def test_concurrent_fetches_into_an_empty_folder_agree(tmp_path):
    code = (
        "import sys; from pathlib import Path; from gepipe import bundle; "
        "print(len(bundle.load_fetcher().fetch('classify', Path(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]

    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=200)[0] for process in running]

    assert said == ["10\n"] * 3
    assert not list(tmp_path.rglob(".part-*"))


def test_finding_samples_in_place_imports_nothing_heavy(samples):
    code = (
        "import sys; from pathlib import Path; from gepipe import bundle; "
        "bundle.load_fetcher().fetch('classify', Path(sys.argv[1])); "
        "print(sorted({'numpy', 'onnx', 'cv2', 'pydantic', 'yaml'} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(samples)],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )

    assert done.stdout == "[]\n"


@pytest.fixture(scope="module")
def wheel(samples, tmp_path_factory):  # noqa: ARG001 - models and media must lie there
    """The wheel, built while models and media lie in the checkout."""
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("not in a checkout")
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), "."]
    subprocess.run(pip, cwd=ROOT, capture_output=True, check=True, timeout=200)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_carries_pipelines_and_the_code_of_the_samples(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())

    for path in [*(ROOT / "pipelines").glob("*.yaml"), *(ROOT / "samples").glob("*.py")]:
        assert f"gepipe/_bundled/{path.relative_to(ROOT)}" in names


def test_the_wheel_carries_no_model_no_photo_and_no_test(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    heavy = (".onnx", ".png", ".jpg", ".pth", ".om")
    assert not [name for name in names if name.endswith(heavy)]
    assert not [name for name in names if "tests" in name or "imagenet_labels" in name]
    assert wheel.stat().st_size < 1 << 20


def test_the_wheel_works_without_the_checkout(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "from gepipe import bundle; print(bundle.__file__); "
        "print('top_k' in bundle.pipeline_text('classify')); "
        "print(bundle.load_fetcher().default_destination())"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )

    where, found, destination = done.stdout.split()
    assert where.startswith(str(tmp_path))
    assert found == "True"
    assert destination == str(tmp_path / "samples")
