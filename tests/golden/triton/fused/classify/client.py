"""Sends files to a model in a Triton server and prints a JSON line for each.

    pip install 'tritonclient[http]' 'numpy<3'
    python client.py photo.jpg [--url localhost:8000] [--timeout 60]

Made by gepipe triton export; a new export replaces this file.
"""

import argparse
import json
import sys

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

MODEL = "classify"


def read(path):
    """Return a file as the model's input, one row."""
    with open(path, "rb") as file:
        # dtype=object, or NumPy cuts zero bytes off the end.
        return np.array([[file.read()]], dtype=object)


def main():
    parser = argparse.ArgumentParser(description="Send files to the model " + MODEL + ".")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--url", default="localhost:8000", help="host:port of the server's HTTP")
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
            tensor = triton.InferInput("IMAGE", list(row.shape), "BYTES")
            tensor.set_data_from_numpy(row)
            answer = client.infer(MODEL, [tensor]).as_numpy("RESULT")
            record = {"source": path, "result": json.loads(answer[0, 0])}
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
