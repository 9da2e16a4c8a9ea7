"""Opening a log for Python: the result of `odradek._ext.storage.log_open` as an object, and its repairs as sentences.

A LoadedLog belongs to the thread that made it. The GIL is released while the log is opened, so several logs can be opened at a
time.
"""

import os
from collections import namedtuple

from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdint cimport INT64_MAX, int64_t
from posix.fcntl cimport O_CLOEXEC, O_DIRECTORY, O_RDONLY, open
from posix.unistd cimport close

from odradek._ext.shm.layout cimport region
from odradek._ext.storage.log_files cimport bytes_to_recover as measure
from odradek._ext.storage.log_open cimport load
from odradek._ext.storage.log_state cimport (
    ERROR_OFFSET_OVERFLOW,
    ERROR_TOO_LARGE,
    EVENT_COMPLETED_SWAP,
    EVENT_CORRUPT_EPOCHS,
    EVENT_CORRUPT_GAP_LIMIT,
    EVENT_CORRUPT_SNAPSHOT,
    EVENT_CUT_EPOCHS,
    EVENT_CUT_LOG,
    EVENT_CUT_TXN_INDEX,
    EVENT_GAP,
    EVENT_NOT_CLEAN,
    EVENT_PRUNED_PRODUCERS,
    EVENT_REBUILT_EPOCHS,
    EVENT_REBUILT_INDEXES,
    EVENT_REMOVED_LEFTOVER,
    EVENT_REMOVED_ORPHAN,
    EVENT_REMOVED_SEGMENT,
    EVENT_REMOVED_SNAPSHOT,
    EVENT_RESTARTED_LOG,
    EVENT_SHORTENED,
    EVENT_UNREADABLE,
    FILE_INDEX,
    FILE_LOG,
    FILE_SNAPSHOT,
    FILE_TIME_INDEX,
    FILE_TXN_INDEX,
    EpochEntry,
    Event,
    LoadedProducer,
    LogState,
    free_state,
    init_state,
)


# A value of cleaner_offset: offsets may be missing anywhere, unless the log's own file contains a limit.
ANY_GAP = INT64_MAX


class UnsupportedLogError(Exception):
    """A log that seems valid, but of a kind that this broker does not open."""


UNSUPPORTED = {
    ERROR_OFFSET_OVERFLOW: "it contains an offset more than 2^31-1 beyond its segment's base offset",
    ERROR_TOO_LARGE: "it contains a log file larger than 2^31-1 bytes",
}
EXTENSIONS = {
    FILE_LOG: ".log",
    FILE_INDEX: ".index",
    FILE_TIME_INDEX: ".timeindex",
    FILE_TXN_INDEX: ".txnindex",
    FILE_SNAPSHOT: ".snapshot",
}
SENTENCES = {
    EVENT_REMOVED_LEFTOVER: "removed {file}, left by a deletion or an interrupted compaction",
    EVENT_COMPLETED_SWAP: "renamed {file} to its final name, to complete an interrupted swap",
    EVENT_REMOVED_ORPHAN: "removed {file}, an index without a log",
    EVENT_REBUILT_INDEXES: "rebuilt the indexes of {file} up to offset {offset}, position {position}",
    EVENT_CUT_LOG: "cut {file} at offset {offset}, position {position}: {lost} bytes did not hold a sound batch",
    EVENT_REMOVED_SEGMENT: "removed segment {file} of {lost} bytes, because it follows the cut",
    EVENT_REMOVED_SNAPSHOT: "removed {file}, a producer snapshot that no start needs",
    EVENT_CUT_EPOCHS: "dropped {lost} leader epochs outside the log, which ends at offset {offset}",
    EVENT_CUT_TXN_INDEX: "cut {file} at position {position}: the last {lost} bytes were an incomplete entry",
    EVENT_UNREADABLE:
        "no valid batch in {file} at position {position}, offset {offset} or later; its last {lost} bytes are left unchanged",
    EVENT_RESTARTED_LOG:
        "the log ended at offset {offset}, before its start offset: removed all segments ({lost} bytes) and emptied the log",
    EVENT_NOT_CLEAN: "{file} is not valid although its directory was shut down cleanly: recovering it",
    EVENT_CORRUPT_EPOCHS: "leader-epoch-checkpoint is corrupt: the leader epochs were read from the batches",
    EVENT_GAP:
        "offsets {offset} to {position} are missing before a batch of {file}, not because of compaction: the log is cut before them",
    EVENT_SHORTENED:
        "the log ends at offset {offset}, {lost} offsets before its recovery point: records that were on the device are missing",
    EVENT_CORRUPT_GAP_LIMIT: "odradek-gaps-checkpoint is corrupt: batches after gaps between offsets are kept",
    EVENT_REBUILT_EPOCHS:
        "leader-epoch-checkpoint did not cover the log: the leader epochs were read from the batches from offset {offset} on",
    EVENT_CORRUPT_SNAPSHOT: "removed {file}, an incomplete producer snapshot: producers are restored from an older snapshot and the log",
    EVENT_PRUNED_PRODUCERS:
        "kept the {offset} newest producers and dropped {lost} older ones, because of odradek.producer.state.partition.max.producers",
}
SERIOUS = (EVENT_CORRUPT_SNAPSHOT, EVENT_PRUNED_PRODUCERS)
LoadEvent = namedtuple("LoadEvent", "message file base_offset offset position lost_bytes serious")
LoadEvent.__doc__ = """A change made while loading. `serious`: it may need attention, though no bytes of the log were lost."""
Producer = namedtuple(
    "Producer", "producer_id producer_epoch coordinator_epoch last_timestamp current_txn_first_offset batches"
)
ProducerBatch = namedtuple("ProducerBatch", "base_sequence last_sequence base_offset last_offset timestamp")


cdef class LoadedLog:
    """A log after its loading and any repairs. Offsets are absolute, positions and sizes in bytes, times in ms."""

    def __cinit__(self):
        init_state(&self.state)

    def __dealloc__(self):
        free_state(&self.state)

    def __getattr__(self, name) -> Any:
        """The plain numbers of LogState under their names there."""
        values = self.numbers()
        if name in values:
            return values[name]
        raise AttributeError(name)

    def numbers(self) -> dict[str, int | bool]:
        """All plain numbers of LogState as a dict."""
        cdef LogState* state = &self.state
        return {
            "log_start_offset": state.log_start_offset,
            "log_end_offset": state.log_end_offset,
            "recovery_point": state.recovery_point,
            "base_offset": state.base_offset,
            "size": state.size,
            "index_entries": state.index_entries,
            "timeindex_entries": state.timeindex_entries,
            "txnindex_entries": state.txnindex_entries,
            "last_index_offset": state.last_index_offset,
            "last_index_position": state.last_index_position,
            "last_timeindex_timestamp": state.last_timeindex_timestamp,
            "max_timestamp": state.max_timestamp,
            "offset_of_max_timestamp": state.offset_of_max_timestamp,
            "first_timestamp": state.first_timestamp,
            "total_bytes": state.total_bytes,
            "first_open_txn_offset": state.first_open_txn_offset,
            "newest_abort_offset": state.newest_abort_offset,
            "scanned_bytes": state.scanned_bytes,
            "lost_bytes": state.lost_bytes,
            "gap_limit": state.gap_limit,
            "shortened": bool(state.shortened),
            "created_ms": state.created_ms,
        }

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """[(leader epoch, start offset)], ascending."""
        cdef EpochEntry* items = <EpochEntry*>self.state.epochs.items
        return [(items[number].epoch, items[number].start_offset) for number in range(self.state.epochs.count)]

    @property
    def producers(self) -> list[Producer]:
        """The producers known at the log's end, including expired ones; batches oldest first."""
        cdef LoadedProducer* item
        producers = []
        for number in range(self.state.producers.count):
            item = <LoadedProducer*>self.state.producers.items + <int64_t>number
            batches = [
                ProducerBatch(
                    item.batches[kept].base_sequence,
                    item.batches[kept].last_sequence,
                    item.batches[kept].base_offset,
                    item.batches[kept].last_offset,
                    item.batches[kept].timestamp,
                )
                for kept in range(item.batch_count)
            ]
            producers.append(
                Producer(
                    item.producer_id,
                    item.producer_epoch,
                    item.coordinator_epoch,
                    item.last_timestamp,
                    item.current_txn_first_offset,
                    batches,
                )
            )
        return producers

    @property
    def events(self) -> list[LoadEvent]:
        """Everything that was removed, cut or rebuilt, in order, as LoadEvent; empty if no repair was necessary."""
        cdef Event* item
        events = []
        for number in range(self.state.events.count):
            item = <Event*>self.state.events.items + <int64_t>number
            name = f"{item.base_offset:020d}{EXTENSIONS.get(item.kind, '')}"
            message = SENTENCES[item.code].format(
                file=name, offset=item.offset, position=item.position, lost=item.lost_bytes
            )
            events.append(LoadEvent(
                message, name, item.base_offset, item.offset, item.position, item.lost_bytes, item.code in SERIOUS
            ))
        return events


def bytes_to_recover(path, int64_t recovery_point) -> int:
    """Number of bytes that `load_log` will read if the log was not closed in order; 0 without a directory. Raises OSError."""
    cdef bytes encoded = str(path).encode("utf-8", "surrogateescape")
    cdef const char* name = encoded
    cdef int64_t size
    cdef int directory
    with nogil:
        directory = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        size = -errno if directory < 0 else measure(directory, recovery_point)
        if directory >= 0:
            close(directory)
    if size == -ENOENT:
        return 0
    if size < 0:
        raise OSError(-size, "measuring the log", str(path))
    return size


def load_log(path, int64_t log_start_offset=0, int64_t recovery_point=0, bint clean=False,
             int64_t index_interval_bytes=4096, int64_t changes_allowed=-1, int64_t cleaner_offset=-1, int progress_dir=-1,
             int64_t producer_limit=0) -> LoadedLog:
    """Open the log of one partition and repair it if necessary; an empty directory gets a first segment.

    path: the partition's directory. log_start_offset, recovery_point: from the checkpoint files, 0 without an entry.
    clean: the broker was stopped in order. index_interval_bytes: the topic's index.interval.bytes.
    changes_allowed: for tests: loading ends with ECANCELED before the change on disk that exceeds this number.
    cleaner_offset: of the log in cleaner-offset-checkpoint, -1 without an entry, ANY_GAP if that is not known; together with
    odradek-gaps-checkpoint it determines where offsets may be missing (gap_limit.pxd).
    progress_dir: index of the log directory whose count of recovered bytes in the shared header is increased.
    producer_limit: most producers to keep, the most recent writers; 0: all.
    Returns a LoadedLog. Raises OSError, UnsupportedLogError (nothing is cut then).
    """
    cdef LoadedLog loaded = LoadedLog()
    cdef bytes encoded
    cdef const char* name
    cdef int error
    loaded.path = str(path)
    loaded.state.changes_left = changes_allowed
    loaded.state.producer_limit = producer_limit
    keys = os.urandom(16)
    loaded.state.hash_key[0] = int.from_bytes(keys[:8], "little")
    loaded.state.hash_key[1] = int.from_bytes(keys[8:], "little")
    if progress_dir >= 0:
        loaded.state.progress = &region().header.loading[progress_dir].bytes_recovered
    encoded = loaded.path.encode("utf-8", "surrogateescape")
    name = encoded
    with nogil:
        error = load(&loaded.state, name, log_start_offset, recovery_point, cleaner_offset, clean, index_interval_bytes)
    if error in UNSUPPORTED:
        raise UnsupportedLogError(f"{loaded.path}: {UNSUPPORTED[error]}")
    if error == -ENOMEM:
        raise MemoryError
    if error:
        raise OSError(-error, "opening the log", loaded.path)
    return loaded
