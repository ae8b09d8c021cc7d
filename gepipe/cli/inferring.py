"""Files through a served pipeline, from the command line."""

from __future__ import annotations

from dataclasses import dataclass

from gepipe.cli.running import execute
from gepipe.cli.text import harmless, print_error, print_out
from gepipe.errors import ConfigError, StageError
from gepipe.io.failures import Failure
from gepipe.io.files import ImageFiles
from gepipe.io.jsonl import quoted
from gepipe.serving.records import line_of
from gepipe.serving.remote import RemoteJob
from gepipe.spec.model import PipelineSpec
from gepipe.triton.address import Address
from gepipe.triton.client import Client, ClientOptions


@dataclass(frozen=True, slots=True)
class InferRequest:
    """The options of `gepipe triton infer`; see its help."""

    url: str
    model: str
    files: tuple[str, ...]
    output: str | None
    resume: bool
    concurrency: int
    timeout: float
    patience: float
    priority: str | None


def do_infer(request: InferRequest) -> int:
    """Send the files and return the exit code.

    Raises:
        ConfigError: A file, the address or the model is wrong.
        BackendError: The server cannot be reached.
    """
    address = Address.parse(request.url)
    options = ClientOptions(
        concurrency=request.concurrency,
        timeout_s=request.timeout,
        patience_s=request.patience,
        realtime=None if request.priority is None else request.priority == "realtime",
    )
    if request.output is not None:
        stages = [{"name": "preprocess"}, {"name": "inference"}, {"name": "postprocess"}]
        spec = PipelineSpec.model_validate({"name": request.model, "stages": stages})
        job = RemoteJob(
            spec,
            address,
            options,
            inputs=request.files,
            output=request.output,
            resume=request.resume,
        )
        return execute(job, request.model)
    source = ImageFiles(request.files)
    client = Client(
        address,
        request.model,
        options,
        reader=source.reader,
        stage="client",
        encode=line_of,
    )
    served = client.open()
    if served.datatype != "BYTES":
        raise ConfigError(
            f"{address}: model {served.name!r} takes {served.datatype} as {served.input!r}, "
            "not the bytes of a file; call it with `gepipe run FILE --via` and a source of arrays"
        )
    failed = 0
    for outcomes in client.run(source.entries()):
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                failed += 1
                print_error(harmless(f"{outcome.source}: {outcome.stage}: {outcome.error}"))
            else:
                source_text = quoted(outcome.source).decode()
                print_out(f'{{"source": {source_text}, "result": {outcome.payload.decode()}}}')
    return StageError.exit_code if failed else 0
