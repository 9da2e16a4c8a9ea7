from typing import Any

from typing_extensions import TypeAlias

from odradek._ext.api.purgatory import Waiter
from odradek._ext.net.connection import Pending

Stage: TypeAlias = int
Step: TypeAlias = int

class DelayedFetch(Waiter):
    def __init__(self): ...
    def slice(self): ...
    def plan_again(self, pending: Pending): ...
    def warmed(self, pending: Pending, later: list[Any], error): ...
