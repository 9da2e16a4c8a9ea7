from typing import TypedDict


class Conversion(TypedDict):
    first_offset: int
    last_offset: int
    max_timestamp: int
    count: int
    whole: bool

def batch_to_messages(batch, plain, magic: int, from_offset: int, limit: int, compress) -> tuple[bytes, int]: ...
def write_message(magic: int, codec: int, log_append_time: bool, offset: int, timestamp: int, key, value) -> bytes: ...
