from typing import Any
from typing import TypedDict

MAX_FRAME_BYTES = 128 << 20

class MalformedFrame(ValueError): ...

class FrameCutter:
    def __init__(self, max_frame_bytes: int=MAX_FRAME_BYTES) -> None: ...
    ...
    def feed(self, data: bytes) -> list[bytes]: ...

class RequestHead(TypedDict):
    correlation: int
    deadline: float
    forwarded_ms: int
    connection_id: int
    context: int
    context_bytes: int
    payload: int
    payload_bytes: int
    kind: int

class ReplyHead(TypedDict):
    correlation: int
    metadata_version: int
    payload: int
    payload_bytes: int
    status: int
    work_us: int
    throttle_ms: int

def encode_request(correlation: int, kind: int, context: bytes, deadline: float, payload: bytes, forwarded_ms: int=0) -> bytes: ...
def decode_request(frame: bytes) -> tuple[int, int, bytes, float, bytes]: ...
def encode_reply(correlation: int, status: int, metadata_version: int, payload: bytes, work_us: int=0, throttle_ms: int=0) -> bytes: ...
def decode_reply(frame: bytes) -> tuple[int, int, int, bytes]: ...
