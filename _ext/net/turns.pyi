from typing import Any
from odradek._ext.net.connection import ResponseOutput
from odradek._ext.net.frame_reading import FrameReader
from odradek._ext.net.open_connections import OpenConnections
from odradek._ext.net.sending import ResponseSender
from odradek._ext.net.socket_events import SocketEvents


class Turns:
    def __init__(self, responses: ResponseOutput, sender: ResponseSender, frames: FrameReader, events: SocketEvents, connections: OpenConnections) -> None: ...
