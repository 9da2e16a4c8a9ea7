from typing import Any
from typing import Final

from odradek._ext.net.connection import ResponseOutput


class ResponseSender(ResponseOutput):
    cold_reader: Any
    on_file_error: Any
    bytes_out: Final[int]
    sendfile_bytes: Final[int]
