"""The APIs that this broker serves, from their declarations. ApiVersions, dispatch, routing and the documents derive from it.

The rows are in `served.py`, which `make tables` writes from the files of the APIs: a process that only routes or counts
requests imports no API. A process that executes requests imports an API when the first request for it arrives, or imports all
APIs that it executes at once, with `import_all`.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.row import ApiRow
from odradek.api.served import ROWS
from odradek.config.broker_config import BrokerConfig

MAX_REQUEST_BYTES = 16 << 20
MESSAGE_OVERHEAD_BYTES = 1 << 20
API_VERSIONS = 18
PRIVATE_APIS = tuple(row for row in ROWS if row.private)
APIS = tuple(row for row in ROWS if not row.private)
BY_KEY = {row.key: row for row in ROWS}


def served_rows(clustered: bool) -> dict[int, ApiRow]:
    """The rows of the APIs that are served, by key; also of the private ones."""
    return {key: row for key, row in BY_KEY.items() if row.served(clustered)}


def limits_of(config: BrokerConfig) -> dict[int, int]:
    """The largest number of elements in all arrays of a request together, by API key."""
    partitions = config.integer("odradek.max.partitions")
    return {row.key: row.elements + row.per_partition * partitions for row in BY_KEY.values()}


def max_request_bytes(config: BrokerConfig) -> int:
    """The largest size of a request other than Produce. It depends on message.max.bytes, because a SyncGroup request contains
    all assignments of a group, which are stored in one message."""
    return max(MAX_REQUEST_BYTES, config.integer("message.max.bytes") + MESSAGE_OVERHEAD_BYTES)


def throttle_positions() -> dict[tuple[int, int], int]:
    """The position of the throttle time in the responses of all served versions, by (API key, version); see `ApiRow.throttle`.

    A worker stores the throttle time in an encoded response, because it is known only when the response is complete, and
    because the coordinator encodes some responses (`with_throttle_time`, `Pending.complete_framed`). Native code writes that of
    Produce and Fetch, and finds that of ApiVersions, which follows a list.
    """
    return {
        (row.key, row.min_version + number): position
        for row in BY_KEY.values()
        for number, position in enumerate(row.throttle)
        if position and not row.private  # native code has no room for their keys
    }


class Handlers:
    """Functions by API key. Each is imported at its first use; `import_all` imports all before the first request.

    :param named: API keys with "module:function".
    """

    def __init__(self, named: Iterable[tuple[int, str]]) -> None:
        self._named = dict(named)
        self._imported: dict[int, Callable[..., Any]] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._named

    def get(self, key: int) -> Callable[..., Any] | None:
        """The function for an API; None if the API is not among these."""
        function = self._imported.get(key)
        if function is None and key in self._named:
            function = self._imported[key] = function_named(self._named[key])
        return function

    def __getitem__(self, key: int) -> Callable[..., Any]:
        function = self.get(key)
        if function is None:
            raise KeyError(key)
        return function

    def import_all(self) -> None:
        """Import all functions; may be called from any thread."""
        for key in self._named:
            self.get(key)


def handlers_of(*places: Place, clustered: bool = False) -> Handlers:
    """The handlers of the APIs that are executed in these places, of a broker in a cluster or of a single broker."""
    return Handlers((row.key, row.handler) for row in served_rows(clustered).values() if row.place in places)


def function_named(text: str) -> Callable[..., Any]:
    """The function that "module:function" names; imports its module."""
    module, _, name = text.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def function_of(api_key: int, name: str) -> Callable[..., Any]:
    """A function in the file of an API, e.g. its guard; imports the file."""
    return function_named(f"{BY_KEY[api_key].module}:{name}")


def declared(api_key: int) -> Api:
    """The declaration of an API; imports its file."""
    api: Api = import_module(BY_KEY[api_key].module).API
    return api
