"""The settings that change while the broker runs, as all its processes see them: a memfd made before the first fork.

Written by the coordinator's controller thread (and by the first loader, before there is a coordinator) from the metadata
store; read by every process when it starts and when the version word moved. See docs/decisions/0015-running-configuration.md.

Layout: a version word, a word a process that says which version it has taken over, then two copies of (version, length, CRC,
JSON). A writer fills the older copy, then stores the version, then wakes everyone; a reader takes the newest copy whose CRC
is right. So a writer that dies half way, or a reader that comes in between, meets the copy before. Words are eight bytes,
aligned, and have one writer each.
"""

import json
import logging
import mmap
import os
import select
import struct
import time
import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.config.broker_config import BrokerConfig
from odradek.shm.log_levels import apply_levels

log = logging.getLogger("odradek.config")

COPY_BYTES = 256 * 1024
_PROCESSES = 64
_WORDS = 1 + _PROCESSES
_COPIES_AT = 4096
_HEAD = struct.Struct("<QII")
LARGEST = COPY_BYTES - _HEAD.size
"""Bytes that all changed settings together may take as JSON."""

Settings = Mapping[str, str]


class TooManySettings(Exception):
    """The settings do not fit into the shared copy."""


class Running(NamedTuple):
    """What was changed at run time: for all brokers, for this one, and the levels of its loggers, which are kept here alone."""

    of_all: dict[str, str]
    of_broker: dict[str, str]
    loggers: dict[str, str]


NOTHING = Running({}, {}, {})


def encoded(of_all: Settings, of_broker: Settings, loggers: Settings) -> bytes:
    """As it is shared. Raises TooManySettings."""
    fields = {"of_all": dict(of_all), "of_broker": dict(of_broker), "loggers": dict(loggers)}
    data = json.dumps(fields, separators=(",", ":")).encode()
    if len(data) > LARGEST:
        raise TooManySettings(
            f"the settings changed at run time take {len(data)} bytes; the limit is {LARGEST} bytes: delete some of them"
        )
    return data


class RunningConfig:
    """One a broker, made by the supervisor; every process it forks holds the same.

    Attributes: ``descriptors`` must stay open in a child.
    """

    def __init__(self) -> None:
        self._fd = os.memfd_create("odradek-running-config", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, _COPIES_AT + 2 * COPY_BYTES)
        self._map = mmap.mmap(self._fd, _COPIES_AT)
        self._words = memoryview(self._map).cast("Q")
        self._taken_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._seen = 0
        self._index = 0
        self._levels: Settings = {}

    @property
    def descriptors(self) -> tuple[int, int]:
        """What a child must keep open."""
        return self._fd, self._taken_fd

    @property
    def version(self) -> int:
        """The newest version published; 0 if nothing ever was."""
        return self._words[0]

    @property
    def changed(self) -> bool:
        """Whether there is a version that this process has not taken over. Costs one read of memory."""
        return self._words[0] != self._seen

    def publish(self, of_all: Settings, of_broker: Settings, loggers: Settings) -> int:
        """Show these settings to every process; the version. The caller wakes them. Raises TooManySettings."""
        data = encoded(of_all, of_broker, loggers)
        version = self._words[0] + 1
        head = _HEAD.pack(version, len(data), zlib.crc32(data, version & 0xFFFFFFFF))
        os.pwrite(self._fd, head + data, _COPIES_AT + (version % 2) * COPY_BYTES)
        self._words[0] = version
        return version

    def read(self) -> tuple[int, Running]:
        """The newest settings and their version; (0, none) if nothing ever was published."""
        best, found = 0, NOTHING
        for copy in range(2):
            at = _COPIES_AT + copy * COPY_BYTES
            version, length, crc = _HEAD.unpack(os.pread(self._fd, _HEAD.size, at))
            if version <= best or length > LARGEST:
                continue
            data = os.pread(self._fd, length, at + _HEAD.size)
            if zlib.crc32(data, version & 0xFFFFFFFF) == crc:
                best, found = version, Running(**json.loads(data))
        return best, found

    def enter(self, index: int) -> None:
        """Say which place in the shared process table the calling process has; it acts by what its parent had taken over."""
        self._index = index
        self._words[1 + index] = self._seen

    def take_over(self, config: BrokerConfig) -> bool:
        """Bring this process's configuration to the newest version, and tell that it is; whether anything was new."""
        if not self.changed:
            return False
        version, running = self.read()
        for error in config.run_with(running.of_all, running.of_broker):
            log.error("ignoring a setting that was changed at run time: %s", error)
        self.set_levels(config, running.loggers)
        self.taken(version)
        return True

    def set_levels(self, config: BrokerConfig, changed: Settings) -> None:
        """Let this process log by these levels. :param changed: by logger, of those whose level was changed at run time."""
        if changed != self._levels:
            apply_levels(config, changed)
            self._levels = dict(changed)

    def taken(self, version: int) -> None:
        """This process acts by `version`."""
        self._seen = self._words[1 + self._index] = version
        os.eventfd_write(self._taken_fd, 1)

    def wait_until_taken(self, version: int, indexes: Iterable[int], limit_s: float) -> list[int]:
        """Wait until these processes have taken over a version; those that have not within the time. One caller a broker."""
        deadline = time.monotonic() + limit_s
        poll = select.poll()
        poll.register(self._taken_fd, select.POLLIN)
        while True:
            late = [index for index in indexes if self._words[1 + index] < version]
            left = deadline - time.monotonic()
            if not late or left <= 0:
                return late
            if poll.poll(left * 1000):
                os.eventfd_read(self._taken_fd)
