from typing import Any
from typing import Final

from odradek._ext.api.fetch import FetchHandler
from odradek._ext.api.produce import ProduceHandler
from odradek._ext.api.purgatory import Purgatory
from odradek._ext.net.charging import Charges
from odradek._ext.net.forwarding import ForwardTable
from odradek._ext.net.frame_reading import FrameHandler


class RequestHandler(FrameHandler):
    produce_handler: Final[ProduceHandler]
    fetch_handler: Final[FetchHandler]
    purgatory: Final[Purgatory]
    charges: Charges
    forward_table: Final[ForwardTable]
    produce_requests: Final[int]
    fetch_requests: Final[int]
    other_requests: Final[int]

    def __init__(self, produce_handler: ProduceHandler, fetch_handler: FetchHandler, purgatory: Purgatory, dispatch, forward_table: ForwardTable | None=None, routes=(), max_bytes: int=..., brokers_listener: int=-1) -> None: ...
