"""The settings that change while the broker runs, shared by all its processes in a memfd that is created before the first fork.

The coordinator's controller thread writes them from the metadata store; before the coordinator starts, the first loader does.
Every process reads them when it starts and when the version word has changed. See docs/decisions/0015-running-configuration.md.

The settings are JSON in `ConfirmedPages`. The writer publishes them, then wakes every process.
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
    """The settings changed at run time: for all brokers, for this broker, and the levels of its loggers, which are stored only
    here."""

    of_all: dict[str, str]
    of_broker: dict[str, str]
    loggers: dict[str, str]


NOTHING = Running({}, {}, {})


def encoded(of_all: Settings, of_broker: Settings, loggers: Settings) -> bytes:
    """Encode the settings for the shared copy. Raises TooManySettings."""
    fields = {"of_all": dict(of_all), "of_broker": dict(of_broker), "loggers": dict(loggers)}
    data = json.dumps(fields, separators=(",", ":")).encode()
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

    def publish(self, of_all: Settings, of_broker: Settings, loggers: Settings) -> int:
        """Publish these settings to every process. Returns their version. The caller must wake the processes. Raises
        TooManySettings."""
        return self._pages.publish(encoded(of_all, of_broker, loggers))

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
        for error in config.run_with(running.of_all, running.of_broker):
            log.error("ignoring a setting that was changed at run time: %s", error)
        self.set_levels(config, running.loggers)
        self.taken(version)
        return True

    def set_levels(self, config: BrokerConfig, changed: Settings) -> None:
        """Set the log levels of this process. :param changed: the levels that were changed at run time, by logger."""
        if changed != self._levels:
            apply_levels(config, changed)
            self._levels = dict(changed)

    def taken(self, version: int) -> None:
        """Confirm that this process uses `version`."""
        self._pages.taken(version)

    def wait_until_taken(self, version: int, indexes: Iterable[int], limit_s: float) -> list[int]:
        """See `ConfirmedPages`."""
        return self._pages.wait_until_taken(version, indexes, limit_s)
