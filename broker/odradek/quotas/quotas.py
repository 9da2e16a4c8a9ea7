"""The quotas of clients and addresses, and which of them applies to a request (KIP-55, KIP-612).

Immutable once built; any process builds its own from the published form (`odradek.shm.published_quotas`).
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION, CONNECTIONS = "controller_mutation_rate", "connection_creation_rate"
OF_REQUESTS = (PRODUCE, FETCH, REQUEST)
"""The keys that workers enforce, in the order of `QuotaKind`."""
US_OF_PERCENT: Final = 10_000.0
"""Microseconds in a second that one percent of `request_percentage` stands for."""
PRINCIPAL_TYPE = "User:"

Entity = tuple[str | None, str | None, str | None]
"""Names of user, client id and address; None: the entity has no such part; `DEFAULT`: its default."""
DEFAULT: Final = "\0default"
"""Stands for the default entity of a type. No name contains it: the store encodes names as URLs, and this is none of them."""
ANYBODY: Final = None


class Limit(NamedTuple):
    """A limit that applies to a client.

    :param rate: units per second. :param user, client_id: who shares it. None: the limit does not tell users, or client ids,
    apart.
    """

    rate: float
    user: str | None
    client_id: str | None


LEVELS: tuple[tuple[bool | None, bool | None], ...] = (
    (True, True),
    (True, False),
    (True, None),
    (False, True),
    (False, False),
    (False, None),
    (None, True),
    (None, False),
)
"""The levels in the order in which they are tried: (user, client id); True: by name, False: the default, None: not part of
it."""


def entity_of(names: Mapping[str, str | None]) -> Entity:
    """The key of an entity from its names by type; the name None is the default."""

    def part(kind: str) -> str | None:
        if kind not in names:
            return None
        name = names[kind]
        return DEFAULT if name is None else name

    return part(USER), part(CLIENT_ID), part(IP)


def user_of(principal: str) -> str:
    """The name of the user for quotas: the principal without its type, as in Kafka."""
    return principal.removeprefix(PRINCIPAL_TYPE)


class Quotas:
    """All quotas of a broker. :param values: values by key of each entity."""

    def __init__(self, values: Iterable[tuple[Entity, Mapping[str, float]]] = ()) -> None:
        by_key: dict[str, dict[Entity, float]] = {}
        for entity, quotas in values:
            for key, value in quotas.items():
                by_key.setdefault(key, {})[entity] = value
        self._by_key = by_key

    @property
    def of_requests(self) -> bool:
        """Whether any quota is one that workers enforce."""
        return any(self._by_key.get(key) for key in OF_REQUESTS)

    def has(self, key: str) -> bool:
        """Whether any entity has this quota."""
        return bool(self._by_key.get(key))

    def limit(self, key: str, user: str, client_id: str) -> Limit | None:
        """The limit of one key for a client: that of the first level that has the key. None: there is none."""
        entities = self._by_key.get(key)
        if not entities:
            return None
        for by_user, by_client in LEVELS:
            entity = (_part(by_user, user), _part(by_client, client_id), None)
            rate = entities.get(entity)
            if rate is not None:
                return Limit(rate, None if by_user is None else user, None if by_client is None else client_id)
        return None

    def resolve(self, principal: str, client_id: bytes) -> list[tuple[float, bytes | None, bytes | None] | None]:
        """For each key of `OF_REQUESTS` (units per second, user, client id), or None; for `Charges`.

        Client ids are compared as text, in which invalid bytes are replaced; buckets of defaults tell the bytes apart."""
        user, text = user_of(principal), client_id.decode("utf-8", "replace")
        found: list[tuple[float, bytes | None, bytes | None] | None] = []
        for key in OF_REQUESTS:
            limit = self.limit(key, user, text)
            if limit is None:
                found.append(None)
                continue
            rate = limit.rate * US_OF_PERCENT if key == REQUEST else limit.rate
            found.append(
                (
                    rate,
                    None if limit.user is None else user.encode("utf-8", "surrogateescape"),
                    None if limit.client_id is None else client_id,
                )
            )
        return found

    def connection_rate(self, address: str) -> float | None:
        """The connections per second that an address may create; None: any number."""
        rates = self._by_key.get(CONNECTIONS, {})
        rate = rates.get((None, None, address))
        return rates.get((None, None, DEFAULT)) if rate is None else rate


def _part(by_name: bool | None, name: str) -> str | None:
    if by_name is None:
        return None
    return name if by_name else DEFAULT
