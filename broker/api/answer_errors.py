"""The error code that an encoded response begins with, for counting what another process answered.

Only of the APIs whose response has one before anything of variable length; of others nothing is known here (0).
"""

from broker.protocol.header import response_header_version

_THROTTLED_FROM = {  # API key: first version in which the throttle time stands before the error code
    11: 2,  # JoinGroup
    12: 1,  # Heartbeat
    13: 1,  # LeaveGroup
    14: 1,  # SyncGroup
    16: 1,  # ListGroups
    22: 0,  # InitProducerId
    47: None,  # OffsetDelete: the error code comes first
    68: 0,  # ConsumerGroupHeartbeat
}


def top_level_error(api_key: int, version: int, response: bytes) -> int:
    """The error code of a response with its header, without its length; 0 if there is none, or none that is simply found."""
    if api_key not in _THROTTLED_FROM:
        return 0
    throttled_from = _THROTTLED_FROM[api_key]
    position = 4 + response_header_version(api_key, version)  # correlation id, no tagged fields
    if throttled_from is not None and version >= throttled_from:
        position += 4
    return int.from_bytes(response[position : position + 2], "big", signed=True)
