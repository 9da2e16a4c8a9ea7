"""Finds logs of partitions that this broker does not have: the topic is gone, or other brokers have the partition. The broker
neither serves nor deletes such logs.

They stay where a broker was down while its replica was removed or its topic deleted, and after directories were copied by hand.
Only an operator knows whether somebody needs their records. Logs that the broker has set aside itself have another name
(`storage/stray_logs.py`). Runs in the cleaner.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek._ext.partition import slot_facts, slots
from odradek._ext.shm import brokers, views
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.shm.slot import Role, SlotState
from odradek.storage.file_names import (
    CLUSTER_METADATA,
    ForeignNameError,
    parse_directory_name,
    partition_directory_name,
)

log = logging.getLogger("odradek.cleaner")

UNKNOWN = "the broker knows no such partition"


class UnassignedLogs:
    """Looks for them. A log counts when two looks in a row have found it, because topics change while it looks."""

    def __init__(self, shm: SharedMemory, log_dirs: Sequence[Path], broker_id: int) -> None:
        self._shm = shm
        self._log_dirs = log_dirs
        self._broker_id = broker_id
        self._found: Mapping[str, str] = {}
        self._reported: Mapping[str, str] = {}

    def look(self) -> dict[str, str]:
        """Look once. Returns the reasons by path; also why a log directory cannot be read. It finds nothing before the
        controller of a cluster has sent all partitions."""
        found: dict[str, str] = {}
        failures: dict[str, str] = {}
        if brokers.published() or not brokers.clustered():
            used, unused = self._assigned()
            for number, path in enumerate(self._log_dirs):
                if self._shm.log_dir_offline(number):
                    continue
                try:
                    found |= _left_in(path, used[number], unused)
                except OSError as error:
                    log.error("cannot look for unassigned logs: %s; retrying in the next pass", error)
                    failures[str(path)] = f"cannot look for unassigned logs: {error}"
        twice = {path: reason for path, reason in found.items() if path in self._found}
        self._found = found
        added = sorted(twice.keys() - self._reported.keys())
        if added:
            log.warning(
                "%d logs are not assigned to this broker, which neither serves nor deletes them; new is %s%s: %s; if nobody "
                "needs their records, delete them while the broker is stopped",
                len(twice), added[0], f" and {len(added) - 1} more" if added[1:] else "", twice[added[0]],
            )  # fmt: skip
        self._reported = twice
        return twice | failures

    def _assigned(self) -> tuple[list[set[str]], dict[str, str]]:
        """The names of the directories that are in use, by log directory, and why directories of other names are not, if the
        broker knows the partition. A replica is in use from its first role on: what shows its topic to clients comes later."""
        used: list[set[str]] = [set() for _ in self._log_dirs]
        unused: dict[str, str] = {}
        clustered = brokers.clustered()
        for topic, partition, slot in slots.in_use():
            name = partition_directory_name(topic, partition)
            replicas = views.view_of(slot).replicas if clustered else ()
            has_role = clustered and slot_facts.describe(slot).role != Role.ROLE_NONE
            if clustered and not has_role and self._broker_id not in replicas:
                if replicas:
                    unused[name] = f"the partition is assigned to other brokers: {', '.join(map(str, replicas))}"
            elif slots.state_of(slot) != SlotState.SLOT_REMOTE:
                log_dir = slots.log_dir_of(slot)
                used[log_dir].add(name)
                unused[name] = f"the broker uses the log of this partition in {self._log_dirs[log_dir]}"
            else:
                unused[name] = "the broker could not open it, or has just got the partition"
        return used, unused


def _left_in(log_dir: Path, used: set[str], unused: Mapping[str, str]) -> dict[str, str]:
    """The logs of one log directory that are not in use, with the reasons by path. Raises OSError."""
    with os.scandir(log_dir) as entries:
        return {
            entry.path: unused.get(entry.name, UNKNOWN)
            for entry in entries
            if entry.name not in used and not entry.name.startswith(".") and _is_log(entry.name) and entry.is_dir()
        }


def _is_log(name: str) -> bool:
    """Whether a directory has the name of a log that is served. That of Kafka's KRaft controller is kept for a way back."""
    try:
        parsed = parse_directory_name(name)
    except ForeignNameError:
        return False
    return parsed.fate is None and parsed.topic != CLUSTER_METADATA
