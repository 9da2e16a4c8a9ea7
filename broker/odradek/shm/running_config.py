"""The settings that change while the broker runs, shared by all its processes in a memfd that is created before the first fork.

The coordinator's store thread writes them from the metadata store; before the coordinator starts, the first loader does.
Every process reads them when it starts and when the version word has changed. See docs/decisions/0015-running-configuration.md.

The settings are JSON in `ConfirmedPages`. The writer publishes them, then wakes every process. Three words of the memfd are for
reloads of the configuration file: the supervisor counts the requests, and the coordinator notes the last one that it has served
and whether it was refused. A coordinator that dies before it notes this leaves the request to its successor.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.config.broker_config import BrokerConfig
from odradek.shm.confirmed_pages import ConfirmedPages
from odradek.shm.log_levels import apply_levels
from odradek.shm.published_pages import HEAD_BYTES

log = logging.getLogger("odradek.config")

COPY_BYTES = 256 * 1024
LARGEST = COPY_BYTES - HEAD_BYTES
"""The largest size of all changed settings together as JSON, in bytes."""

Settings = Mapping[str, str]


class TooManySettings(Exception):
    """The changed settings do not fit into the shared copy."""


class Running(NamedTuple):
    """The settings changed at run time: for all brokers and for this broker, which the store has too; and, which are only here,
    the levels of its loggers and what changed in its configuration file (`BrokerConfig.changed`)."""

    of_all: dict[str, str]
    of_broker: dict[str, str]
    loggers: dict[str, str]
    of_file: dict[str, str | None] = {}


NOTHING = Running({}, {}, {})


def encoded(running: Running) -> bytes:
    """Encode the settings for the shared copy. Raises TooManySettings."""
    data = json.dumps(running._asdict(), separators=(",", ":")).encode()
    if len(data) > LARGEST:
        raise TooManySettings(
            f"the settings changed at run time take {len(data)} bytes; the limit is {LARGEST} bytes: delete some of them"
        )
    return data


class RunningConfig:
    """The shared settings of a broker. The supervisor creates it; every process that it forks inherits it.

    The `descriptors` must stay open in a child.
    """

    def __init__(self) -> None:
        self._pages = ConfirmedPages("odradek-running-config", COPY_BYTES)
        self._levels: Settings = {}
        self._wanted, self._served, self._refused = range(3)  # of `_words`
        self._words = self._pages.more_words

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that a child must keep open."""
        return self._pages.descriptors

    @property
    def version(self) -> int:
        """The newest published version; 0 if nothing was published yet."""
        return self._pages.version

    @property
    def changed(self) -> bool:
        """Whether a version exists that this process has not taken over. Costs one read of memory."""
        return self._pages.changed

    def publish(self, running: Running) -> int:
        """Publish these settings to every process. Returns their version. The caller must wake the processes. Raises
        TooManySettings."""
        return self._pages.publish(encoded(running))

    def read(self) -> tuple[int, Running]:
        """The version of the newest settings, and the settings; (0, no settings) if nothing was published yet."""
        published = self._pages.read()
        if published is None:
            return 0, NOTHING
        version, data = published
        return version, Running(**json.loads(data))

    def enter(self, index: int) -> None:
        """See `ConfirmedPages`."""
        self._pages.enter(index)

    def take_over(self, config: BrokerConfig) -> bool:
        """Update this process's configuration to the newest version, and confirm it. Returns whether there was a new
        version."""
        if not self.changed:
            return False
        version, running = self.read()
        for error in config.run_with(running.of_all, running.of_broker, running.of_file):
            log.error("ignoring a setting that was changed at run time: %s", error)
        self.set_levels(config, running.loggers)
        self.taken(version)
        return True

    def set_levels(self, config: BrokerConfig, changed: Settings) -> None:
        """Set the log levels of this process. :param changed: the levels that were changed at run time, by logger."""
        levels = config.logger_levels(changed)
        if levels != self._levels:
            apply_levels(levels)
            self._levels = levels

    def taken(self, version: int) -> None:
        """Confirm that this process uses `version`."""
        self._pages.taken(version)

    def wait_until_taken(self, version: int, indexes: Iterable[int], limit_s: float) -> list[int]:
        """See `ConfirmedPages`."""
        return self._pages.wait_until_taken(version, indexes, limit_s)

    def request_reload(self) -> None:
        """Called in the supervisor: the configuration file shall be read again."""
        self._words[self._wanted] += 1

    @property
    def reload_requests(self) -> int:
        """The number of requests for a reload so far."""
        return self._words[self._wanted]

    @property
    def reload_is_due(self) -> bool:
        """Whether a request was not served yet. Costs two reads of memory."""
        return self._words[self._wanted] != self._words[self._served]

    @property
    def reload_was_refused(self) -> bool:
        """Whether the file could not be used at the last reload."""
        return bool(self._words[self._refused])

    def reloaded(self, request: int, refused: bool) -> None:
        """Called in the coordinator: the requests up to this one are served."""
        self._words[self._refused] = refused
        self._words[self._served] = request
