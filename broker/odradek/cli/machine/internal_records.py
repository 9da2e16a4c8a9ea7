"""Decodes the records of Kafka's internal topics into plain values. Runs in the process of ``odradek log dump``."""

import uuid
from collections.abc import Callable
from typing import Any

from odradek.config.table import broker_key
from odradek.protocol import Message, ProtocolError, decode
from odradek.protocol.schema import structure_of
from odradek.protocol.schemas import cluster_metadata, consumer_protocol, group_records
from odradek.protocol.schemas import transaction_records as transactions
from odradek.storage.batch import Record
from odradek.storage.dump import Entry, record_text
from odradek.storage.log_directory import encode_uuid

NEWEST_CONSUMER_PROTOCOL = 3
HIDDEN = "(hidden)"
_MEMBER_FIELDS = (("subscription", consumer_protocol.Subscription), ("assignment", consumer_protocol.Assignment))


def plain(value: Any) -> Any:
    """A decoded message, or a part of one, as numbers, texts, lists and dicts."""
    if isinstance(value, Message):
        return {
            item.attribute: _uuids(getattr(value, item.attribute))
            if item.element == "uuid"
            else plain(getattr(value, item.attribute))
            for item in structure_of(value).fields
        }
    if isinstance(value, list):
        return [plain(item) for item in value]
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value


def _uuids(value: Any) -> Any:
    if isinstance(value, list):
        return [_uuids(item) for item in value]
    return value if value is None else encode_uuid(uuid.UUID(bytes=bytes(value)))


def _tolerant(read: Callable[[Record], Entry]) -> Callable[[Record], Entry]:
    """Wrap a decoder so that a record that it cannot decode is shown as bytes, with the reason."""

    def decoder(record: Record) -> Entry:
        try:
            return read(record)
        except (ProtocolError, ValueError) as error:
            return record_text(record) | {"not_decoded": str(error)}

    return decoder


@_tolerant
def consumer_offsets(record: Record) -> Entry:
    """Decode a record of `__consumer_offsets`."""
    kind, key, value = group_records.read_record(record.key or b"", record.value)
    entry: Entry = {"kind": type(value).__name__ if value is not None else "tombstone", "key": plain(key)}
    entry["value"] = None if value is None else plain(value)
    if kind is group_records.GROUP_METADATA and value is not None and value.protocol_type == "consumer":
        for plain_member, member in zip(entry["value"]["members"], value.members, strict=True):
            for name, schema in _MEMBER_FIELDS:
                data = bytes(getattr(member, name))
                if len(data) >= 2:
                    version = min(int.from_bytes(data[:2], "big"), NEWEST_CONSUMER_PROTOCOL)
                    plain_member[name] = plain(decode(schema, version, data, 2)[0])
    return entry


@_tolerant
def transaction_state(record: Record) -> Entry:
    """Decode a record of `__transaction_state`."""
    key, value = transactions.read_record(record.key or b"", record.value)
    entry: Entry = {"key": plain(key), "value": None if value is None else plain(value)}
    if value is not None and 0 <= value.transaction_status < len(transactions.STATES):
        entry["value"]["transaction_status"] = transactions.STATES[value.transaction_status]
    return entry


@_tolerant
def metadata(record: Record) -> Entry:
    """Decode a record of `__cluster_metadata`. Keys of SCRAM credentials and values of password settings are hidden."""
    kind, version, value = cluster_metadata.read_record(record.value or b"")
    entry: Entry = {"kind": kind.name, "version": version, "value": None if value is None else plain(value)}
    for name in _secrets_of(kind, value):
        entry["value"][name] = HIDDEN
    return entry


def _secrets_of(kind: cluster_metadata.Kind, value: Any) -> tuple[str, ...]:
    """The names of the fields of a record that are secret."""
    if kind is cluster_metadata.USER_SCRAM_CREDENTIAL:
        return "salt", "stored_key", "server_key"
    if kind is cluster_metadata.CONFIG and value.resource_type == cluster_metadata.BROKER_RESOURCE:
        row = broker_key(value.name)
        return ("value",) if value.value is not None and (row is None or row.sensitive) else ()  # unknown: of a plugin
    return ()


DECODERS = {
    "__consumer_offsets": consumer_offsets,
    "__transaction_state": transaction_state,
    "__cluster_metadata": metadata,
}
"""The decoders by topic."""
