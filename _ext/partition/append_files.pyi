from typing import TypedDict


class AppendFiles(TypedDict):
    incarnation: int
    busy: int
    segment_base: int
    generation: int
    log_fd: int
    index_fd: int
    time_fd: int
    txn_fd: int
    used: int

def limit_append_files(limit: int) -> None: ...
def sweep_append_files() -> int: ...
def open_append_files() -> int: ...
