"""The loggers of the broker: their stable names and their levels. See docs/operate/logs.md.

Every module logs under a name of this table, independent of the module's name. Levels have Kafka's names. A logger without a
level has the level of its parent: the parent of `odradek.cleaner` is `odradek`, whose parent is `root`. Levels come from the
configuration (`log.level`, `log.levels`) and, until the next start, from the BROKER_LOGGER resource. Pure functions;
`odradek.shm.log_levels` sets the levels.
"""

from collections.abc import Mapping

ROOT = "root"
LOGGERS = {
    ROOT: "All messages, including those of libraries.",
    "odradek": "The broker: the parent of all loggers below.",
    "odradek.supervisor": "Start and stop of the broker; processes that end and are restarted; the service manager.",
    "odradek.container": "Creation of the first topics of a container.",
    "odradek.imports": "Imports that are refused, because another version was installed while the broker runs.",
    "odradek.config": "Settings that change while the broker runs.",
    "odradek.connections": "Connections of clients: accepted, refused, closed, and why.",
    "odradek.security": "Logins: failures, and at DEBUG level successes; logins at other brokers; keys of identity providers.",
    "odradek.quotas": "Quotas of clients: limits that are late in a process, and a table of clients that is full.",
    "odradek.requests": "Requests of clients that fail in the broker.",
    "odradek.tls": "Certificates of listeners: replaced, refused, expired.",
    "odradek.forwarding": "Requests that workers forward to the coordinator.",
    "odradek.authorizer": "What access control lists denied (INFO) or allowed (DEBUG) to clients, in Kafka's words.",
    "odradek.controller": "Topics and partitions: created, changed, deleted; the metadata store; policies.",
    "odradek.metadata": "The connection to ZooKeeper.",
    "odradek.metadata.kazoo": "The messages of kazoo, the library of this connection.",
    "odradek.replication": "Roles of partitions in a cluster, in-sync replicas, requests of the controller.",
    "odradek.groups": "Consumer groups, their members and offsets.",
    "odradek.transactions": "Transactional ids, and the markers that end transactions.",
    "odradek.coordination": "Appends of the coordinator process that fail: records of internal topics, transaction markers.",
    "odradek.storage": "Files of logs and checkpoints: calls that fail, syncs.",
    "odradek.disks": "Free space on the disks; log directories that fail.",
    "odradek.loader": "Opening and recovery of logs when the broker starts.",
    "odradek.cleaner": "Passes of the cleaner: removal of deleted partitions, idle producers, leader epochs.",
    "odradek.cleaner.retention": "Segments deleted by time, by size, by DeleteRecords and by a deletion policy.",
    "odradek.cleaner.compaction": "Compaction of logs.",
    "odradek.reporter": "Metrics and health over HTTP.",
    "odradek.reporter.spool": "The usage spool.",
}
"""Logger names with their descriptions."""

LEVELS = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")
"""Kafka's level names, the most severe first."""


def parse_levels(entries: tuple[str, ...]) -> dict[str, str]:
    """Level by logger from `log.levels`, whose entries are LOGGER=LEVEL; the last entry of a logger takes precedence."""
    levels = {}
    for entry in entries:
        name, _, level = entry.partition("=")
        levels[name] = level.upper()
    return levels


def effective(own: Mapping[str, str]) -> dict[str, str]:
    """The level of every logger of the table. :param own: the result of `configured`, which contains the root logger."""
    levels = {}
    for name in LOGGERS:
        ancestor = name
        while ancestor not in own:
            ancestor = ancestor.rpartition(".")[0] or ROOT
        levels[name] = own[ancestor]
    return levels
