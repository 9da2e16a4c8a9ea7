"""The headers of requests and responses, and their versions for each version of an API.

Every version of a request header begins with the API key and version, which determine the rest of the header.
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
    """The version of a request header: 2 for flexible versions, else 1; 0 for ControlledShutdown v0.

    Also defined for versions that are not in the schema: the header of a newer ApiVersions request must be decodable.
    Raises UnknownApiError.
    """
    if version >= registry.by_key(api_key).flexible_since:
        return 2
    return 0 if api_key == CONTROLLED_SHUTDOWN and version == 0 else 1


def response_header_version(api_key: int, version: int) -> int:
    """The version of a response header: 1 for flexible versions, else 0; 0 for ApiVersions. Raises UnknownApiError."""
    if api_key == API_VERSIONS:
        return 0
    return 1 if version >= registry.by_key(api_key).flexible_since else 0


def decode_request_header(buffer: Any, offset: int = 0) -> tuple[Any, int]:
    """Decode the header of the request at `offset` in `buffer` (after the frame size); return it and the offset of the body.

    The format of the header of an unknown API is unknown, too: the client id is decoded if possible, else it is empty, and the
    offset is meaningless. Raises ProtocolError.
    """
    try:
        api_key, api_version = KEY_AND_VERSION.unpack_from(buffer, offset)
    except struct.error as error:
        raise ProtocolError("ends before the API key and version", message="RequestHeader", position=offset) from error
    try:
        version = request_header_version(api_key, api_version)
    except registry.UnknownApiError:
        try:
            return decode(RequestHeader, 1, buffer, offset)
        except ProtocolError:
            return decode(RequestHeader, 0, buffer, offset)
    return decode(RequestHeader, version, buffer, offset)
