"""Limits how many log lines of a kind a process writes in a minute, whoever causes them.

The handler of each process has a `LineLimits`, so no log call can be forgotten. A kind is a place in the source: the logger,
the constant text, the line number of a call, and `line_kind` in its `extra` if one text has several kinds. Of each kind, a
client address (of IPv6 a /64 network) gets `OF_ADDRESS` lines in a minute, and all lines of the kind together `OF_KIND`.
What is left out is counted, and a line of the same logger says so after the minute, before the next message of the process.
Lines of level DEBUG and below are not limited: somebody has asked for them.

The threads of a process use it without a lock: at worst, a count is one too low.
"""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime

from odradek.security.owners import network_of_peer

PERIOD_S = 60.0
OF_ADDRESS = 20
"""Lines of a kind about one client address in a minute. The address is `client_address` in the `extra` of a log call."""
OF_KIND = 5000
"""Lines of a kind in a minute."""
MOST_ADDRESSES = 5000
"""Kinds with their addresses that are known; all others share one place for each kind."""
MOST_KINDS = 1000
"""Kinds; all others share one place. The source has fewer log calls, but the texts of libraries may not be constant."""
SUMMARY = "%d more messages like '%s' were left out since %s, because a client or a fault repeated them"

Kind = tuple[str, int, str, str]


class LineLimits(logging.Filter):
    """See the module. :param clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._ends = self._clock() + PERIOD_S
        self._began = datetime.now().astimezone()
        self._of_address: dict[tuple[Kind, str], int] = {}
        self._of_kind: dict[Kind, int] = {}
        self._left_out: dict[Kind, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        if record.levelno <= logging.DEBUG or record.msg is SUMMARY:
            return True
        if self._clock() >= self._ends:
            self._summarise()
        text = record.msg if isinstance(record.msg, str) else ""
        kind: Kind = (record.name, record.lineno, text, getattr(record, "line_kind", ""))
        if kind not in self._of_kind and len(self._of_kind) >= MOST_KINDS:
            kind = ("odradek", 0, "other messages", "")
        lines = self._of_kind[kind] = self._of_kind.get(kind, 0) + 1
        address = address_of(vars(record))
        if lines <= OF_KIND and (not address or self._admits(kind, address)):
            return True
        self._left_out[kind] = self._left_out.get(kind, 0) + 1
        return False

    def _admits(self, kind: Kind, address: str) -> bool:
        place = kind, address
        if place not in self._of_address and len(self._of_address) >= MOST_ADDRESSES:
            place = kind, ""
        lines = self._of_address[place] = self._of_address.get(place, 0) + 1
        return lines <= OF_ADDRESS

    def _summarise(self) -> None:
        left_out, began = self._left_out, self._began
        self._begin()
        for (logger, _, text, _), count in left_out.items():
            logging.getLogger(logger).warning(SUMMARY, count, text, began.isoformat(timespec="seconds"))


def address_of(fields: Mapping[str, object]) -> str:
    """The network of a client; empty if the line names none. :param fields: those of a record."""
    peer = fields.get("client_address")
    return network_of_peer(peer) if isinstance(peer, str) else ""
