"""Client quotas in the metadata store: of users, client ids, users with client ids, and addresses, with defaults.

Runs in the store thread. The quotas are in the nodes of Kafka 3.9, such as `/config/users/<user>/clients/<client>`. Other
settings in the same node are kept. `enforced_quotas` publishes them to the processes that enforce them.
"""

import ipaddress
import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.config.key import show
from odradek.controller.broker_settings import read_settings
from odradek.controller.client_changes import SettingsWriter
from odradek.controller.topics import Refusal
from odradek.metadata import znodes
from odradek.metadata.store import Store, each_child
from odradek.protocol.errors import ErrorCode
from odradek.quotas.quotas import CLIENT_ID, IP, USER

log = logging.getLogger("odradek.quotas")

LARGEST_LONG = 2**63 - 1
STEP = 200
"""The number of entities that `Quotas.describe` reads in one step."""
WHOLE, FRACTIONAL = int, float
OF_CLIENTS = {
    "producer_byte_rate": WHOLE,
    "consumer_byte_rate": WHOLE,
    "request_percentage": FRACTIONAL,
    "controller_mutation_rate": FRACTIONAL,
}
OF_ADDRESSES = {"connection_creation_rate": WHOLE}

Entity = Mapping[str, str | None]
"""Entity names by entity type. None is the default entity of that type."""


class Edit(NamedTuple):
    """A quota to set, or to remove (`value` None)."""

    key: str
    value: float | None


class Filter(NamedTuple):
    """A condition on one entity type: this name, the default (`name` None), or any of them (`any_name`)."""

    entity_type: str
    name: str | None
    any_name: bool = False

    def accepts(self, entity: Entity) -> bool:
        """Whether an entity matches."""
        return self.entity_type in entity and (self.any_name or entity[self.entity_type] == self.name)


class Quotas:
    """The quotas in the store. :param controller: writes them in its controller epoch."""

    def __init__(self, store: Store, controller: SettingsWriter) -> None:
        self._store = store
        self._controller = controller

    def describe(
        self, filters: Sequence[Filter], strict: bool
    ) -> Generator[None, None, list[tuple[dict[str, str | None], dict[str, float]]]]:
        """Return every entity that all filters accept, with its quotas; if `strict`, only entities without any other type.

        Yields after every `STEP` entities, because a client may have created any number of them. Raises StoreError.
        """
        matches = []
        for number, (entity, path) in enumerate(entities_of(self._store), 1):
            if number % STEP == 0:
                yield
            if strict and len(entity) != len(filters):
                continue
            if all(condition.accepts(entity) for condition in filters):
                values = quotas_in(path, read_settings(self._store, path))
                if values:
                    matches.append((entity, values))
        return matches

    def alter(self, parts: Sequence[tuple[str, str | None]], edits: Sequence[Edit], validate_only: bool) -> None:
        """Set and remove quotas of one entity. Raises Refusal, StoreError, NotController."""
        entity = _checked_entity(parts)
        if any(edit.value is not None for edit in edits):
            _check_address(entity.get(IP))
        known = OF_ADDRESSES if IP in entity else OF_CLIENTS
        changes = {edit.key: _checked_value(edit, known) for edit in edits}
        path = path_of(entity)
        settings = read_settings(self._store, path)
        for key, text in changes.items():
            if text is None:
                settings.pop(key, None)
            else:
                settings[key] = text
        if not validate_only and edits:
            self._controller.write_settings(path, settings, keep_empty=False)


def entities_of(store: Store) -> Iterator[tuple[dict[str, str | None], str]]:
    """All entities that may have quotas, with the paths of their nodes. Raises StoreError."""
    for entity_type, parent in ((CLIENT_ID, znodes.CLIENT_CONFIGS), (IP, znodes.IP_CONFIGS)):
        for node in each_child(store, parent):
            yield {entity_type: _name_of(node)}, f"{parent}/{node}"
    for user in each_child(store, znodes.USER_CONFIGS):
        yield {USER: _name_of(user)}, znodes.quota_path(user, None, None)
        for client_id in each_child(store, f"{znodes.quota_path(user, None, None)}/clients"):
            yield (
                {USER: _name_of(user), CLIENT_ID: _name_of(client_id)},
                znodes.quota_path(user, client_id, None),
            )


def entity_at(path: str) -> dict[str, str | None] | None:
    """The entity of a path below `/config`, such as `users/<user>/clients/<client>`; None if it is not that of an entity."""
    match path.split("/"):
        case ["clients", client_id]:
            return {CLIENT_ID: _name_of(client_id)}
        case ["ips", address]:
            return {IP: _name_of(address)}
        case ["users", user]:
            return {USER: _name_of(user)}
        case ["users", user, "clients", client_id]:
            return {USER: _name_of(user), CLIENT_ID: _name_of(client_id)}
    return None


def path_of(entity: Entity) -> str:
    """The path of the node with an entity's quotas."""
    nodes = {kind: znodes.DEFAULT_ENTITY if name is None else znodes.encode_name(name) for kind, name in entity.items()}
    return znodes.quota_path(nodes.get(USER), nodes.get(CLIENT_ID), nodes.get(IP))


def _name_of(node: str) -> str | None:
    return None if node == znodes.DEFAULT_ENTITY else znodes.decode_name(node)


def quotas_in(path: str, settings: Mapping[str, str]) -> dict[str, float]:
    """The quotas in the settings of a node. A value that is no positive number is left out, and logged."""
    found = {}
    for key in (*OF_CLIENTS, *OF_ADDRESSES):
        if key not in settings:
            continue
        try:
            value = float(settings[key])
        except ValueError:
            value = 0.0
        if 0 < value < float("inf"):
            found[key] = value
        else:
            log.error("ignoring the quota %s=%s in %s: it must be a number greater than 0", key, settings[key], path)
    return found


def _refused(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _checked_entity(parts: Sequence[tuple[str, str | None]]) -> dict[str, str | None]:
    if not parts:
        raise _refused("Invalid empty client quota entity")
    entity: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise _refused(f"Unhandled client quota entity type: {kind}; must be {USER}, {CLIENT_ID} or {IP}")
        if kind in entity:
            raise _refused(f"Entity type {kind} occurs twice; each type must occur once")
        if name == "":
            raise _refused(f"Empty {kind} not supported")
        entity[kind] = name
    if IP in entity and len(entity) > 1:
        raise _refused(f"Invalid quota entity combination, {IP} cannot be combined with {USER} or {CLIENT_ID}")
    return entity


def _check_address(address: str | None) -> None:
    """Refuse all but IP addresses. Host names are not resolved, because a slow name server would block the controller."""
    try:
        if address is not None:
            ipaddress.ip_address(address)
    except ValueError:
        raise _refused(
            f"{IP} {address!r} is not an IP address; must be an address such as 192.0.2.1 or 2001:db8::1"
        ) from None


def _checked_value(edit: Edit, known: Mapping[str, type]) -> str | None:
    """The text to store; None to remove the quota."""
    if edit.value is None:
        return None
    kind = known.get(edit.key)
    if kind is None:
        raise _refused(f"Invalid configuration key {edit.key}: must be one of {', '.join(known)} for this entity")
    if not edit.value > 0:
        raise _refused(f"Quota {edit.key} must be greater than 0")
    if kind is FRACTIONAL:
        if edit.value == float("inf"):
            raise _refused(f"Quota {edit.key} must be a finite number")
        return show(float(edit.value))
    if edit.value > LARGEST_LONG:
        raise _refused(f"Proposed value for {edit.key} is too large for a LONG.")
    if edit.value != int(edit.value):
        raise _refused(f"{edit.key} cannot be a fractional value.")
    return str(int(edit.value))
