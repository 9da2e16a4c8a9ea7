"""What the client of one request may do, as handlers and guards ask.

A `Permits` belongs to one request and to one thread; see `odradek._ext.api.access` for what it remembers. Without an
authorizer, every request has `UNRESTRICTED`.
"""

from collections.abc import Callable, Generator, Iterable, Set
from typing import Any

from odradek.security.acl import CLUSTER_NAME, Operation, ResourceType
from odradek.security.resource_types import RESOURCE_TYPES
from odradek.stepwise import Pace

ALL_OPERATIONS = {row.type: row.operation_bits for row in RESOURCE_TYPES.values()}
"""The authorized operations of an unrestricted client, as bits."""
DENIED_AS = {row.type: row.denied_as for row in RESOURCE_TYPES.values() if row.denied_as is not None}


NAMES_A_STEP = 500
"""Decided in one step of `denied_in_steps`: some milliseconds."""


class Permits:
    """See the module.

    :param access: the client's `Access`; None: the broker has no authorizer, and everything is allowed.
    :param api_key: the API of the request, for the audit log.
    """

    __slots__ = ("_access", "_api_key")

    def __init__(self, access: Any, api_key: int) -> None:
        self._access = access
        self._api_key = api_key

    @property
    def restricted(self) -> bool:
        """Whether there is an authorizer."""
        return self._access is not None

    @property
    def version(self) -> int:
        """The version of the newest access control lists; 0 without an authorizer."""
        return 0 if self._access is None else int(self._access.control.refresh())

    def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
        """Whether the client may do something with a resource.

        :param quiet: the answer only hides the resource from a list, or fills a bit field: a denial is not logged.
        """
        if self._access is None:
            return True
        return bool(self._access.allows(operation, resource_type, name, self._api_key, quiet))

    def grants(self, operation: int, resource_type: int, name: str) -> bool:
        """As `allows`, for code that leaves a request that it cannot serve to other code, which decides again."""
        return self._access is None or bool(self._access.grants(operation, resource_type, name, self._api_key))

    def cluster(self, operation: int, quiet: bool = False) -> bool:
        """Whether the client may do something with the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, quiet)

    def topic(self, operation: int, name: str, quiet: bool = False) -> bool:
        """Whether the client may do something with a topic."""
        return self.allows(operation, ResourceType.TOPIC, name, quiet)

    def group(self, operation: int, group_id: str, quiet: bool = False) -> bool:
        """Whether the client may do something with a group."""
        return self.allows(operation, ResourceType.GROUP, group_id, quiet)

    def transactional_id(self, operation: int, name: str) -> bool:
        """Whether the client may do something with a transactional id."""
        return self.allows(operation, ResourceType.TRANSACTIONAL_ID, name)

    def any_topic(self, operation: int) -> bool:
        """Whether the client may do something with at least one topic."""
        if self._access is None:
            return True
        return bool(self._access.allows_by_type(operation, ResourceType.TOPIC, self._api_key))

    def denied(self, operation: int, resource_type: int, names: Iterable[str], quiet: bool = False) -> frozenset[str]:
        """Those of the names for which the client may not do something; each is decided once."""
        if self._access is None:
            return frozenset()
        return frozenset(
            name for name in dict.fromkeys(names) if not self.allows(operation, resource_type, name, quiet)
        )

    def denied_in_steps(
        self, operation: int, resource_type: int, names: Iterable[str], quiet: bool = False
    ) -> Generator[None, None, Set[str]]:
        """As `denied`, for requests that may name very many: pauses after each `NAMES_A_STEP` decisions."""
        if self._access is None:
            return frozenset()
        # Dictionaries, because the garbage collector examines the elements of large sets, but not of dictionaries of texts.
        decided: dict[str, None] = {}
        denied: dict[str, None] = {}
        pace = Pace(NAMES_A_STEP)
        for name in names:
            if name not in decided:
                decided[name] = None
                if not self.allows(operation, resource_type, name, quiet):
                    denied[name] = None
            if pace.over():
                yield
        return denied.keys()

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """The bit field of what the client may do with a resource (KIP-430)."""
        if self._access is None:
            return ALL_OPERATIONS[resource_type]
        return int(self._access.operations(resource_type, name))

    def cluster_operations(self) -> int:
        """The bit field for the cluster: 0 without DESCRIBE on it."""
        if not self.cluster(Operation.DESCRIBE):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME)


UNRESTRICTED = Permits(None, -1)
PermitsOf = Callable[[str | None, str, int], Permits]
"""Makes the permits of a request from (principal, address and port, API key)."""


def unrestricted(principal: str | None, peer: str, api_key: int) -> Permits:
    """The PermitsOf of a broker without an authorizer."""
    return UNRESTRICTED
