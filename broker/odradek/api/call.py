"""What a handler in a worker is given beside the request: who asks, and the worker's view of the cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.shm.topics import TopicDirectory
from odradek._ext.storage.segment_list import SegmentCache
from odradek.config.broker_config import BrokerConfig
from odradek.config.listeners import Listener


@dataclass
class WorkerView:
    """One a worker, used in its loop (`segments` by one off-loop thread only).

    :param advertised: what clients are told of each listener, in the order of the bound listeners.
    """

    config: BrokerConfig
    shm: SharedMemory
    topics: TopicDirectory
    advertised: Sequence[Listener]
    log_dirs: Sequence[str]
    segments: SegmentCache


@dataclass
class Call:
    """One a request.

    :param auto_create: asks the coordinator to create topics: (names, then called with [(name, error code, message)],
        and optionally for how many seconds to wait for it).
    :param answer_later: makes the place of this response; the function it returns is called once with the response.
    """

    version: int
    client_id: str | None
    listener_index: int
    connection: Any
    view: WorkerView
    auto_create: Callable[..., None]
    answer_later: Callable[[], Callable[[Any], None]]
