from odradek._ext.storage.segments import LoadedLog


def fill(index: int, loaded: LoadedLog, flushed: bool, producers_before_ms: int=..., at_start: bool=False, lost: bool=False, high_watermark: int=0) -> list[tuple[str, int]]: ...
