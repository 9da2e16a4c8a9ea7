from typing import TypedDict


class DeviceLook(TypedDict):
    waiting: int
    fresh: bool
