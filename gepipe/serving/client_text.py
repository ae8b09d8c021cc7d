"""What an export tells its users: names in plain words, a client in Python, a line for curl."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from gepipe.tensors import DTYPE_OF_TRITON

if TYPE_CHECKING:
    from gepipe.serving.export_plan import ExportPlan
    from gepipe.triton.config import Tensor

#: Where a server listens whose ports nobody has chosen.
_HTTP: Final = "localhost:8000"
_BYTES: Final = "STRING"

_CLIENT: Final = '''"""Sends files to a model in a Triton server and prints a JSON line for each.

    pip install 'tritonclient[http]' 'numpy<3'
    python client.py {example} [--url {url}] [--timeout 60]

Made by gepipe triton export; a new export replaces this file.
"""

import argparse
import json
import sys

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

MODEL = "{name}"


def read(path):
    """Return a file as the model's input, one row."""
{read}


def main():
    parser = argparse.ArgumentParser(description="Send files to the model " + MODEL + ".")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--url", default="{url}", help="host:port of the server's HTTP")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one request")
    asked = parser.parse_args()
    url = asked.url.removeprefix("http://").rstrip("/")
    client = triton.InferenceServerClient(url, network_timeout=asked.timeout)
    failed = 0
    for path in asked.files:
        try:
            row = read(path)
        except (OSError, ValueError, EOFError) as error:  # no such file, or none of this kind
            failed += 1
            print(path + ": " + str(error), file=sys.stderr)
            continue
        try:
            tensor = triton.InferInput("{given}", list(row.shape), "{wire}")
            tensor.set_data_from_numpy(row)
            answer = client.infer(MODEL, [tensor]).as_numpy("{made}")
            record = {{"source": path, "result": json.loads(answer[0, 0])}}
            print(json.dumps(record, ensure_ascii=False))
        except InferenceServerException as error:
            failed += 1
            print(path + ": " + error.message(), file=sys.stderr)
        except OSError as error:  # no server
            failed += 1
            print(path + ": " + asked.url + ": " + str(error), file=sys.stderr)
    client.close()
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
'''
_READ_BYTES: Final = """    with open(path, "rb") as file:
        # dtype=object, or NumPy cuts zero bytes off the end.
        return np.array([[file.read()]], dtype=object)"""
_READ_ARRAY: Final = """    row = np.load(path)
    return np.ascontiguousarray(row.reshape({shape}), dtype=np.{dtype})"""


def client_text(plan: ExportPlan) -> str:
    """Return a client in Python that needs nothing but tritonclient."""
    given = plan.given
    is_bytes = given.data_type == _BYTES
    dtype = "" if is_bytes else DTYPE_OF_TRITON[given.data_type].name
    dtype = "bool_" if dtype == "bool" else dtype
    return _CLIENT.format(
        name=plan.name,
        example=example_of(plan),
        url=_HTTP,
        read=_READ_BYTES if is_bytes else _READ_ARRAY.format(shape=(1, *given.dims), dtype=dtype),
        given=given.name,
        wire="BYTES" if is_bytes else given.data_type,
        made=plan.made.name,
    )


def curl_text(plan: ExportPlan, url: str = f"http://{_HTTP}", file: str = "") -> str:
    """Return a line that sends one file and prints its result; empty where curl cannot.

    The body is the one element of the one input. The answer is a JSON header, four bytes of length
    and the result as JSON, in which no zero byte can be: what follows the last one is the result.
    """
    if plan.given.data_type != _BYTES:
        return ""
    return (
        f"curl -s {url}/v2/models/{plan.name}/infer -H 'Inference-Header-Content-Length: 0' "
        "-H 'Content-Type: application/octet-stream' "
        f"--data-binary @{file or example_of(plan)} | tr '\\0' '\\n' | tail -n 1"
    )


def example_of(plan: ExportPlan) -> str:
    """Return what a file to send could be called."""
    if plan.given.name == "IMAGE":
        return "photo.jpg"
    return "input.bin" if plan.given.data_type == _BYTES else "input.npy"


def tensor_lines(plan: ExportPlan) -> Iterator[str]:
    """Yield what clients send and get, in plain words."""
    given, made = plan.given, plan.made
    rows = f"1 to {plan.batch} rows" if plan.batch > 1 else "1 row"
    if given.name == "IMAGE":
        yield f"takes {_shape(given)}: {rows}, each the bytes of an image file"
    elif given.data_type == _BYTES:
        yield f"takes {_shape(given)}: {rows}, each the bytes of an input"
    else:
        yield f"takes {_shape(given)}: {rows}"
    yield f"makes {_shape(made)}: for each row its result as JSON text"


def readme_text(plan: ExportPlan, start: str, needs: Sequence[str]) -> str:
    """Return the page that lies beside the configuration.

    Args:
        plan: The pipeline.
        start: The command that starts the server, from this folder.
        needs: What the server needs.
    """
    curl = curl_text(plan)
    lines = [
        f"# {plan.name}",
        "",
        "Made by `gepipe triton export`; a new export replaces it. From this folder:",
        "",
        "```sh",
        start,
        f"python client.py {example_of(plan)}",
        *([curl] if curl else []),
        "```",
        "",
        *(f"- {line}" for line in tensor_lines(plan)),
        *(f"- needs {line}" for line in needs),
    ]
    return "".join(f"{line}\n" for line in lines)


def _shape(tensor: Tensor) -> str:
    kind = "BYTES" if tensor.data_type == _BYTES else tensor.data_type
    return f"{tensor.name}, {kind} [rows, {', '.join(map(str, tensor.dims))}]"
