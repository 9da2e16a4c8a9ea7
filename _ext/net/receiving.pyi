from typing import Any
from typing import Final

from odradek._ext.net.connection import ResponseOutput
from odradek._ext.net.frame_reading import FrameReader
from odradek._ext.net.open_connections import OpenConnections
from odradek._ext.net.sending import ResponseSender
from odradek._ext.net.socket_events import SocketEvents
from odradek._ext.net.turns import Turns


class RequestReceiver:
    bytes_in: Final[int]
    handshake_thread: Any

    def __init__(self, responses: ResponseOutput, sender: ResponseSender, frames: FrameReader, events: SocketEvents, connections: OpenConnections, turns: Turns) -> None: ...
    ...
