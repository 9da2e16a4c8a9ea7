from typing import Any
from typing import Final


class FetchResponses:
    bytes_out: Final[int]
    responses: Final[int]

    def __init__(self, replicas=None) -> None: ...
    ...
