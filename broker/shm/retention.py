"""Retention: which of the oldest segments go, by time, by size and by log start offset, and the removal of their files.

Runs in the cleaner. A log start offset is raised and made durable before a file is renamed (`<file>.deleted`, under the
slot's lock), and a renamed file stays for file.delete.delay.ms: a reader that has it open finishes, one that comes later is
told OFFSET_OUT_OF_RANGE. What a cleaner that died left half done is finished by whoever takes the slot's lock next; its
renamed files are found by its successor, which looks through every directory once.
"""

import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import broker._ext.log_start as native
from broker._ext.faults import FaultPoint
from broker._ext.removed_files import announce_removed_files
from broker._ext.shared import DiskState, SharedMemory
from broker.shm.checkpoints import write_log_starts
from broker.storage.checkpoints import CorruptCheckpointError
from broker.storage.file_names import DELETED, LOG, TIME_INDEX, parse_segment_file_name, segment_file_name
from broker.storage.indexes import TIME_ENTRY

log = logging.getLogger(__name__)

Facts = dict[str, Any]
SEGMENTS_A_LOCK = 16
LOOKED_THROUGH_AT_ONCE = 500
FULL = (errno.ENOSPC, errno.EDQUOT)


class Segment:
    """A segment as retention sees it; size and time of one that nobody appends to are read when they are first asked for.

    :param active: the slot's facts if it is the active segment.
    """

    def __init__(self, directory: str | Path, base_offset: int, active: Facts | None = None) -> None:
        self.base_offset = base_offset
        self._log = f"{directory}/{segment_file_name(base_offset, LOG)}"
        self._time_index = f"{directory}/{segment_file_name(base_offset, TIME_INDEX)}"
        self._active = active

    @cached_property
    def size(self) -> int:
        """Bytes of its log. Raises OSError."""
        return int(self._active["size"]) if self._active is not None else Path(self._log).stat().st_size

    @cached_property
    def largest_timestamp_ms(self) -> int:
        """Of its records; where these have none, when the file was last written. Raises OSError."""
        largest = int(self._active["max_timestamp"]) if self._active is not None else self._last_time_entry()
        return largest if largest >= 0 else Path(self._log).stat().st_mtime_ns // 1_000_000

    def _last_time_entry(self) -> int:
        try:
            descriptor = os.open(self._time_index, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1
        try:
            entries = os.fstat(descriptor).st_size // TIME_ENTRY.size
            last = os.pread(descriptor, TIME_ENTRY.size, (entries - 1) * TIME_ENTRY.size) if entries else b""
        finally:
            os.close(descriptor)
        return int(TIME_ENTRY.unpack(last)[0]) if len(last) == TIME_ENTRY.size else -1


def expired(segments: Sequence[Segment], facts: Facts, now_ms: int) -> tuple[int, str]:
    """How many of the oldest segments are removed, and why, for the log. Kafka's rules, with one exception: an active segment
    with all of its records below the log start offset is removed too; Kafka keeps it until it is rolled.

    An empty active segment is never removed, nor is a record that is not committed.

    :param segments: all of the log, ascending; the last one is the active one.
    :raises OSError: a file could not be read.
    """

    def while_met(count: int, met: Callable[[int], bool]) -> int:
        while count < len(segments):
            is_last = count == len(segments) - 1
            end = facts["log_end_offset"] if is_last else segments[count + 1].base_offset
            if facts["high_watermark"] < end or (is_last and segments[count].size == 0) or not met(count):
                break
            count += 1
        return count

    def before_log_start(number: int) -> bool:
        is_last = number == len(segments) - 1
        end = facts["log_end_offset"] if is_last else segments[number + 1].base_offset
        return bool(end <= facts["log_start_offset"])

    count = while_met(0, before_log_start)
    reasons = ["log start offset"] if count else []
    if facts["delete"] and facts["retention_bytes"] >= 0:
        excess = sum(segment.size for segment in segments[count:]) - facts["retention_bytes"]

        def in_excess(number: int) -> bool:
            nonlocal excess
            excess -= segments[number].size
            return excess >= 0

        if excess >= 0 and (more := while_met(count, in_excess)) > count:
            count = more
            reasons.append(f"retention.bytes={facts['retention_bytes']}")
    if facts["delete"] and facts["retention_ms"] >= 0:
        oldest_ms = now_ms - facts["retention_ms"]
        more = while_met(count, lambda number: segments[number].largest_timestamp_ms < oldest_ms)
        if more > count:
            count = more
            reasons.append(f"retention.ms={facts['retention_ms']}")
    return count, ", ".join(reasons)


def _name(facts: Facts) -> str:
    return f"{facts['topic']}-{facts['partition']}"


@dataclass(slots=True)
class _Listed:
    """What a partition's directory held when its slot had this generation. One is kept of each log."""

    generation: int
    bases: tuple[int, ...]
    aside: dict[str, float] | None  # renamed files, if any: since when, seconds since the epoch


@dataclass
class _Removal:
    slot: int
    incarnation: int
    log_dir: int
    bases: list[int]
    """Of the segments that go, ascending, and of the first one that stays."""
    sizes: list[int]
    """Bytes of the `.log` of those that go."""


class Retention:
    """One a cleaner. :param log_dirs: paths in the order in which the supervisor announced them."""

    def __init__(self, shm: SharedMemory, log_dirs: Sequence[Path]) -> None:
        self._shm = shm
        self._log_dirs = [Path(path) for path in log_dirs]
        self._listed: dict[int, _Listed] = {}
        self._generations: list[int] = []
        self.removed_segments = self.removed_bytes = self.deleted_files = 0

    def run(self, now_ms: int | None = None) -> None:
        """Take out of every log what has expired, then delete files that were taken out before.

        :param now_ms: wall clock; None: the present.
        """
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        removals = []
        for slot in range(self._shm.slots_used):
            try:
                removal = self._plan(slot, now_ms)
            except OSError as error:
                log.error("retention cannot look at slot %d: %s", slot, error)
                continue
            if removal is not None:
                removals.append(removal)
            self._shm.beat()
        if removals:
            lasting = self._make_durable({removal.log_dir for removal in removals})
            for removal in removals:
                if removal.log_dir in lasting:
                    self._remove(removal)
                self._shm.beat()
        self.remove_files(now_ms)

    def _directory(self, facts: Facts) -> str:
        # not a Path: each puts its parts into the process's table of strings, which ten thousand logs make a megabyte larger
        return f"{self._log_dirs[facts['log_dir']]}/{_name(facts)}"

    def _list(self, slot: int, facts: Facts) -> _Listed:
        """The directory's content, from before if the slot's generation is still the same. Raises OSError."""
        known = self._listed.get(slot)
        if known is not None and known.generation == facts["generation"]:
            return known
        if known is None:
            native.settle_intent(slot)  # of a cleaner that died: what it renamed is to be seen now
        bases: list[int] = []
        aside: dict[str, float] = {}
        with os.scandir(self._directory(facts)) as entries:
            for entry in entries:
                parsed = parse_segment_file_name(entry.name)
                if parsed is None:
                    continue
                if parsed.state == DELETED:
                    aside[entry.path] = entry.stat().st_ctime
                elif parsed.kind == LOG and not parsed.state:
                    bases.append(parsed.base_offset)
        found = self._listed[slot] = _Listed(facts["generation"], tuple(sorted(bases)), aside or None)
        return found

    def _plan(self, slot: int, now_ms: int) -> _Removal | None:
        """Decide, roll an active segment that goes, raise the log start offset; what is to be removed once that is durable."""
        facts = native.facts(slot)
        if facts is None or self._shm.log_dir_offline(facts["log_dir"]):
            return None
        try:
            bases = [base for base in self._list(slot, facts).bases if base <= facts["segment_base"]]
            if not bases or bases[-1] != facts["segment_base"]:
                return None  # the log changed meanwhile: the next pass sees it
            directory = self._directory(facts)
            segments = [Segment(directory, base, facts if base == facts["segment_base"] else None) for base in bases]
            count, why = expired(segments, facts, now_ms)
        except FileNotFoundError:
            newer = native.facts(slot)
            if newer is None or newer["generation"] != facts["generation"]:
                return None  # deleted, compacted or cut meanwhile
            raise
        if not count:
            return None
        if count == len(bases):
            end = facts["log_end_offset"]
            if native.roll(slot, facts["segment_base"], end, incarnation=facts["incarnation"]) == "ok":
                bases.append(end)
            else:  # somebody appended: it has not expired after all
                count -= 1
        if not count:
            return None
        told, log_start = native.advance(slot, bases[count], incarnation=facts["incarnation"])
        if told != "ok":
            log.info("%s: nothing removed, the log is %s", _name(facts), told)
            return None
        log.info(
            "%s: %d segment(s) below offset %d go by %s; the log begins at offset %d",
            _name(facts), count, bases[count], why, log_start,
        )  # fmt: skip
        sizes = [segment.size for segment in segments[:count]]
        return _Removal(slot, facts["incarnation"], facts["log_dir"], bases[: count + 1], sizes)

    def _make_durable(self, numbers: set[int]) -> set[int]:
        """Log start offsets first: with the files gone a start must not take an older one for the truth. The log directories
        (of those with these numbers) in which segments may go now."""
        lasting = set()
        for number in sorted(numbers):
            try:
                write_log_starts(self._shm, self._log_dirs, only=number)
            except (OSError, CorruptCheckpointError) as error:
                log.error("log start offsets of %s cannot be written: %s", self._log_dirs[number], error)
                if not isinstance(error, OSError) or error.errno not in FULL:
                    continue
                # Only removal makes room, and a log whose oldest segments are gone says itself where it begins.
            lasting.add(number)
        native.meet_fault(FaultPoint.REMOVE_LOG_START_DURABLE)
        return lasting

    def _remove(self, removal: _Removal) -> None:
        """Rename the files, some segments under each hold of the lock, oldest first."""
        for first in range(0, len(removal.bases) - 1, SEGMENTS_A_LOCK):
            last = min(first + SEGMENTS_A_LOCK, len(removal.bases) - 1)
            try:
                told = native.remove_before(removal.slot, removal.bases[last], incarnation=removal.incarnation)
            except OSError as error:
                log.error("segments of slot %d cannot be removed, the next pass goes on: %s", removal.slot, error)
                return
            if told != "ok":
                log.info("segments of slot %d stay until the next pass: the log is %s", removal.slot, told)
                return
            self.removed_segments += last - first
            self.removed_bytes += sum(removal.sizes[first:last])

    def remove_files(self, now_ms: int | None = None) -> None:
        """Delete files that were renamed to `.deleted` (by retention, compaction or a start) once file.delete.delay.ms have
        passed, or at once where the log directory is low on room or full.
        """
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        generations = native.generations()
        if generations == self._generations and not any(listed.aside for listed in self._listed.values()):
            return
        before = self.deleted_files
        try:
            self._remove_files(generations, now_ms)
        finally:
            if self.deleted_files != before:
                announce_removed_files()

    def _remove_files(self, generations: list[int], now_ms: int) -> None:
        disks = [self._shm.disk(number)[0] for number in range(len(self._log_dirs))]
        room = LOOKED_THROUGH_AT_ONCE if all(disk == DiskState.DISK_ROOMY for disk in disks) else len(generations)
        for slot, generation in enumerate(generations):
            listed = self._listed.get(slot)
            if generation < 0:
                self._listed.pop(slot, None)
                continue
            if listed is not None and listed.generation == generation and not listed.aside:
                continue
            facts = native.facts(slot)
            if facts is None or self._shm.log_dir_offline(facts["log_dir"]):
                continue
            if listed is None or listed.generation != facts["generation"]:
                room -= 1
                if room < 0:
                    return  # the next pass goes on
            try:
                delay_ms = facts["file_delete_delay_ms"] if disks[facts["log_dir"]] == DiskState.DISK_ROOMY else None
                self._remove_aside(self._list(slot, facts), now_ms, delay_ms)
            except OSError as error:
                log.error("files of slot %d that were taken out of its log stay: %s", slot, error)
            self._shm.beat()
        self._generations = generations

    def _remove_aside(self, listed: _Listed, now_ms: int, delay_ms: int | None) -> None:
        aside = listed.aside or {}
        for path, since in list(aside.items()):
            if delay_ms is not None and now_ms - since * 1000 < delay_ms:
                continue
            Path(path).unlink(missing_ok=True)  # it may have gone with its directory
            native.meet_fault(FaultPoint.REMOVE_FILE_UNLINKED)
            self.deleted_files += 1
            del aside[path]
