"""Encodes texts into the rows of a model's inputs. Loaded by workers only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import ConfigError, ItemError, reason_of
from gepipe.ops.rows import mismatch
from gepipe.plugins import did_you_mean
from gepipe.regular import read_regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Far more than the largest vocabularies take.
_FILE_BYTES: Final = 256 << 20
#: Each name of a tensor, with the attribute of an encoding.
_ATTRIBUTES: Final = {
    "input_ids": "ids",
    "attention_mask": "attention_mask",
    "token_type_ids": "type_ids",
}
#: Where a tokenizer's own padding says what stands there.
_PADDING: Final = {"input_ids": "pad_id", "token_type_ids": "pad_type_id"}


class Encoder:
    """A tokenizer with the names of a model's inputs.

    Args:
        path: The file tokenizer.json.
        max_length: Most tokens of a text.
        names: The model's name of each of `_ATTRIBUTES`.
    """

    def __init__(self, path: Path, max_length: int, names: Mapping[str, str]) -> None:
        self._path = path
        self._tokenizer = _opened(path)
        padding = self._tokenizer.padding or {}
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        frame = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        if max_length <= frame:
            raise ConfigError(
                f"tokenize: max_length is {max_length}, but {path} frames each text with {frame} "
                "tokens; give a larger one"
            )
        self._tokenizer.enable_truncation(max_length)
        self._columns = {
            name: (_ATTRIBUTES[made], padding.get(_PADDING.get(made, ""), 0))
            for made, name in names.items()
        }

    def write(self, value: Any, meta: dict[str, Any], rows: Mapping[str, NDArray[Any]]) -> None:
        """Write a text's tokens and the padding behind them.

        Raises:
            ItemError: `not_text`, or `shape` if a row is something else than the tokens are.
        """
        encoding = self._tokenizer.encode(_text(value))
        count = len(encoding.ids)
        for name, row in rows.items():
            if name not in self._columns:
                raise ItemError(
                    "shape",
                    f"the model's input {name!r} is none of what tokenize makes; "
                    f"{did_you_mean(name, list(self._columns))}; name it in tokenize's inputs",
                )
            if row.ndim != 1 or row.dtype.kind != "i" or len(row) < count:
                raise mismatch(name, row, "int64", (count,))
            attribute, padding = self._columns[name]
            row[:count] = getattr(encoding, attribute)
            row[count:] = padding
        meta["tokens"] = count
        if encoding.overflowing:
            meta["truncated"] = sum(
                len(part.ids) - sum(part.special_tokens_mask) for part in encoding.overflowing
            )


def _opened(path: Path) -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ConfigError(
            f"tokenize: the library tokenizers does not import ({error}); "
            "run: pip install 'gepipe[text]'"
        ) from error
    try:
        text = read_regular(path, _FILE_BYTES).decode()
    except OSError as error:
        why = reason_of(error)
        raise ConfigError(
            f"tokenize: cannot read {path}: {why}; expected the model's tokenizer.json, for a "
            "ready pipeline `gepipe samples fetch` brings it"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"tokenize: {path} is no tokenizer.json: {error}") from error
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises no class of its own
        raise ConfigError(
            f"tokenize: {path} is no tokenizer.json that tokenizers {tokenizers.__version__} "
            f"reads: {error}"
        ) from error


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError as error:
            raise ItemError("not_text", f"the input is not UTF-8: {error}") from error
    raise ItemError(
        "not_text",
        f"tokenize takes text, but got {type(value).__name__}; use the source text, jsonl, csv or "
        "parquet",
    )
