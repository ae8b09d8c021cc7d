"""What post returns to a program in Python, as bytes."""

from __future__ import annotations

import io
import pickle
from types import FunctionType
from typing import Any, Final

from gepipe.errors import ItemError

#: How `gepipe.ops.user` names the modules that it makes of files.
_FILE_MODULE: Final = "gepipe_user_"


def to_bytes(result: Any) -> bytes:
    """Pickle a result; it must be readable where only the pipeline's file is known.

    Raises:
        ItemError: It holds an object of a class that only the workers can import.
    """
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(result)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        """Refuse what lies in a file of operators, which is no module for anybody else."""
        if isinstance(thing, type | FunctionType) and thing.__module__.startswith(_FILE_MODULE):
            raise ItemError(
                "result",
                f"the result holds {thing.__qualname__}, or an object of it, from a file of "
                "operators; return plain values, or move it to a module that the program can "
                "import, too",
            )
        return NotImplemented
