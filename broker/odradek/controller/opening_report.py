"""The log lines about repairs of logs when they are opened. After a loss of power these may be thousands of logs, so that only
the first of a batch are named, and the rest is one line. Used by one thread of the process that opens the logs.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

log = logging.getLogger("odradek.controller")

NAMED_LOGS = 20
EVENTS_OF_A_LOG = 5
NAMED_TOPICS = 10


class OpeningReport:
    """See the module. :param clustered: whether the slots and `odradek partition explain` show the losses, too."""

    def __init__(self, clustered: bool) -> None:
        self._clustered = clustered
        self._named = 0
        self._unnamed: Counter[str] = Counter()
        self._unnamed_bytes = 0

    def note(self, path: str, topic: str, events: Sequence[Any], lost_bytes: int) -> None:
        """Log what was repaired in one log. :param events: LoadEvents. :param lost_bytes: that were cut off the log."""
        serious = [event for event in events if event.lost_bytes or event.serious]
        named = self._named < NAMED_LOGS
        for event in events:
            shown = named and event in serious[:EVENTS_OF_A_LOG]
            log.log(logging.WARNING if shown else logging.DEBUG, "%s: %s", path, event.message)
        if not serious:
            return
        self._named += 1
        if not named:
            self._unnamed[topic] += 1
            self._unnamed_bytes += lost_bytes
        elif len(serious) > EVENTS_OF_A_LOG:
            log.warning("%s: %d further repairs are logged with level DEBUG", path, len(serious) - EVENTS_OF_A_LOG)

    def finish(self) -> None:
        """Log one line about the logs that were not named, if there are any. The next batch begins."""
        count, topics = self._unnamed.total(), self._unnamed.most_common(NAMED_TOPICS)
        if count:
            names = ", ".join(f"{topic} ({number})" for topic, number in topics)
            more = len(self._unnamed) - len(topics)
            log.warning(
                "%d more logs were repaired and %d bytes cut off them, of the topics %s%s; the level DEBUG names each%s",
                count, self._unnamed_bytes, names, f" and {more} more topics" if more else "",
                ", and `odradek partition explain TOPIC-N` shows those that are not in sync again" if self._clustered else "",
            )  # fmt: skip
        self._named = 0
        self._unnamed.clear()
        self._unnamed_bytes = 0
