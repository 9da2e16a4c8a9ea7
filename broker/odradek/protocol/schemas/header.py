"""The headers of requests and responses, and which version of them an API's version has.

A request's header begins with its API key and version in every version; its own form follows from them.
"""

from __future__ import annotations

import struct
from typing import Any

from odradek._ext.protocol.decoder import decode
from odradek._ext.protocol.messages import ProtocolError
from odradek.protocol import registry
from odradek.protocol.schema import message

CONTROLLED_SHUTDOWN = 7
API_VERSIONS = 18
KEY_AND_VERSION = struct.Struct(">hh")

RequestHeader: Any = message(
    "RequestHeader",
    """
    RequestApiKey      int16   0+
    RequestApiVersion  int16   0+
    CorrelationId      int32   0+
    ClientId           string  1+  null ignorable flexible=none
    """,
    versions="0-2",
    flexible="2+",
    module=__name__,
)

ResponseHeader: Any = message(
    "ResponseHeader",
    """
    CorrelationId  int32  0+
    """,
    versions="0-1",
    flexible="1+",
    module=__name__,
)


def request_header_version(api_key: int, version: int) -> int:
    """The version of a request's header: 2 for flexible versions, 1 else, 0 for ControlledShutdown v0.

    Also for versions that the schema does not know: an ApiVersions request from the future has to be understood so
    far. Raises UnknownApiError.
    """
    if version >= registry.by_key(api_key).flexible_since:
        return 2
    return 0 if api_key == CONTROLLED_SHUTDOWN and version == 0 else 1


def response_header_version(api_key: int, version: int) -> int:
    """The version of a response's header: 1 if flexible, else 0; 0 for ApiVersions. Raises UnknownApiError."""
    if api_key == API_VERSIONS:
        return 0
    return 1 if version >= registry.by_key(api_key).flexible_since else 0


def decode_request_header(buffer: Any, offset: int = 0) -> tuple[Any, int]:
    """The header of the request at `offset` in `buffer` (without the frame's size), and the offset of its body.

    Of an unknown API the form of the header is not known either: its client id is read if it is there, else it is
    empty, and the offset means nothing. Raises ProtocolError.
    """
    try:
        api_key, api_version = KEY_AND_VERSION.unpack_from(buffer, offset)
    except struct.error as error:
        raise ProtocolError(
            "the value is longer than the remaining bytes", message="RequestHeader", position=offset
        ) from error
    try:
        version = request_header_version(api_key, api_version)
    except registry.UnknownApiError:
        try:
            return decode(RequestHeader, 1, buffer, offset)
        except ProtocolError:
            return decode(RequestHeader, 0, buffer, offset)
    return decode(RequestHeader, version, buffer, offset)
