"""Usage counters that never decrease: sums by named client and topic, by topic, and by API.

Runs in the reporter. Pages lose the values of entries when these are retired, and a client or topic may get its series late; so
the ledger adds increments: an entry's values minus its values at the last look. The sums do not depend on when looks happen,
except for entries retired since the last look and for names added meanwhile. After a change of either, the caller must save
`state` for the next reporter process.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from odradek.metrics.named_series import NamedSeries
from odradek.metrics.pages import OTHER, RETIRED, UsageRow

REQUESTS, ERRORS, BYTES_IN, BYTES_OUT, RECORDS_IN, RECORDS_OUT, THROTTLE_MS, CONNECTION_MS = range(8)

Client = tuple[str, str]
UsageKey = tuple[str, str, str | None, int]
"""Principal, client id, topic (None: of no topic), API key; principal, client id and topic may be OTHER."""
TopicKey = tuple[str, int]
ApiKey = tuple[int, bool]
"""(API key, whether with a topic)."""
_Entry = tuple[int, str, str, str | None, int, int]

NOBODY: Client = (OTHER, OTHER)


class Ledger:
    """The sums.

    :param clients: the (principal, client id) that have series. :param topics: the topics that have series; the caller
        updates them.
    :param state: the `state` of the previous reporter process with the same shared memory.
    """

    def __init__(
        self, clients: NamedSeries[Client], topics: NamedSeries[str], state: Mapping[str, Any] | None = None
    ) -> None:
        self.clients = clients
        self.topics = topics
        self.usage: dict[UsageKey, list[int]] = {}
        self.of_topic: dict[TopicKey, list[int]] = {}
        self.of_api: dict[ApiKey, list[int]] = {}
        self._last: dict[_Entry, tuple[int, ...]] = {}
        if state is not None:
            self.usage, self.of_topic, self.of_api = state["usage"], state["of_topic"], state["of_api"]
            self._last = state["last"]
            clients.names = set(state["clients"])

    def state(self) -> dict[str, Any]:
        """Return the state for the next reporter process; plain values for marshal."""
        return {
            "usage": self.usage,
            "of_topic": self.of_topic,
            "of_api": self.of_api,
            "last": self._last,
            "clients": list(self.clients.names),
        }

    def look(self, rows: Iterable[UsageRow], idle_before_ms: int, removed_topics: Collection[str] = ()) -> bool:
        """Add the increments of all rows of all pages; return whether `state` must be saved before the sums are published.

        :param idle_before_ms: clients not seen since then (wall clock) lose their series if other clients need them.
        :param removed_topics: the topics that have lost their series since the last look.
        """
        now: dict[_Entry, tuple[int, ...]] = {}
        sizes: dict[Client, int] = {}
        seen: dict[Client, int] = {}
        for row in rows:
            if row.client_id == RETIRED and row.principal == OTHER:
                continue
            client = row[1:3]
            now[row[:6]] = row[7:]
            if client != NOBODY:
                sizes[client] = sizes.get(client, 0) + row.bytes_in + row.bytes_out
                seen[client] = max(seen.get(client, 0), row.last_ms)
        idle = {client for client, last_ms in seen.items() if last_ms < idle_before_ms}
        added, removed = self.clients.update(sizes, idle)
        last = self._last
        retired = any(entry not in now for entry in last)
        if removed or removed_topics:
            self._drop(removed, removed_topics)
        for entry, values in now.items():
            before = last.get(entry)
            if before == values:
                continue
            grown = values if before is None else tuple(new - old for new, old in zip(values, before, strict=True))
            self._add(entry, grown)
        self._last = now
        return bool(added or removed or removed_topics or retired)

    def _add(self, entry: _Entry, grown: tuple[int, ...]) -> None:
        _, principal, client_id, topic, api, _ = entry
        if (principal, client_id) not in self.clients.names:
            principal = client_id = OTHER
        if topic is not None and topic not in self.topics.names:
            topic = OTHER
        _increase(self.usage, (principal, client_id, topic, api), grown)
        _increase(self.of_api, (api, topic is not None), grown)
        if topic is not None:
            _increase(self.of_topic, (topic, api), grown)

    def _drop(self, clients: Collection[Client], topics: Collection[str]) -> None:
        """End the series of these clients and topics; later counts of them are counted under OTHER."""
        self.usage = {
            key: values for key, values in self.usage.items() if key[:2] not in clients and key[2] not in topics
        }
        self.of_topic = {key: values for key, values in self.of_topic.items() if key[0] not in topics}


def _increase(sums: dict[Any, list[int]], key: Any, grown: tuple[int, ...]) -> None:
    values = sums.get(key)
    if values is None:
        sums[key] = list(grown)
    else:
        for index, value in enumerate(grown):
            if value:
                values[index] += value
