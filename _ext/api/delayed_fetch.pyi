from typing import Any

from typing_extensions import TypeAlias

from odradek._ext.api.fetch_context import FetchContext
from odradek._ext.net.connection import Pending

Stage: TypeAlias = int
Step: TypeAlias = int

class DelayedFetch(FetchContext):
    def slice(self): ...
    def warmed(self, pending: Pending, later: list[Any], error): ...
