"""The audit log of the authorizer: what clients were denied or allowed, in the words of Kafka's `kafka.authorizer.logger`.

Logger `odradek.authorizer`: denied at INFO, allowed at DEBUG; at TRACE what only hides resources from a list or fills a bit
field. A client that repeats what it is denied writes one line a minute and not one for each request: the same denial
(principal, host, operation, resource, rule) is logged once a minute, and `flush` logs how often it was repeated. When `KEPT`
kinds have been logged, all further denials of the minute are only counted, at the cost of one comparison: a request may name a
hundred thousand topics. Used in one thread.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from odradek.security.acl import Operation, ResourceType, printable
from odradek.security.authorizer import Rule

log = logging.getLogger("odradek.authorizer")

TRACE = 5
PERIOD_S = 60.0
KEPT = 1000
"""The number of different denials of a period that are logged."""
TYPE_NAMES = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}


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
        f"on resource = {TYPE_NAMES[ResourceType(action.resource_type)]}:LITERAL:{printable(action.name)} "
        f"for request = {action.request} with resourceRefCount = 1 based on rule {rule}"
    )


class Audit:
    """See the module. :param clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._denied: dict[tuple[object, ...], list[int]] = {}
        self._texts: dict[tuple[object, ...], str] = {}
        self._others = 0
        self._ends = clock() + PERIOD_S

    @property
    def verbose(self) -> bool:
        """Whether allowed operations are logged, too."""
        return log.isEnabledFor(logging.DEBUG)

    def only_counts(self) -> bool:
        """Count a denial and return True if no more denials of this minute are logged. False: `note` decides."""
        if len(self._denied) < KEPT or self._clock() >= self._ends:
            return False
        self._others += 1
        return True

    def note(self, action: Action, rule: Rule, quiet: bool) -> None:
        """Log a decision. :param quiet: it only hides a resource from a list, or fills a bit field."""
        if quiet:
            if log.isEnabledFor(TRACE):
                log.log(TRACE, "%s", message_of(action, rule))
        elif rule.allowed:
            if log.isEnabledFor(logging.DEBUG):
                log.debug("%s", message_of(action, rule))
        elif log.isEnabledFor(logging.INFO) and not self.only_counts():
            self._note_denied(action, rule)

    def _note_denied(self, action: Action, rule: Rule) -> None:
        if self._clock() >= self._ends:
            self.flush()
        key = (action.principal, action.host, action.operation, action.resource_type, hash(action.name), str(rule))
        counter = self._denied.get(key)
        if counter is not None:
            counter[0] += 1
            return
        text = message_of(action, rule)
        self._denied[key] = [0]
        self._texts[key] = text
        log.info("%s", text)

    def flush(self, force: bool = False) -> None:
        """At the end of a period: log how often its denials were repeated. Called regularly."""
        if not force and self._clock() < self._ends:
            return
        self._ends = self._clock() + PERIOD_S
        denied, texts, others = self._denied, self._texts, self._others
        self._denied, self._texts, self._others = {}, {}, 0
        for key, (repeated,) in denied.items():
            if repeated:
                log.info("%s (repeated %d times)", texts[key], repeated)
        if others:
            log.info("%d more operations of clients were denied, after %d kinds in a minute", others, KEPT)
