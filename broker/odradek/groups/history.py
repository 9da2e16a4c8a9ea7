"""What happened to a group lately: who came, who went and why, how long rebalances took. For `odradek group explain`.

Memory only, bounded, lost with the coordinator: an explanation, not a record.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

KEPT = 128
LONGEST_TEXT = 512


@dataclass(frozen=True)
class Event:
    """:param at_ms: wall clock, ms since 1970.
    :param kind: what happened, e.g. "joined", "left", "expelled", "rebalance began", "rebalance ended".
    :param member: member id, "" for an event of the whole group.
    :param client: the member's client id and address, "" where there is none.
    :param why: the reason in words.
    :param took_ms: how long it took, for the end of something.
    """

    at_ms: int
    kind: str
    member: str = ""
    client: str = ""
    why: str = ""
    took_ms: int | None = None


@dataclass
class History:
    """The last events of one group, oldest first."""

    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, event: Event) -> None:
        """Remember an event; the oldest goes. Of what clients say as much as people read."""
        if max(len(event.member), len(event.client), len(event.why)) > LONGEST_TEXT:
            event = replace(
                event,
                member=event.member[:LONGEST_TEXT],
                client=event.client[:LONGEST_TEXT],
                why=event.why[:LONGEST_TEXT],
            )
        self.events.append(event)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)
