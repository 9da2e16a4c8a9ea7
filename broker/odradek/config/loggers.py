"""The loggers of the broker: their names, which are stable, and their levels. See docs/logs.md.

A module logs under a name of this table, whatever its own name is. Levels have Kafka's words. A logger without a level of
its own has that of its parent: `odradek.cleaner` that of `odradek`, which has that of `root`. Levels come from the
configuration (`log.level`, `log.levels`) and, until the next start, from the BROKER_LOGGER resource. Pure functions;
`odradek.shm.log_levels` sets the levels.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig

ROOT = "root"
LOGGERS = {
    ROOT: "All messages, including those of libraries.",
    "odradek": "The broker: the parent of all loggers below.",
    "odradek.supervisor": "Start and stop of the broker; processes that end and are restarted; the service manager.",
    "odradek.config": "Settings that change while the broker runs.",
    "odradek.connections": "Connections of clients: accepted, refused, closed, and why.",
    "odradek.requests": "Requests of clients that fail in the broker.",
    "odradek.forwarding": "Requests that workers forward to the coordinator.",
    "odradek.controller": "Topics and partitions: created, changed, deleted; the metadata store; policies.",
    "odradek.groups": "Consumer groups, their members and offsets.",
    "odradek.storage": "Files of logs and checkpoints: calls that fail, syncs.",
    "odradek.disks": "Free space on the disks; log directories that fail.",
    "odradek.loader": "Opening and recovery of logs at the start.",
    "odradek.cleaner": "Passes of the cleaner: removal of deleted partitions, idle producers, leader epochs.",
    "odradek.cleaner.retention": "Segments deleted by time, by size, by DeleteRecords and by a deletion policy.",
    "odradek.cleaner.compaction": "Compaction of logs.",
    "odradek.reporter": "Metrics and health over HTTP.",
    "odradek.reporter.spool": "The spool of usage.",
}
"""Name: what is logged there."""

LEVELS = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")
"""Kafka's words, the most severe first."""


def parse_levels(entries: tuple[str, ...]) -> dict[str, str]:
    """`log.levels`, whose entries are LOGGER=LEVEL; the last one of a logger counts."""
    found = {}
    for entry in entries:
        name, _, word = entry.partition("=")
        found[name] = word.upper()
    return found


def configured(config: "BrokerConfig", changed: Mapping[str, str]) -> dict[str, str]:
    """Level by logger, of those that have one of their own.

    :param changed: at run time; they come before those of the configuration.
    """
    entries = config["log.levels"]
    assert isinstance(entries, tuple)
    return {ROOT: config.text("log.level")} | parse_levels(entries) | dict(changed)


def effective(own: Mapping[str, str]) -> dict[str, str]:
    """The level of every logger of the table. :param own: as `configured` returns them, the root's among them."""
    found = {}
    for name in LOGGERS:
        at = name
        while at not in own:
            at = at.rpartition(".")[0] or ROOT
        found[name] = own[at]
    return found
