from typing import Any
from odradek._ext.api.fetch_responses import FetchResponses


class FetchConversion:
    def __init__(self, responses: FetchResponses, max_bytes: int, down_convert) -> None: ...
