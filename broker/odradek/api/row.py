"""What `served.py` contains of each API."""

from typing import NamedTuple

from odradek.api.api import Guarded, Place
from odradek.security.needs import Ways


class ApiRow(NamedTuple):
    """A served API, from its declaration (`odradek.api.api.Api`) and its schema.

    :ivar module: the file of the API. :ivar has_at_once: whether it has `at_once`,
        and so on.
    :ivar throttle: by version from `min_version` on, the position of the throttle time in a response: bytes from the beginning
        of its header; negative: from the end; 0: none, or native code finds it.
    :ivar error: by version, the position of the error code that a response begins with, counted from its header; -1 if not all
        versions have it at a fixed position, that is, before any field of variable length.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    place: Place
    module: str
    ways: Ways
    throttle: tuple[int, ...]
    error: tuple[int, ...]
    guarded: Guarded = Guarded.BY_GUARD
    has_at_once: bool = False
    has_refuse: bool = False
    has_awaited: bool = False
    elements: int = 10_000
    per_partition: int = 0
    patience_s: float = 30.0
    of_brokers: bool = False
    repeated: bool = False
    charged_from: int | None = None
    pipelined_from: int | None = None
    long_response: bool = False
    needs_published: bool = False
    only_in_cluster: bool = False
    private: bool = False

    @property
    def handler(self) -> str:
        """ "module:function" of the handler."""
        return f"{self.module}:handle"

    @property
    def at_once(self) -> str:
        """ "module:function" that serves the encoded request without a task if it can; "" if there is none."""
        return f"{self.module}:at_once" if self.has_at_once else ""

    @property
    def in_worker(self) -> bool:
        """Whether a worker's dispatcher executes the API."""
        return self.place in (Place.WORKER, Place.WORKER_THREAD)

    @property
    def off_loop(self) -> bool:
        """Whether a thread of the worker executes the steps of the handler, which may read from the disk for long."""
        return self.place is Place.WORKER_THREAD

    @property
    def leads_with_error(self) -> bool:
        """Whether the responses of all versions begin with an error code."""
        return self.error[0] >= 0

    def served(self, clustered: bool) -> bool:
        """Whether the API is served by a broker in a cluster, or by a single broker."""
        return clustered or not self.only_in_cluster
