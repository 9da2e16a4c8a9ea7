from typing import Any, TypedDict


class SocketEvents:
    def __init__(self) -> None: ...
    ...

class epoll_data_t(TypedDict, total=False):
    ptr: Any

class epoll_event(TypedDict):
    events: int
    data: epoll_data_t
