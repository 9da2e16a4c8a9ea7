"""Compaction of the logs with cleanup.policy=compact: the choice of the next log, the threads, and the cleaner checkpoint.

Runs in the cleaner, in separate threads (`log.cleaner.threads`), so that flush, retention and checkpoints are not delayed.
The native pass (`_ext/compaction/compactor.pyx`) works without the GIL and holds a slot's lock only to rename files. The
rules, the names and the file `cleaner-offset-checkpoint` are those of Kafka's LogCleaner and LogCleanerManager. Within the
process, `_lock` protects the choice of logs: each log has at most one thread.

Before a pass replaces the first segment, the log is synced up to the end of the pass, and the log's gap limit
(`_ext/partition/gap_limit.pxd`) is raised to there. Therefore compaction caused every gap below the limit, and a loss of power
every gap above it.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import odradek._ext.partition.flushing as flushing
import odradek._ext.partition.log_start as log_start
import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slot_upkeep as slot_upkeep
import odradek._ext.partition.slots as slots
from odradek import clock
from odradek._ext.compaction.compaction_log import CompactionAborted, CorruptSegmentError, take_lane
from odradek._ext.compaction.compactor import Compactor, MapTooSmallError, PassResult
from odradek._ext.partition.slot_facts import SlotFacts
from odradek._ext.partition.slots import SlotChanged
from odradek._ext.shm.faults import FaultPoint
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.storage.log_dirs import note_error
from odradek._ext.storage.segments import ANY_GAP
from odradek.config.broker_config import BrokerConfig
from odradek.shm.checkpoints import alone
from odradek.storage import compression, file_names, old_messages
from odradek.storage.atomic_file import NO_ROOM
from odradek.storage.checkpoints import CorruptCheckpointError, read_offset_checkpoint, write_offset_checkpoint
from odradek.storage.indexes import last_timestamp_of
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.cleaner.compaction")

MAX_TIMESTAMP_AT = 35  # in a batch's header
LARGEST_MAP_BYTES = (1 << 31) - 1
SMALLEST_BUFFER_BYTES = 1 << 16
LONGEST_WAIT_S = 3600.0
LOOK_EVERY_S = 0.5
NO_RATE = 1 << 50
"""From this rate on, in bytes per second, nothing is throttled."""
SYNC_WAIT_S = 10.0
SYNC_RETRY_S = 0.02
MIN_ROLL_INTERVAL_MS = 60_000
"""An active segment is rolled for max.compaction.lag.ms only if the segment itself is this old, or as old as that lag if that
is less. Otherwise records whose timestamps are old when they arrive would cause a roll at every look."""
OFTEN = 10
"""A log for which so many passes in a row ended early is not compacted."""
MILLION = 1_000_000


class Segment(NamedTuple):
    """A segment of a log. :param size: bytes of its `.log` file."""

    base_offset: int
    size: int


class _GivenUp(NamedTuple):
    """A log over which a pass failed."""

    incarnation: int
    name: str
    reason: str


class LogToClean(NamedTuple):
    """A log that may be compacted. Its records from `first_dirty_offset` to before `first_uncleanable_offset` are dirty.

    :param ratio: dirty bytes / (dirty bytes + clean bytes).
    :param overdue: whether max.compaction.lag.ms has passed for a dirty record.
    :param due: whether the log must be compacted now: it is overdue, or the ratio exceeds min.cleanable.dirty.ratio.
    """

    slot: int
    incarnation: int
    partition: TopicPartition
    log_dir: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    ratio: float
    overdue: bool
    due: bool


@dataclass
class _Listing:
    """The content of a partition's directory when its slot had this generation."""

    incarnation: int
    generation: int
    segments: list[Segment]
    largest_timestamps: dict[int, int] = field(default_factory=dict)
    first_timestamps: dict[int, int] = field(default_factory=dict)


class Throttle:
    """Limits the I/O of all threads together to `bytes_per_second`. A wait ends early when `stopping` is set.

    :param worked: called for each piece of I/O, before the wait.
    """

    def __init__(
        self, bytes_per_second: float, stopping: threading.Event, worked: Callable[[], None] = lambda: None
    ) -> None:
        self._rate = bytes_per_second
        self._stopping = stopping
        self._worked = worked
        self._lock = threading.Lock()
        self._free_at = 0.0

    def __call__(self, count: int, look: Callable[[], None]) -> None:
        """Account for `count` bytes; returns when the rate allows them.

        :param look: called every half second during the wait; an exception that it raises ends the wait.
        """
        self._worked()
        if self._rate >= NO_RATE:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + (count / self._rate if self._rate > 0 else LONGEST_WAIT_S)
            due = min(self._free_at, now + LONGEST_WAIT_S)
        while (left := due - time.monotonic()) > 0 and not self._stopping.wait(min(left, LOOK_EVERY_S)):
            look()


class CompactionSettings(NamedTuple):
    """The settings `log.cleaner.*` of the threads and their memory. str() returns them with their names."""

    enabled: bool
    threads: int
    map_bytes: int
    buffer_bytes: int
    load_factor: float
    backoff_s: float
    bytes_a_second: float

    def __str__(self) -> str:
        rate = "no limit" if self.bytes_a_second >= NO_RATE else f"{self.bytes_a_second:g}"
        return (
            f"log.cleaner.enable={str(self.enabled).lower()}, log.cleaner.threads={self.threads}, "
            f"log.cleaner.dedupe.buffer.size={self.map_bytes}, log.cleaner.io.buffer.size={self.buffer_bytes}, "
            f"log.cleaner.io.buffer.load.factor={self.load_factor:g}, log.cleaner.backoff.ms={self.backoff_s * 1000:.0f}, "
            f"log.cleaner.io.max.bytes.per.second={rate}"
        )

    @classmethod
    def of(cls, config: BrokerConfig) -> "CompactionSettings":
        """The settings of a configuration."""
        return cls(
            bool(config["log.cleaner.enable"]),
            config.integer("log.cleaner.threads"),
            config.integer("log.cleaner.dedupe.buffer.size"),
            config.integer("log.cleaner.io.buffer.size"),
            float(str(config["log.cleaner.io.buffer.load.factor"])),
            config.integer("log.cleaner.backoff.ms") / 1000,
            float(str(config["log.cleaner.io.max.bytes.per.second"])),
        )


class Compaction:
    """The compaction of a cleaner process. :param log_dirs: paths in the order of the shared table's log directories."""

    def __init__(self, config: BrokerConfig, shm: SharedMemory, log_dirs: Sequence[Path]) -> None:
        self._shm = shm
        self._log_dirs = [Path(path) for path in log_dirs]
        self.settings = CompactionSettings.of(config)
        self._enabled = self.settings.enabled
        self._thread_count = self.settings.threads
        self._map_bytes = self.settings.map_bytes
        self._buffer_bytes = self.settings.buffer_bytes
        self._load_factor = self.settings.load_factor
        self._backoff_s = self.settings.backoff_s
        self._stopping = threading.Event()
        self._throttle = Throttle(self.settings.bytes_a_second, self._stopping, self._note_work)
        self._lock = threading.Lock()
        self._swap_lock = threading.Lock()
        self._listings: dict[int, _Listing] = {}
        self._busy: set[int] = set()
        self._uncleanable: dict[int, _GivenUp] = {}  # by slot
        self._unreadable: dict[str, str] = {}  # by partition: why the last look could not read its log
        self._retried: dict[int, _GivenUp] = {}  # by slot: logs whose last pass failed and is tried again
        self._ended_early: dict[
            tuple[int, int], int
        ] = {}  # by slot and incarnation: passes since the last one that ended
        self._broken: dict[str, str] = {}  # by thread: the exception that its last turn raised
        self._compactors: list[Compactor] = []
        self._threads: list[threading.Thread] = []
        self.passes = 0
        self.worked_ms = clock.now_ms()
        """Unix time at which a thread has last looked for work, or read or written a piece of a log."""

    # -- threads --------------------------------------------------------------------------------------------------

    @property
    def runs(self) -> bool:
        """Whether it has threads: not if log.cleaner.enable is false or log.cleaner.threads is 0."""
        return self._enabled and self._thread_count > 0

    def start(self) -> None:
        """Start the threads, if there are any."""
        if not self.runs:
            return
        for number in range(self._thread_count):
            thread = threading.Thread(target=self._work, name=f"compaction-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Abort the passes under way, leaving each log consistent; returns when all threads have ended."""
        self._stopping.set()
        for compactor in list(self._compactors):
            compactor.abort()
        for thread in self._threads:
            thread.join()

    def make_compactor(self) -> Compactor:
        """The compactor of one thread. Raises ValueError or MemoryError if its map cannot be allocated."""
        threads = max(self._thread_count, 1)
        compactor = Compactor(
            min(self._map_bytes // threads, LARGEST_MAP_BYTES),
            self._load_factor,
            max(self._buffer_bytes // threads // 2, SMALLEST_BUFFER_BYTES),
            compression.decompress,
            compression.compress,
            old_messages.contents,
            old_messages.reduced,
            self._throttle,
            self._swap_lock,
        )
        self._compactors.append(compactor)
        return compactor

    def _work(self) -> None:
        compactor = None
        name = threading.current_thread().name
        while not self._stopping.is_set():
            try:
                if compactor is None:
                    compactor = self.make_compactor()
                busy = self.run_once(compactor)
                self._broken.pop(name, None)
            except Exception as error:  # a pass must not end its thread
                log.exception("compaction failed; retrying in %g s", self._backoff_s)
                self._broken[name] = f"compaction failed: {error!r}"
                busy = False
            if not busy:
                self._stopping.wait(self._backoff_s)

    def run_once(self, compactor: Compactor, now_ms: int | None = None) -> bool:
        """Compact the log that needs it most. Returns whether a log was due. :param now_ms: wall clock; None for the
        present."""
        now_ms = clock.now_ms() if now_ms is None else now_ms
        chosen = self.choose(now_ms)
        self._note_work()
        if chosen is None:
            return False
        try:
            return self._compact(compactor, chosen, now_ms)
        finally:
            with self._lock:
                self._busy.discard(chosen.slot)

    def _note_work(self) -> None:
        self.worked_ms = clock.now_ms()

    def _compact(self, compactor: Compactor, chosen: LogToClean, now_ms: int) -> bool:
        name = f"{chosen.partition[0]}-{chosen.partition[1]}"
        began = time.monotonic()
        try:
            self._make_durable(chosen)
            result = compactor.run(
                chosen.slot,
                incarnation=chosen.incarnation,
                first_dirty_offset=chosen.first_dirty_offset,
                first_uncleanable_offset=chosen.first_uncleanable_offset,
                now_ms=now_ms,
            )
            self._note(chosen, result.end_offset)
        except (CompactionAborted, SlotChanged, FileNotFoundError) as reason:
            log.info("compaction of %s ended early: %s", name, reason)
            key = chosen.slot, chosen.incarnation
            count = self._ended_early[key] = self._ended_early.get(key, 0) + 1
            if count >= OFTEN:
                text = f"{count} passes in a row ended early, the last one because {reason}"
                self._retried[chosen.slot] = _GivenUp(chosen.incarnation, name, text)
            return False
        except (CorruptSegmentError, MapTooSmallError) as error:
            self._give_up(chosen, name, str(error))
            return True
        except OSError as error:
            note_error(chosen.log_dir, error.errno or 0)
            if error.errno in NO_ROOM:
                log.error("compaction of %s has no disk space: %s; retrying", name, error)
                self._retried[chosen.slot] = _GivenUp(
                    chosen.incarnation, name, f"compaction has no disk space: {error}"
                )
                return False
            self._give_up(chosen, name, str(error))
            return True
        self._ended_early.pop((chosen.slot, chosen.incarnation), None)
        self._retried.pop(chosen.slot, None)
        self.passes += 1
        _report(name, result, time.monotonic() - began)
        return True

    def _make_durable(self, chosen: LogToClean) -> None:
        """Sync the log up to the end of the pass, then raise its gap limit to there.

        :raises CompactionAborted: the partition was deleted, or other processes sync the log continuously.
        :raises SlotChanged: the partition was deleted, or its log truncated.
        :raises OSError: a file could not be written or synced.
        """
        until = time.monotonic() + SYNC_WAIT_S
        take_lane()
        while True:
            facts = slot_facts.of_open_log(chosen.slot)
            if facts is None or facts.incarnation != chosen.incarnation:
                raise CompactionAborted("the partition was deleted or went offline")
            if facts.synced_base >= chosen.first_uncleanable_offset:
                break
            synced = flushing.flush(chosen.slot, whole=True, turn=self._swap_lock)
            if not synced and (time.monotonic() > until or self._stopping.wait(SYNC_RETRY_S)):
                raise CompactionAborted("other processes sync the log")
        slot_upkeep.raise_gap_limit(
            chosen.slot,
            chosen.first_uncleanable_offset,
            incarnation=facts.incarnation,
            truncations=facts.truncations,
            turn=self._swap_lock,
        )

    def _give_up(self, chosen: LogToClean, name: str, reason: str) -> None:
        with self._lock:
            reason_and_end = f"{reason}; the log is not compacted until the cleaner restarts"
            self._uncleanable[chosen.slot] = _GivenUp(chosen.incarnation, name, reason_and_end)
        log.error("cannot compact %s: %s; it is not compacted until the cleaner restarts", name, reason)

    def failures(self) -> dict[str, str]:
        """Which logs are not compacted, and why: those over which a pass has failed, which are skipped until the cleaner
        restarts, those that cannot be read, and those without disk space. "": a thread fails before it has chosen a log."""
        # Copies, without the lock, because a thread may hold it while it waits for a slow device.
        skipped = {
            found.name: found.reason
            for slot, found in [*self._retried.copy().items(), *self._uncleanable.copy().items()]
            if (facts := slot_facts.of_open_log(slot)) is not None
            and facts.compact
            and facts.incarnation == found.incarnation
        }
        broken = list(self._broken.copy().values())
        return self._unreadable | skipped | ({"": broken[0]} if broken else {})

    # -- the checkpoint -------------------------------------------------------------------------------------------

    def _path(self, log_dir: int) -> Path:
        return self._log_dirs[log_dir] / file_names.CLEANER_CHECKPOINT

    def _read(self, log_dir: int) -> dict[TopicPartition, int]:
        try:
            return read_offset_checkpoint(self._path(log_dir))
        except CorruptCheckpointError as error:
            log.error("cannot read the cleaner checkpoint of %s: %s; all its logs are compacted from their start",
                      self._log_dirs[log_dir], error)  # fmt: skip
            return {}

    def _note(self, chosen: LogToClean, offset: int) -> None:
        """Write to the cleaner checkpoint up to where a log is compacted, unless it was deleted meanwhile. Removes the lines of
        partitions that do not exist any more. Raises OSError."""
        path = self._path(chosen.log_dir)
        with alone(self._log_dirs[chosen.log_dir]):
            facts = slot_facts.of_open_log(chosen.slot)
            if facts is None or facts.incarnation != chosen.incarnation:
                return  # the line of a deleted partition would apply to the next partition of that name
            try:
                before = read_offset_checkpoint(path)
            except CorruptCheckpointError:
                before = {}  # already logged by `_read`
            present = {(topic, partition) for topic, partition, _ in slots.in_use()}
            after = {key: value for key, value in before.items() if key in present}
            after |= {chosen.partition: min(offset, facts.gap_limit)}
            if after != before:
                write_offset_checkpoint(path, after)
        log_start.meet_fault(FaultPoint.CLEANER_OFFSET_WRITTEN)

    # -- the choice -----------------------------------------------------------------------------------------------

    def choose(self, now_ms: int) -> LogToClean | None:
        """The due log with the largest share of dirty bytes; it is marked busy until its pass has ended. None if no log is
        due."""
        unreadable: dict[str, str] = {}
        with self._lock:
            checkpoints: dict[int, dict[TopicPartition, int]] = {}
            best: LogToClean | None = None
            for slot in range(self._shm.slots_used):
                facts = slot_facts.of_open_log(slot)
                if facts is None or not facts.compact or self._shm.log_dir_offline(facts.log_dir):
                    self._listings.pop(slot, None)
                    continue
                given_up = self._uncleanable.get(slot)
                if slot in self._busy or (given_up is not None and given_up.incarnation == facts.incarnation):
                    continue
                if facts.log_dir not in checkpoints:
                    checkpoints[facts.log_dir] = self._read(facts.log_dir)
                try:
                    candidate = self._judge(slot, facts, checkpoints[facts.log_dir], now_ms)
                except (FileNotFoundError, NotADirectoryError):
                    continue  # the log was deleted or truncated meanwhile: the next look handles it
                except OSError as error:
                    log.error("compaction skips %s-%d, which it cannot read: %s", facts.topic, facts.partition, error)
                    unreadable[f"{facts.topic}-{facts.partition}"] = f"compaction cannot read the log: {error}"
                    continue
                if candidate is not None and candidate.due and (best is None or candidate.ratio > best.ratio):
                    best = candidate
            if best is not None:
                self._busy.add(best.slot)
            self._unreadable = unreadable
            return best

    def _judge(
        self, slot: int, facts: SlotFacts, checkpoint: dict[TopicPartition, int], now_ms: int
    ) -> LogToClean | None:
        key = (facts.topic, facts.partition)
        start = facts.log_start_offset
        if facts.gap_limit == ANY_GAP:
            return None  # its gap limit must be set first (odradek.cleaner.gap_limits)
        facts = self._roll_if_overdue(slot, facts, now_ms)
        dirty = min(checkpoint.get(key, start), max(facts.gap_limit, start))
        if not start <= dirty <= facts.log_end_offset:
            if dirty > start or not facts.delete:
                log.warning("%s-%d: cleaner checkpoint %d is outside the log [%d, %d); compacting from the log start",
                            *key, dirty, start, facts.log_end_offset)  # fmt: skip
            dirty = start
        listing = self._list(slot, facts)
        directory = self._directory(facts)
        closed = [segment for segment in listing.segments if segment.base_offset < facts.segment_base]
        if not closed:
            return None  # the active segment alone: nothing to compact yet
        ends = [segment.base_offset for segment in closed[1:]] + [facts.segment_base]
        # Segments with dirty records, including the segment that contains the first one.
        fresh = [segment for segment, end in zip(closed, ends, strict=True) if end > dirty]
        uncleanable = min(facts.last_stable_offset, facts.high_watermark, facts.segment_base)
        if facts.min_compaction_lag_ms > 0:
            youngest = now_ms - facts.min_compaction_lag_ms
            for segment in fresh:
                if _largest_timestamp(directory, segment.base_offset, listing) > youngest:
                    uncleanable = min(uncleanable, segment.base_offset)
                    break
        # Whole segments only: the segment that contains the offset is not compacted.
        uncleanable = max(uncleanable, dirty)
        border = next((segment.base_offset for segment, end in zip(closed, ends, strict=True) if end > uncleanable),
                      facts.segment_base)  # fmt: skip
        dirty_bytes = sum(segment.size for segment in fresh if segment.base_offset < border)
        clean_bytes = sum(segment.size for segment in closed if segment.base_offset < dirty)
        if border <= dirty or dirty_bytes == 0:
            return None
        overdue = False
        if facts.max_compaction_lag_ms < now_ms:
            limit = now_ms - facts.max_compaction_lag_ms
            overdue = any(0 < _first_timestamp(directory, segment.base_offset, listing) < limit for segment in fresh)
        ratio = dirty_bytes / (dirty_bytes + clean_bytes)
        due = overdue or ratio > facts.min_cleanable_dirty_millionths / MILLION
        return LogToClean(slot, facts.incarnation, key, facts.log_dir, dirty, border, ratio, overdue, due)

    def _roll_if_overdue(self, slot: int, facts: SlotFacts, now_ms: int) -> SlotFacts:
        """Roll an active segment whose first record is older than max.compaction.lag.ms, even if no more records arrive.
        Returns the slot's facts afterwards."""
        lag_ms = facts.max_compaction_lag_ms
        created_ms = facts.created_ms
        first_ms = facts.first_timestamp if facts.first_timestamp >= 0 else created_ms
        if facts.size == 0 or now_ms - first_ms <= lag_ms or now_ms - created_ms < min(lag_ms, MIN_ROLL_INTERVAL_MS):
            return facts
        with self._swap_lock:
            take_lane()
            log_start.roll(slot, facts.segment_base, facts.log_end_offset, incarnation=facts.incarnation)
        rolled = slot_facts.of_open_log(slot)
        return facts if rolled is None or rolled.incarnation != facts.incarnation else rolled

    def _directory(self, facts: SlotFacts) -> Path:
        return self._log_dirs[facts.log_dir] / file_names.partition_directory_name(facts.topic, facts.partition)

    def _list(self, slot: int, facts: SlotFacts) -> _Listing:
        """The directory's segments; the former listing if the generation is still the same. Raises OSError."""
        known = self._listings.get(slot)
        if known and known.generation == facts.generation and known.incarnation == facts.incarnation:
            return known
        segments = []
        with os.scandir(self._directory(facts)) as entries:
            for entry in entries:
                parsed = file_names.parse_segment_file_name(entry.name)
                if parsed is not None and parsed.kind == file_names.LOG and not parsed.state:
                    segments.append(Segment(parsed.base_offset, entry.stat().st_size))
        listing = _Listing(facts.incarnation, facts.generation, sorted(segments))
        self._listings[slot] = listing
        return listing


def _largest_timestamp(directory: Path, base_offset: int, listing: _Listing) -> int:
    """The largest timestamp of a closed segment, from its time index; if that is empty, the file's modification time."""
    if base_offset not in listing.largest_timestamps:
        timestamp = last_timestamp_of(directory / file_names.segment_file_name(base_offset, file_names.TIME_INDEX))
        if timestamp < 0:
            path = directory / file_names.segment_file_name(base_offset, file_names.LOG)
            timestamp = path.stat().st_mtime_ns // MILLION
        listing.largest_timestamps[base_offset] = timestamp
    return listing.largest_timestamps[base_offset]


def _first_timestamp(directory: Path, base_offset: int, listing: _Listing) -> int:
    """The largest timestamp of a segment's first batch, as in Kafka; if it has none, the file's modification time; -1 if the
    segment is empty."""
    if base_offset not in listing.first_timestamps:
        with (directory / file_names.segment_file_name(base_offset, file_names.LOG)).open("rb") as file:
            head = file.read(MAX_TIMESTAMP_AT + 8)
        timestamp = -1
        if len(head) == MAX_TIMESTAMP_AT + 8:
            at = MAX_TIMESTAMP_AT if head[16] == 2 else 18  # the timestamp of a message of format v1
            timestamp = int.from_bytes(head[at : at + 8], "big", signed=True) if head[16] else -1
            if timestamp < 0:
                path = directory / file_names.segment_file_name(base_offset, file_names.LOG)
                timestamp = path.stat().st_mtime_ns // MILLION
        listing.first_timestamps[base_offset] = timestamp
    return listing.first_timestamps[base_offset]


def _report(name: str, result: PassResult, seconds: float) -> None:
    megabytes = (result.bytes_read + result.map_bytes_read) / MILLION
    log.info(
        "compacted %s up to offset %d: %d of %d records kept, %.1f MB read in %.1f s, %d segments of %d%s",
        name, result.end_offset, result.records_kept, result.records_read, megabytes, seconds,
        result.segments_after, result.segments_before, "; the map of keys was full" if result.map_full else "",
    )  # fmt: skip
    if result.keyless:
        log.warning("compaction removed %d records without a key from %s", result.keyless, name)
