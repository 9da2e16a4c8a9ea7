"""Decodes requests that workers forward to the coordinator. Pure functions; each thread of the coordinator uses them."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek._ext.net.arrivals import Arrival
from odradek.api.table import ApiRow
from odradek.net.forward_frames import ForwardReply, Status
from odradek.protocol import ProtocolError, decode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas.header import decode_request_header


class Forwarded(NamedTuple):
    """A decoded request."""

    row: ApiRow
    version: int
    correlation_id: int
    message: Any


def decode_forwarded(
    request: Arrival, rows: Mapping[int, ApiRow], limits: Mapping[int, int], log: logging.Logger
) -> Forwarded | ForwardReply:
    """Decode a request; or return the reply that refuses it, whose reason is logged.

    :param rows: the APIs that the caller executes, by key. :param limits: see `limits_of`.
    """
    try:
        header, body = decode_request_header(request.payload)
        row = rows.get(header.request_api_key)
        version = header.request_api_version
        if row is None or not row.min_version <= version <= row.max_version:
            return ForwardReply(Status.UNSUPPORTED, 0)
        message, _ = decode(by_key(row.key).request, version, request.payload, body, limits[row.key])
    except ProtocolError as error:
        log.warning(
            "cannot decode a request of %s: %s; its connection is closed",
            request.context.client, error, extra=request.context.log_fields,
        )  # fmt: skip
        return ForwardReply(Status.MALFORMED, 0)
    return Forwarded(row, version, header.correlation_id, message)
