from typing import Any
from typing import Final

from odradek._ext.net.connection import ResponseOutput


class ResponseSender:
    on_file_error: Any
    bytes_out: Final[int]
    sendfile_bytes: Final[int]

    def __init__(self, responses: ResponseOutput) -> None: ...
    ...
