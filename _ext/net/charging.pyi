from typing import Any
from typing import Final, TypedDict

from odradek._ext.shm.client_quotas import QuotaRate


class Charges:
    version: Final[int]

    def __init__(self, resolve) -> None: ...
    def changed(self) -> None: ...

class JointCharge(TypedDict):
    above: bool
    now_ms: int
    bytes_left: int
    bytes_rate: QuotaRate
    time_rate: QuotaRate
