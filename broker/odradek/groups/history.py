"""The recent events of a group: members that joined or left, with reasons, and the duration of rebalances.

For `odradek group explain`. In memory only, bounded, and lost when the coordinator ends. Used in the coordinator's loop.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

KEPT = 128
REFUSED = "refused"
REFUSALS_KEPT = 16
"""Of different clients or reasons: members that were refused, and join again and again, must not push the other events out."""
LONGEST_TEXT = 512


def client_text(client_id: str, client_host: str) -> str:
    """A client's id and address for events and logs. :param client_host: as in Kafka's protocol, with a slash before it."""
    return f"{client_id or '(empty client id)'} at {client_host.removeprefix('/')}"


@dataclass(frozen=True)
class Event:
    """An event of a group.

    :param at_ms: wall clock, ms since 1970.
    :param kind: what happened, e.g. "joined", "left", "expelled", "refused", "rebalance began", "rebalance
        ended".
    :param member: member id, "" for an event of the whole group.
    :param client: the member's client id and address, "" for an event without member.
    :param why: the reason in words.
    :param took_ms: duration, for the end of a rebalance.
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
        """Add an event; the oldest is dropped. Texts from clients are cut to LONGEST_TEXT characters."""
        if max(len(event.member), len(event.client), len(event.why)) > LONGEST_TEXT:
            event = replace(
                event,
                member=event.member[:LONGEST_TEXT],
                client=event.client[:LONGEST_TEXT],
                why=event.why[:LONGEST_TEXT],
            )
        self.events.append(event)

    def add_refusal(self, event: Event) -> None:
        """Add a request to join that was refused, instead of an equal one of the same client; see `REFUSALS_KEPT`."""
        event = replace(event, kind=REFUSED)
        refusals = [former for former in self.events if former.kind == REFUSED]
        equal = [
            former for former in refusals if (former.client, former.why) == (event.client, event.why[:LONGEST_TEXT])
        ]
        if equal:
            self.events.remove(equal[0])
        elif len(refusals) >= REFUSALS_KEPT:
            self.events.remove(refusals[0])
        self.add(event)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)
