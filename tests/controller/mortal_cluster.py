"""A controller with a real store and a real partition table in this process, which can die at any step."""

import os
import random
from contextlib import contextmanager
from pathlib import Path

from odradek._ext.partition import append_files, slots
from odradek._ext.shm import arena
from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.shm.slot import SlotState
from odradek._ext.shm.topics import TopicDirectory
from odradek.config.broker_config import resolve
from odradek.config.listeners import Listener
from odradek.controller.controller import Controller
from odradek.controller.partitions import LocalPartitions
from odradek.metadata.cluster import ensure_cluster_id, register_broker
from odradek.metadata.sqlite import FILE_NAME, SqliteStore
from odradek.metadata.store import Session
from odradek.metadata.znodes import BrokerRegistration
from odradek.shm.partition_table import PartitionTable

BROKER = 1


class Death(BaseException):
    """Simulates the death of the process."""


class MortalStore(SqliteStore):
    """A store whose process dies before (or after) the n-th transaction: `lives` counts down; None: it never dies."""

    lives = None
    after = False

    def _count_down(self, after):
        if self.lives is not None and self.after is after:
            self.lives -= 1
            if self.lives < 0:
                raise Death

    def transaction(self):
        transaction = super().transaction()
        commit = transaction.commit

        def mortal_commit():
            self._count_down(False)
            results = commit()
            self._count_down(True)
            return results

        transaction.commit = mortal_commit
        return transaction


class MortalTable(PartitionTable):
    """A partition table whose writer dies before the n-th change."""

    lives = None

    def _count_down(self):
        if self.lives is not None:
            self.lives -= 1
            if self.lives < 0:
                raise Death

    def create(self, *arguments, **options):
        self._count_down()
        return super().create(*arguments, **options)

    def open(self, *arguments, **options):
        self._count_down()
        return super().open(*arguments, **options)

    def delete(self, slot):
        self._count_down()
        super().delete(slot)

    def forget(self, gone):
        self._count_down()
        super().forget(gone)

    def announce(self, changed):
        self._count_down()
        return super().announce(changed)


class Cluster:
    """One broker: the store file, the shared memory and the log directories, and its successive controllers."""

    def __init__(self, path: Path, settings=(), max_slots=64):
        self.data = [path / f"data-{n}" for n in range(2)]
        for directory in self.data:
            directory.mkdir()
        self.max_slots = max_slots
        self._descriptors = []
        self.boot()
        rows = [("broker.id", str(BROKER), ""), ("log.dirs", ",".join(map(str, self.data)), ""), *settings]
        self.config = resolve(rows)
        self.path = self.data[0] / FILE_NAME
        self.stores = []

    def boot(self, kind=ProcessKind.COORDINATOR):
        """Create shared memory as when the broker starts; this process is the process of `kind` in it."""
        self.shm = SharedMemory(self.max_slots, 1 << 20)
        for directory in self.data:
            self._descriptors.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY))
            self.shm.add_log_dir(self._descriptors[-1])
        self.shm.enter(self.shm.add_process(kind))
        self.shm.broker_id = BROKER
        append_files.limit_append_files(64)
        arena.initialise_arena()

    def open(self):
        """Start a coordinator, which is not the controller yet."""
        self.store = MortalStore(self.path)
        self.stores.append(self.store)
        self.store.begin_session(Session(5, b"boot"))
        ensure_cluster_id(self.store, None)
        endpoints = [Listener("PLAINTEXT", "h", 9092, "PLAINTEXT")]
        register_broker(self.store, BROKER, BrokerRegistration(endpoints, None, 1))
        self.table = MortalTable(self.shm, self.data)
        online = lambda index: not self.shm.log_dir_offline(index)  # noqa: E731
        self.partitions = LocalPartitions(self.table, self.config, BROKER, online)
        self.controller = Controller(self.store, self.partitions, self.config, BROKER, random.Random(0))
        return self.controller

    def succeed(self):
        """Replace the coordinator by a successor, which becomes the controller."""
        self.store.close()
        self.open().become_controller()
        return self.controller

    def close(self):
        """Close the stores and the descriptors."""
        for store in self.stores:
            store.close()
        while self._descriptors:
            os.close(self._descriptors.pop())

    def directories(self):
        """Names of all partition directories."""
        return sorted(path.name for directory in self.data for path in directory.iterdir() if path.is_dir())

    def served(self):
        """{topic: online partitions} in the view of a new worker."""
        directory = TopicDirectory()
        directory.refresh()
        return {
            name.decode(): [p for p, slot in topic.partitions() if slots.state_of(slot) == SlotState.SLOT_ONLINE]
            for name, topic in directory.by_name.items()
        }


@contextmanager
def single_broker(path):
    """Yield a function that creates clusters of one broker with an active controller; close them at the end."""
    clusters = []

    def make(settings=(), **options):
        place = path / str(len(clusters))
        place.mkdir()
        clusters.append(Cluster(place, settings, **options))
        clusters[-1].open().become_controller()
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()
