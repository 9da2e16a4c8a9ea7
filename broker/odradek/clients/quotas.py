"""Reads and changes the quotas of users, client ids and addresses. Functions over a `Cluster`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError

EXACT, DEFAULT, ANY = range(3)
TYPES = ("user", "client-id", "ip")


class QuotaEntity(NamedTuple):
    """An entity: pairs of type and name, in the order of `TYPES`; the name None is the default of the type."""

    parts: tuple[tuple[str, str | None], ...]

    def __str__(self) -> str:
        return " and ".join(f"the default {kind}" if name is None else f"{kind} '{name}'" for kind, name in self.parts)


class EntityQuotas(NamedTuple):
    """An entity and its quotas by key."""

    entity: QuotaEntity
    values: dict[str, float]


def describe(cluster: Cluster, entity: QuotaEntity | None = None) -> list[EntityQuotas]:
    """The quotas of exactly this entity, or of all entities (None). Raises RefusedError, ClientError."""
    from odradek.protocol.schemas import describe_client_quotas as api

    make = api.Request
    components = [
        make.ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in (() if entity is None else entity.parts)
    ]
    response = cluster.any_broker().ask(api.SCHEMA, make(components=components, strict=entity is not None))
    if response.error_code:
        raise RefusedError(response.error_code, response.error_message, "the quotas")
    found = []
    for entry in response.entries or ():
        names = {part.entity_type: part.entity_name for part in entry.entity}
        parts = tuple((kind, names[kind]) for kind in TYPES if kind in names)
        found.append(EntityQuotas(QuotaEntity(parts), {value.key: value.value for value in entry.values}))
    return sorted(
        found, key=lambda quotas: [(kind, name is not None, name or "") for kind, name in quotas.entity.parts]
    )


def alter(
    cluster: Cluster,
    entity: QuotaEntity,
    values: Mapping[str, float],
    removals: Sequence[str] = (),
    validate_only: bool = False,
) -> None:
    """Set `values`, and remove the quotas `removals`. Raises RefusedError, ClientError."""
    from odradek.protocol.schemas import alter_client_quotas as api

    make = api.Request
    ops = [make.OpData(key=key, value=value, remove=False) for key, value in values.items()]
    ops += [make.OpData(key=key, value=0.0, remove=True) for key in removals]
    entry = make.EntryData(
        entity=[make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts], ops=ops
    )
    response = cluster.any_broker().ask(api.SCHEMA, make(entries=[entry], validate_only=validate_only))
    for result in response.entries:
        if result.error_code:
            raise RefusedError(result.error_code, result.error_message)
