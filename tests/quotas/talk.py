"""What the tests of quotas say to a broker."""

from typing import Any

from odradek.protocol.schemas import alter_client_quotas
from tests.wire import Wire

BYTES_IN, BYTES_OUT, TIME, MUTATIONS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)


def entry(entity: dict[str, str | None], **values: float | None) -> Any:
    """An entry of AlterClientQuotas; the value None removes the quota."""
    make = alter_client_quotas.Request
    return make.EntryData(
        entity=[make.EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()],
        ops=[
            make.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in values.items()
        ],
    )


def set_quota(wire: Wire, entity: dict[str, str | None], **values: float | None) -> None:
    """Set or remove quotas of an entity; they are in force when this returns."""
    request = alter_client_quotas.Request(entries=[entry(entity, **values)], validate_only=False)
    for told in wire.ask(request, alter_client_quotas.API_KEY, 1).entries:
        assert told.error_code == 0, told
