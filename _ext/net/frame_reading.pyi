from typing import Any
from typing import Final

from odradek._ext.net.buffers import BufferPool
from odradek._ext.net.connection import ResponseOutput
from odradek._ext.net.sending import ResponseSender


class FrameHandler: ...

class PythonFrameHandler(FrameHandler):
    def on_flush(self, connection) -> None: ...
    def on_half_closed(self, connection) -> None: ...
    def on_closed(self, connection) -> None: ...

class FrameReader:
    handler: Final[FrameHandler]
    max_pending: int
    count: Final[int]
    bad_frames: Final[int]

    def __init__(self, responses: ResponseOutput, sender: ResponseSender, handler: FrameHandler, pool: BufferPool, *, receive_buffer_bytes: int, max_pending: int, max_queued_bytes: int) -> None: ...
    ...
