"""The audit log of the authorizer: what clients were denied or allowed, in the words of Kafka's `kafka.authorizer.logger`.

Logger `odradek.authorizer`: denied at INFO, allowed at DEBUG; at TRACE what only hides resources from a list or fills a bit
field. A client that repeats what it is denied writes one line a minute and not one for each request: the same denial
(principal, host, operation, resource, rule) is logged once a minute, and `flush` logs how often it was repeated.

A request may name a hundred thousand topics, so different denials are limited, too, by client (principal and host), so that no
client hides what others do: `OF_CLIENT` of each client in a minute are logged, and `OF_ALL` of all clients together; of each
client, the first `FIRST` are logged in any case. All others are counted at the cost of a look-up, and `flush` logs a line about
each such client. Used in one thread.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from odradek.printable import printable
from odradek.security.acl import Operation
from odradek.security.authorizer import Rule
from odradek.security.resource_types import RESOURCE_TYPES

log = logging.getLogger("odradek.authorizer")

TRACE = 5
PERIOD_S = 60.0
FIRST = 10
"""The number of different denials of each client that are logged in a period, however many other clients have."""
OF_CLIENT = 200
"""The most of one client (principal and host)."""
OF_ALL = 1000
"""The most of all clients, but for the first of each."""
MOST_HOSTS = 100
"""The most hosts of a principal with a share of their own; a client may have many addresses, but only one login."""
MOST_PRINCIPALS = 1000
"""The most principals with shares of their own."""
OTHERS = "others"


class Action(NamedTuple):
    """What a client wanted to do. ``request``: the name of the API."""

    principal: str
    host: str
    operation: int
    resource_type: int
    name: str
    request: str


def message_of(action: Action, rule: Rule) -> str:
    """The line that Kafka logs."""
    return (
        f"Principal = {printable(action.principal)} is {'Allowed' if rule.allowed else 'Denied'} "
        f"operation = {Operation(action.operation).name} from host = {action.host} "
        f"on resource = {RESOURCE_TYPES[action.resource_type].node}:LITERAL:{printable(action.name)} "
        f"for request = {action.request} with resourceRefCount = 1 based on rule {rule}"
    )


class Share:
    """One client's part of the lines of a period. :ivar lines: logged denials. :ivar counted: those without a line."""

    __slots__ = ("counted", "lines")

    def __init__(self) -> None:
        self.lines = 0
        self.counted = 0


class Audit:
    """See the module. :param clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._denied: dict[tuple[object, ...], list[int]] = {}
        self._texts: dict[tuple[object, ...], str] = {}
        self._shares: dict[str, dict[str, Share]] = {}  # by principal and host
        self._ends = clock() + PERIOD_S

    @property
    def verbose(self) -> bool:
        """Whether allowed operations are logged, too."""
        return log.isEnabledFor(logging.DEBUG)

    def only_counts(self, principal: str, host: str) -> bool:
        """Count a denial and return True if no more denials of this client are logged in this minute. False: `note` decides."""
        hosts = self._shares.get(principal)
        share = None if hosts is None else hosts.get(host)
        if share is None or self._has_room(share) or self._clock() >= self._ends:
            return False
        share.counted += 1
        return True

    def note(self, action: Action, rule: Rule, quiet: bool) -> None:
        """Log a decision. :param quiet: it only hides a resource from a list, or fills a bit field."""
        if quiet:
            if log.isEnabledFor(TRACE):
                log.log(TRACE, "%s", message_of(action, rule))
        elif rule.allowed:
            if log.isEnabledFor(logging.DEBUG):
                log.debug("%s", message_of(action, rule))
        elif log.isEnabledFor(logging.INFO) and not self.only_counts(action.principal, action.host):
            self._note_denied(action, rule)

    def _has_room(self, share: Share) -> bool:
        return share.lines < FIRST or (share.lines < OF_CLIENT and len(self._denied) < OF_ALL)

    def _share_of(self, principal: str, host: str) -> Share:
        """The share of a client; clients beyond the limits have one together."""
        if principal not in self._shares and len(self._shares) >= MOST_PRINCIPALS:
            principal = host = OTHERS
        hosts = self._shares.setdefault(principal, {})
        if host not in hosts and len(hosts) >= MOST_HOSTS:
            host = OTHERS
        return hosts.setdefault(host, Share())

    def _note_denied(self, action: Action, rule: Rule) -> None:
        if self._clock() >= self._ends:
            self.flush()
        key = (action.principal, action.host, action.operation, action.resource_type, hash(action.name), str(rule))
        counter = self._denied.get(key)
        if counter is not None:
            counter[0] += 1
            return
        share = self._share_of(action.principal, action.host)
        if not self._has_room(share):
            share.counted += 1
            return
        share.lines += 1
        text = message_of(action, rule)
        self._denied[key] = [0]
        self._texts[key] = text
        log.info("%s", text)

    def flush(self, force: bool = False) -> None:
        """At the end of a period: log how often its denials were repeated. Called regularly."""
        if not force and self._clock() < self._ends:
            return
        self._ends = self._clock() + PERIOD_S
        denied, texts, shares = self._denied, self._texts, self._shares
        self._denied, self._texts, self._shares = {}, {}, {}
        for key, (repeated,) in denied.items():
            if repeated:
                log.info("%s (repeated %d times)", texts[key], repeated)
        for principal, hosts in shares.items():
            for host, share in hosts.items():
                if share.counted:
                    log.info(
                        "%d more denials of %s from host = %s in the last minute were not logged, after %d lines",
                        share.counted, printable(principal), host, share.lines,
                    )  # fmt: skip
