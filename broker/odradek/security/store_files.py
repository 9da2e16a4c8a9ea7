"""Shows whether files of key stores and trust stores were replaced. Functions without state."""

import os
from collections.abc import Iterable

from odradek.config.broker_config import BrokerConfig

STORES = ("ssl.keystore.location", "ssl.truststore.location")
Signature = tuple[tuple[str, tuple[int, ...] | None], ...]


def signature(config: BrokerConfig, listener_names: Iterable[str]) -> Signature:
    """What shows that a store of these listeners was replaced: by path the file's facts, None for a file that is missing."""
    paths = {
        str(path) for name in listener_names for key in STORES if (path := config.listener_value(name, key)) is not None
    }
    return tuple((path, facts(path)) for path in sorted(paths))


def facts(path: str) -> tuple[int, ...] | None:
    """Device, inode, size and time of change of a file; None if it cannot be looked at. Links are followed."""
    try:
        stat = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
