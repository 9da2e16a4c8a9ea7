from typing import Any
from typing import TypedDict

from odradek._ext.protocol.kafka_errors import (CORRUPT_MESSAGE,
                                                INVALID_RECORD,
                                                INVALID_TIMESTAMP,
                                                MESSAGE_TOO_LARGE,
                                                UNSUPPORTED_COMPRESSION_TYPE)

REASONS = {CORRUPT_MESSAGE: 'a message is damaged: its CRC or one of its lengths is wrong', INVALID_RECORD: 'a message is not well formed', INVALID_TIMESTAMP: 'a message has a timestamp below -1, or has the timestamp type LogAppendTime and no timestamp', MESSAGE_TOO_LARGE: 'a message is larger than the topic allows', UNSUPPORTED_COMPRESSION_TYPE: 'a message has a codec that its format does not support'}

class BadMessageError(ValueError):
    code: int
    position: int

    def __init__(self, code, position, reason=None) -> None: ...

class Message(TypedDict):
    offset: int
    timestamp: int
    size: int
    crc: int
    key_at: int
    key_bytes: int
    value_at: int
    value_bytes: int
    magic: int
    codec: int
    log_append_time: int

class MessageSet(TypedDict):
    size: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    count: int
    codec: int

def check_set(data) -> MessageSet: ...
