from typing import Any, Final

from typing_extensions import TypeAlias

Fault: TypeAlias = int

class RecordErrors:
    code: Final[int]
    total: Final[int]
    listed: Final[list[Any]]
    message: Final[bytes]
