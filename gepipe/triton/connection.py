"""A client's connection to a server: what a model takes, and one call of it."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import BackendError, ConfigError, GepipeError, PluginError
from gepipe.tensors import DTYPE_OF_TRITON
from gepipe.triton.catalogue import Catalogue
from gepipe.triton.environment import EXTRA
from gepipe.triton.region import Region

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gepipe.triton.address import Address

#: Smallest tensor, in bytes, that goes to a server on the same host through shared memory: below,
#: making it known costs more than it saves.
_SHARED_MIN: Final = 1 << 20
#: What an exported step says of an item: `stage: kind: text`.
_SAID: Final = re.compile(r"(?P<stage>[A-Za-z_][\w-]*): (?P<kind>\w+): (?P<text>.*)", re.DOTALL)
#: What the server puts in front of a step's message.
_PREFIX: Final = re.compile(r"^(in ensemble '[^']*', |\[request id: [^\]]*\] )+")
#: Answers after which the same call may succeed: a full queue, a step that is being replaced.
_PASSING: Final = re.compile(
    r"is not healthy|Exceeds maximum queue size|has no available versions|is not ready"
    r"|Server is stopping|stopped accepting new inference requests"
)
#: What the HTTP library raises when the server goes before an answer, or within it.
_CUT_OFF: Final = ("HTTPConnectionClosed", "HTTPParseError")
#: What a server says of a model that it had, while it stops or loads another version.
_UNLOADED: Final = "Request for unknown model"
_GONE: Final = "has no available versions"
_AWAY: Final = "the server is being stopped, or loads it anew"
_NOT_MODEL: Final = "expected a model with one input and one output, such as gepipe exports"


class Busy(BackendError):  # noqa: N818 - no fault: the same call may succeed a moment later
    """The server cannot take the call now, or cannot be reached."""


class Refused(GepipeError):  # noqa: N818 - an answer
    """The server answered that this input cannot be processed.

    Attributes:
        stage: Name of the pipeline's stage that said so, or `server`.
        kind: Machine-readable reason, see `gepipe.errors.ItemError`.
    """

    def __init__(self, stage: str, kind: str, text: str) -> None:
        super().__init__(text)
        self.stage = stage
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a served model takes and gives.

    Attributes:
        name: The model.
        input: Name of its input.
        datatype: The input's type, in Triton's words.
        batched: Whether the first axis is a batch.
        output: Name of its output, which holds text.
    """

    name: str
    input: str
    datatype: str
    batched: bool
    output: str

    @classmethod
    def of(cls, metadata: Any, config: Any) -> ServedModel:
        """Read the server's description of a model, as JSON values.

        Raises:
            ConfigError: It is no model that takes one input and gives text.
        """
        name = metadata["name"]
        inputs, outputs = metadata.get("inputs", []), metadata.get("outputs", [])
        if len(inputs) != 1 or len(outputs) != 1:
            raise ConfigError(
                f"model {name!r} has {_names(inputs)}, {_names(outputs)}; {_NOT_MODEL}"
            )
        if outputs[0]["datatype"] != "BYTES":
            raise ConfigError(
                f"model {name!r}: output {outputs[0]['name']!r} is {outputs[0]['datatype']}; "
                "expected BYTES, the text of a record, such as gepipe exports"
            )
        batched = int(config.get("max_batch_size", 0)) > 0
        return cls(name, inputs[0]["name"], inputs[0]["datatype"], batched, outputs[0]["name"])


@dataclass
class Connection:
    """One thread's way to a server. Closing it lets the server stop without waiting for it.

    Attributes:
        address: The server.
        timeout_s: Limit of one call.
    """

    address: Address
    timeout_s: float
    _client: Any = field(default=None, init=False)
    _library: Any = field(default=None, init=False)
    _region: Region | None = field(default=None, init=False)

    def open(self) -> None:
        """Prepare the client; nothing is sent yet.

        Raises:
            PluginError: The client library is not installed.
        """
        try:
            if self.address.protocol == "grpc":
                import tritonclient.grpc as library

                self._client = library.InferenceServerClient(self.address.netloc)
            else:
                import tritonclient.http as library

                self._client = library.InferenceServerClient(
                    self.address.netloc,
                    connection_timeout=self.timeout_s,
                    network_timeout=self.timeout_s,
                )
        except (ImportError, RuntimeError) as error:  # tritonclient turns one into the other
            raise PluginError(f"the client of Triton cannot be used: {error}; {EXTRA}") from error
        self._library = library

    def describe(self, model: str) -> ServedModel:
        """Ask what a model takes and gives.

        Raises:
            Busy: The server cannot be reached, or the model is not ready.
            ConfigError: It has no such model, or one that is called in another way.
        """
        grpc = self.address.protocol == "grpc"
        more = {"as_json": True, "client_timeout": self.timeout_s} if grpc else {}
        try:
            metadata = self._client.get_model_metadata(model, **more)
            config = self._client.get_model_config(model, **more)
        except Exception as error:
            raised = self._explained(error)
            if isinstance(raised, Refused):
                raise self._unknown(model, raised, more) from error
            raise raised from error
        return ServedModel.of(metadata, config["config"] if grpc else config)

    def call(
        self,
        model: ServedModel,
        payload: bytes | NDArray[Any],
        *,
        realtime: bool | None = None,
    ) -> bytes:
        """Have one item processed.

        Args:
            model: What `describe` returned.
            payload: The item: bytes, or the array of one row.
            realtime: Its class: real-time goes before bulk. None leaves it to the server.

        Returns:
            The record, as JSON text.

        Raises:
            Busy: The same call may succeed later.
            Refused: This item cannot be processed.
            ConfigError: It is no Triton server.
        """
        tensor = self._input(model, payload)
        grpc = self.address.protocol == "grpc"
        options: dict[str, Any] = {"client_timeout": self.timeout_s} if grpc else {}
        if realtime is not None:
            # The number is for the server's queues, which models do not see; the word for models.
            options |= {"priority": 1 if realtime else 2, "parameters": {"realtime": realtime}}
        wanted = [self._library.InferRequestedOutput(model.output)]
        try:
            result = self._client.infer(model.name, [tensor], outputs=wanted, **options)
            record = result.as_numpy(model.output)
        except Exception as error:
            if type(error).__name__ in _CUT_OFF:  # it has described the model before
                raise Busy("the server closed the connection before it answered") from error
            raised = self._explained(error)
            if isinstance(raised, Refused) and _UNLOADED in str(raised):  # it was there before
                raised = Busy(f"{raised}; {_AWAY}")
            raise raised from error
        if record is None or record.size != 1:
            raise Refused("server", "answer", f"the server gave no {model.output!r}")
        return bytes(record.reshape(-1)[0])

    def taken(self, model: str) -> int | None:
        """Return how many requests a model has taken since it was loaded; None if it is not.

        Raises:
            TimeoutError: The server does not say in time.
        """
        more = {"as_json": True} if self.address.protocol == "grpc" else {}
        try:
            found = self._client.get_inference_statistics(model, **more)
        except TimeoutError:
            raise
        except Exception:  # noqa: BLE001 - it is not there, or the server is not
            return None
        sides = [each.get("inference_stats", {}) for each in found.get("model_stats", ())]
        return sum(
            int(side.get(end, {}).get("count", 0)) for side in sides for end in ("success", "fail")
        )

    def close(self) -> None:
        """Close the connection and remove its shared memory. Closing twice is harmless."""
        client, self._client = self._client, None
        region, self._region = self._region, None
        if region is not None:
            if client is not None:
                with suppress(Exception):  # the server may be gone, and with it what it knew
                    region.unregister(client)
            region.close()
        if client is not None:
            client.close()

    def _unknown(self, model: str, refused: Refused, more: Mapping[str, Any]) -> GepipeError:
        """Return what it means that a server does not describe a model."""
        if not self._is_ready():
            return Busy("its models are being loaded, or it is being stopped")
        where = f"{self.address}: model {model!r}"
        try:
            catalogue = Catalogue(self._client, more)
        except Exception:  # noqa: BLE001 - one that does not list its models
            return ConfigError(f"{where}: {refused}")
        if model in catalogue.states:
            state = catalogue.states[model].lower() or "not loaded"
            return Busy(f"model {model!r} is {state}")
        return ConfigError(f"{where}: there is no such model; {catalogue.instead_of(model)}")

    def _is_ready(self) -> bool:
        try:
            return bool(self._client.is_server_ready())
        except Exception:  # noqa: BLE001 - then it is not
            return False

    def _input(self, model: ServedModel, payload: bytes | NDArray[Any]) -> Any:
        import numpy as np

        if isinstance(payload, bytes):
            if model.datatype != "BYTES":
                raise Refused(
                    "client", "type", f"input {model.input!r} is {model.datatype}, not bytes"
                )
            # Not an array of dtype S: that would cut off the zeros at an image's end.
            rows = np.array([payload], dtype=object)
            rows = rows[:, None] if model.batched else rows
        else:
            dtype = DTYPE_OF_TRITON.get(model.datatype)
            if dtype is None or payload.dtype.name != dtype.name:
                raise Refused(
                    "client",
                    "type",
                    f"input {model.input!r} is {model.datatype}, not {payload.dtype}",
                )
            rows = np.ascontiguousarray(payload[None] if model.batched else payload)
        tensor = self._library.InferInput(model.input, list(rows.shape), model.datatype)
        if rows.dtype != object and rows.nbytes >= _SHARED_MIN and self._shares_memory():
            self._share(tensor, rows)
        else:
            tensor.set_data_from_numpy(rows)
        return tensor

    def _shares_memory(self) -> bool:
        return self.address.host in ("localhost", "::1") or self.address.host.startswith("127.")

    def _share(self, tensor: Any, rows: NDArray[Any]) -> None:
        region = self._region
        if region is None or region.nbytes < rows.nbytes:
            if region is not None:
                region.unregister(self._client)
                region.close()
            self._region = region = Region(rows.nbytes)
            try:
                self._client.register_system_shared_memory(region.name, region.key, region.nbytes)
            except Exception:  # noqa: BLE001 - another machine or container, reached through this one
                self._region = None
                region.close()
                tensor.set_data_from_numpy(rows)
                return
        region.write(rows)
        tensor.set_shared_memory(region.name, rows.nbytes)

    def _explained(self, error: Exception) -> GepipeError:
        """Return what a library's error means for the caller."""
        if type(error).__name__ == "InferenceServerException":
            return self._answer(str(error.status() or ""), str(error.message()))  # type: ignore[attr-defined]
        if isinstance(error, TimeoutError):
            return Refused("server", "timeout", f"no answer within {self.timeout_s:g} s")
        if isinstance(error, OSError):  # not there yet, or just gone
            return Busy(f"cannot connect: {error.strerror or error}")
        other = "grpc" if self.address.protocol == "http" else "http"
        return ConfigError(
            f"{self.address} does not answer as a Triton server does: "
            f"{type(error).__name__}: {error}; expected its {self.address.protocol} port; "
            f"perhaps {other}:// is meant"
        )

    def _answer(self, status: str, text: str) -> GepipeError:
        """Return what the server's own error means."""
        said = _PREFIX.sub("", text)
        if found := _SAID.fullmatch(said):
            if found["kind"] == "overloaded":
                return Busy(found["text"])
            return Refused(found["stage"], found["kind"], found["text"])
        if "DEADLINE_EXCEEDED" in status or "timed out" in said:
            return Refused("server", "timeout", f"no answer within {self.timeout_s:g} s")
        if status == "StatusCode.CANCELLED":  # not by us: a server that ends cancels what it has
            return Busy("the server cancelled the call")
        if _PASSING.search(said) or "UNAVAILABLE" in status or status == "503":
            return Busy(f"{said}; {_AWAY}" if _GONE in said else said)
        return Refused("server", "refused", said)


def _names(tensors: Any) -> str:
    return ", ".join(f"{each['name']} {each['datatype']}" for each in tensors) or "no tensors"
