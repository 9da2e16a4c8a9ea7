"""Makes the rows of the usage spool: one function per kind. Pure. `broker/odradek/metrics/spool.py` defines the format."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from odradek.metrics import usage_totals
from odradek.metrics.pages import NO_API, UsageRow

Row = dict[str, Any]

KEYS = {
    "usage": usage_totals.KEYS,
    "retired": ("page",),
    "topic": ("topic", "id"),
    "stored": ("topic", "path"),
    "log_dir": ("path",),
    "group": ("group", "topic"),
    "reader": ("principal", "client", "topic"),
    "worker": ("worker",),
    "cluster": (),
}
"""The fields of each kind that identify a row; the other fields are its values."""

UNKNOWN_API_NAME = "unknown"


class RowKey(NamedTuple):
    """The identity of a row: its kind and the values of `KEYS`."""

    kind: str
    values: tuple[Any, ...]


def key_of(row: Mapping[str, Any]) -> RowKey:
    """Return the key of a row. Raises KeyError for an unknown kind or a missing field."""
    kind = row["kind"]
    return RowKey(kind, tuple(row[name] for name in KEYS[kind]))


def api_name(api_key: int, names: Mapping[int, str]) -> str:
    """Return the name of an API in rows; "" for usage without an API (connection time)."""
    return "" if api_key == NO_API else names.get(api_key, UNKNOWN_API_NAME)


def usage(row: UsageRow, names: Mapping[int, str]) -> Row:
    """Return a row of usage. :param names: {API key: name}."""
    return {
        "kind": "usage",
        "page": row.page,
        "principal": row.principal,
        "client": row.client_id,
        "topic": row.topic,
        "api": api_name(row.api_key, names),
        "since": row.since_ms,
        "in": row.bytes_in,
        "out": row.bytes_out,
        "rin": row.records_in,
        "rout": row.records_out,
        "req": row.requests,
        "err": row.errors,
        "thr": row.throttle_ms,
        "conn": row.connection_ms,
    }


def topic(
    name: str,
    topic_id: str,
    *,
    partitions: int,
    replicas: int,
    stored_bytes: int,
    largest_bytes: int,
    end_offsets: int,
    start_offsets: int,
    led: int,
    led_end_offsets: int,
    led_start_offsets: int,
    retention_ms: int,
    retention_bytes: int,
) -> Row:
    """Return the row of a topic.

    :param topic_id: 32 hex digits. :param replicas: its logs on this broker; the following values are sums over them.
    :param end_offsets: their log end offsets. :param start_offsets: their log start offsets.
    :param led: the partitions that this broker leads; the sums of their offsets on all brokers are those of the topic.
    """
    return {
        "kind": "topic",
        "topic": name,
        "id": topic_id,
        "partitions": partitions,
        "replicas": replicas,
        "bytes": stored_bytes,
        "largest": largest_bytes,
        "end": end_offsets,
        "start": start_offsets,
        "led": led,
        "led_end": led_end_offsets,
        "led_start": led_start_offsets,
        "retention_ms": retention_ms,
        "retention_bytes": retention_bytes,
    }


def stored(topic_name: str, path: str, *, stored_bytes: int) -> Row:
    """Return the row of a topic's stored bytes in one log directory."""
    return {"kind": "stored", "topic": topic_name, "path": path, "bytes": stored_bytes}


def log_dir(path: str, *, free_bytes: int, total_bytes: int, online: bool) -> Row:
    """Return the row of a log directory and its file system."""
    return {"kind": "log_dir", "path": path, "free": free_bytes, "total": total_bytes, "online": online}


def group(group_id: str, topic_name: str, *, lag: int, lag_seconds: float | None, members: int) -> Row:
    """Return the row of a group's lag in a topic, in records and in seconds (None: unknown)."""
    return {
        "kind": "group", "group": group_id, "topic": topic_name, "lag": lag, "lag_s": _seconds(lag_seconds), "members": members
    }  # fmt: skip


def reader(
    principal: str, client_id: str, topic_name: str, *, lag: int, lag_seconds: float | None, back_ms: int | None = None
) -> Row:
    """Return the row of a reader's lag in a topic, by the offsets that it fetches.

    :param back_ms: when its position in a partition last moved back; None: never.
    """
    return {
        "kind": "reader", "principal": principal, "client": client_id, "topic": topic_name, "lag": lag,
        "lag_s": _seconds(lag_seconds), "back": back_ms,
    }  # fmt: skip


def worker(ordinal: int, *, connections: int, busy_us: int, bytes_in: int, bytes_out: int) -> Row:
    """Return the row of a worker; all values except `connections` only grow."""
    return {
        "kind": "worker", "worker": ordinal, "connections": connections, "busy_us": busy_us, "in": bytes_in, "out": bytes_out
    }  # fmt: skip


def cluster(broker_ids: Iterable[int]) -> Row:
    """Return the row of the live brokers of the cluster."""
    return {"kind": "cluster", "brokers": sorted(broker_ids)}


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
