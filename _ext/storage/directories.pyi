from typing import TypedDict


class DIR(TypedDict): ...

class dirent(TypedDict):
    d_name: bytes
