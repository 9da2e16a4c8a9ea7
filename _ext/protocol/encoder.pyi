from typing import TypedDict

from _typeshed import Incomplete

from odradek._ext.protocol.cursor import WriteBuffer
from odradek._ext.protocol.plan import Trail


class Output(TypedDict):
    buffer: WriteBuffer
    refused: Incomplete
    reason: int
    trail: Trail

def encode(message, version: int): ...
def encode_frame(header, header_version: int, message, version: int): ...
