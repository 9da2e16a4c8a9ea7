from typing import Any
from typing import Final, TypedDict

from odradek._ext.api.access import AccessControl
from odradek._ext.api.fetch_sessions import FetchSessions
from odradek._ext.api.purgatory import Purgatory
from odradek._ext.net.connection import Connection
from odradek._ext.shm.topics import TopicDirectory


class FetchHandler:
    control: AccessControl
    sessions: Final[FetchSessions]

    def __init__(self, topics: TopicDirectory, room: Purgatory, log_dirs, sessions: FetchSessions, down_convert, slices, *, max_bytes: int, max_wait_ms: int, max_partitions: int, replicas=None) -> None: ...
    @property
    def looks(self) -> int: ...
    @property
    def aborted_look_ups(self) -> int: ...
    @property
    def notes(self) -> int: ...
    def closed(self, connection: Connection) -> None: ...
    def sweep(self) -> None: ...
    def rights_changed(self, connection: Connection) -> None: ...

class FetchHead(TypedDict):
    replica_id: int
    replica_epoch: int
    wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    session_id: int
    epoch: int
