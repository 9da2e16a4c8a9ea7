from enum import IntEnum
from typing import Any, Final, TypedDict

from typing_extensions import TypeAlias

from odradek._ext.net.buffers import Buffer
from odradek._ext.net.output import OutQueue
from odradek._ext.net.tls import Tls
from odradek._ext.shm.client_quotas import QuotaUse
from odradek._ext.shm.metering import Client


class FrameResult(IntEnum):
    FRAME_DONE = ...
    FRAME_JOINED = ...
    FRAME_PENDING = ...
    FRAME_DEFER = ...
    FRAME_CLOSE = ...

class CloseReason(IntEnum):
    CLOSE_EOF = ...
    CLOSE_RESET = ...
    CLOSE_IDLE = ...
    CLOSE_BAD_FRAME = ...
    CLOSE_OTHER_PROTOCOL = ...
    CLOSE_HANDLER = ...
    CLOSE_FILE = ...
    CLOSE_ERROR = ...
    CLOSE_ASKED = ...
    CLOSE_AUTHENTICATION = ...

SHOWN_CHARACTERS = 300
Hold: TypeAlias = int

class Pending:
    connection: Final[Connection]
    done: Final[bool]
    cancelled: Final[bool]
    context: Any

    def complete(self, parts=()) -> None: ...
    def failed(self, code: int) -> None: ...
    def spent(self, us: int) -> None: ...
    @property
    def timed(self) -> bool: ...
    @property
    def version(self) -> int: ...
    def charge(self) -> int: ...
    ...

class Connection:
    data_loop: Final[Any]
    responses: Final[ResponseOutput]
    fd: Final[int]
    connection_id: Final[int]
    listener_index: Final[int]
    peer: Final[str]
    owner: Final[int]
    principal: Any
    by_token: bool
    gate: Any
    access: Any
    client_software_name: Any
    client_software_version: Any
    client_id: Final[bytes]
    tls: Final[Tls]
    session: Any
    close_reason: Any
    pending_count: Final[int]
    last_activity_ms: Final[int]
    throttled_until_ms: Final[int]

    def reserve(self) -> Pending: ...
    def resume(self) -> None: ...
    def throttle(self, until_ms: int) -> None: ...
    def limit_frames(self, most_bytes: int) -> None: ...
    def close(self, reason='closed by the broker') -> None: ...
    def close_after_responses(self, reason) -> None: ...
    def runs(self, name: str, version: str) -> None: ...
    def failed(self, api_key: int, code: int) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def log_fields(self) -> dict[str, Any]: ...
    @property
    def muted(self) -> bool: ...
    @property
    def buffered_bytes(self) -> int: ...
    @property
    def queued_bytes(self) -> int: ...
    ...
    def __repr__(self) -> str: ...

class ResponseOutput:
    now_ms: Final[int]
    cold_reader: Any
    on_throttle: Any

    def __init__(self, cold_reader=None) -> None: ...
    ...
    def write(self, data) -> None: ...
    def write_file(self, file_slice) -> None: ...

class ConnectionInput(TypedDict):
    part: Buffer
    part_bytes: int
    part_since_ms: int
    held: Buffer
    size_bytes: list[int]
    size_have: int
    large: bool
    received_us: int
    unused_bytes: int

class FrameOffers(TypedDict):
    hold: int
    greeted: bool
    most_bytes: int
    configured_bytes: int
    offered: bool
    joined: bool
    resumed: bool
    late: bool
    skipped: int

class ConnectionOutput(TypedDict):
    queue: OutQueue
    waiting_bytes: int
    blocked: bool
    cold: bool
    sealed_bytes: int
    sent_bytes: int

class ConnectionKept(TypedDict):
    bytes: int
    idle: bool
    frame_ms: int
    mark_ms: int
    mark_bytes: int
    arriving: int
    unread_ms: int
    unread_bytes: int
    unread_mark: int

class LoopState(TypedDict):
    interest: int
    closing: int
    eof: bool
    peer_finished: bool
    dirty: bool

class ConnectionMetering(TypedDict):
    client: Client
    counted_ms: int
    software: int

class ConnectionQuotas(TypedDict):
    limited: bool
    version: int
    client: int
    counted: Client
    fresh: bool
    mark_us: int
    api_key: int
    api_version: int
    produce: QuotaUse
    fetch: QuotaUse
    request: QuotaUse
    request_of_client: QuotaUse

def client_name(peer: str, client_id: str | None) -> str: ...
def set_throttle_positions(table) -> None: ...
def with_throttle_time(response: bytes, api_key: int, version: int, wait_ms: int) -> bytes: ...
