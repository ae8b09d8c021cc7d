"""What a server has, for a client that asks for something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gepipe.plugins import did_you_mean
from gepipe.triton.description import called

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Names that are listed.
_MOST: Final = 20


class Catalogue:
    """The models of a server.

    Attributes:
        states: Name to state, in the server's words; nothing for one that it was never asked to
            load.
    """

    def __init__(self, client: Any, more: Mapping[str, Any]) -> None:
        """Ask a server.

        Args:
            client: Triton's, for HTTP or for gRPC.
            more: Options of its calls.

        Raises:
            Exception: The client's own: the server does not say.
        """
        self._client, self._more = client, more
        found = client.get_model_repository_index(**more)
        listed = found if isinstance(found, list) else found.get("models", [])
        self.states: dict[str, str] = {}
        for each in listed:  # one for each version; the newest comes last
            self.states[each["name"]] = each.get("state", "")

    def instead_of(self, model: str) -> str:
        """Return which models there are to call in place of one that there is not."""
        names = called({name: self._config(name) for name in self._ready()})
        if not names:
            return "it serves none now"
        more = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
        serves = f"it serves {', '.join(names[:_MOST])}{more}"
        near = did_you_mean(model, names)
        return f"{near} {serves}" if near.startswith("did") else serves

    def _ready(self) -> list[str]:
        return [name for name, state in self.states.items() if state == "READY"]

    def _config(self, name: str) -> Mapping[str, Any]:
        try:
            found = self._client.get_model_config(name, **self._more)
        except Exception:  # noqa: BLE001 - it has just gone; its name is listed all the same
            return {}
        config: Mapping[str, Any] = found.get("config", found)
        return config
