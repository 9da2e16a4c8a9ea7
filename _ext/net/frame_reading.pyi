from typing import Any
from typing import Final

from odradek._ext.net.buffers import BufferPool
from odradek._ext.net.sending import ResponseSender


class FrameHandler: ...

class PythonFrameHandler(FrameHandler):
    def on_flush(self, connection) -> None: ...
    def on_half_closed(self, connection) -> None: ...
    def on_closed(self, connection) -> None: ...

class FrameReader(ResponseSender):
    handler: Final[FrameHandler]
    pool: Final[BufferPool]
    max_request_bytes: int
    max_pending: int
    max_queued_bytes: int
    bytes_in: Final[int]
    frames: Final[int]
    bad_frames: Final[int]
    handshake_thread: Any
