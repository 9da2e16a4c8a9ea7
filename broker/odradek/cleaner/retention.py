"""Retention: removes the oldest segments by time, by size, by log start offset, and by the operator's deletion policy.

Runs in the cleaner. The log start offset is raised and made durable before a file is renamed (`<file>.deleted`, under the
slot's lock). A renamed file stays for file.delete.delay.ms: a reader that has it open can finish, later readers receive
OFFSET_OUT_OF_RANGE. If the cleaner dies during a removal, the next process that takes the slot's lock completes it. The
successor of the cleaner lists every directory once and so finds the renamed files.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import odradek._ext.partition.log_start as native
import odradek._ext.partition.slot_facts as slot_facts
from odradek import clock
from odradek._ext.partition.removed_files import announce_removed_files
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.partition.slot_facts import SlotFacts
from odradek._ext.partition.slots import RESULT_TEXTS
from odradek._ext.shm.faults import FaultPoint
from odradek._ext.shm.layout import DiskState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.cleaner.deletion_policy import KEY, Answer, PolicyThread, Question
from odradek.cleaner.exact_retention import first_young_offset
from odradek.cleaner.retention_rules import Segment, expired, period_of, question_about, shown_time
from odradek.shm.checkpoints import write_log_starts
from odradek.shm.partition_names import partition_name
from odradek.storage.atomic_file import NO_ROOM
from odradek.storage.checkpoints import CorruptCheckpointError
from odradek.storage.file_names import DELETED, LOG, parse_segment_file_name, partition_directory_name

log = logging.getLogger("odradek.cleaner.retention")

SEGMENTS_PER_LOCK = 16
LISTINGS_PER_PASS = 500
FUTURE_MS = 86_400_000
"""A segment whose newest record is later than the present by this is never deleted in time: clocks do not differ by a day."""


def _name(facts: SlotFacts) -> str:
    return f"{facts.topic}-{facts.partition}"


@dataclass(slots=True)
class _Listing:
    """The content of a partition's directory when its slot had this generation. One is kept for each log."""

    generation: int
    bases: tuple[int, ...]
    aside: dict[str, int] | None  # renamed files, if any, with the monotonic time when they were first seen


@dataclass
class _Removal:
    slot: int
    incarnation: int
    log_dir: int
    bases: list[int]
    """The base offsets of the removed segments, ascending, and of the first one that stays."""
    sizes: list[int]
    """The bytes of the `.log` files of the removed segments."""


class Retention:
    """The retention of a cleaner process.

    :param log_dirs: paths in the order of the shared table's log directories.
    :param policy: calls the operator's deletion policy; None if none is configured.
    :param clock: monotonic time in ms, for file.delete.delay.ms: a step of the wall clock does not change the delay.
    """

    def __init__(
        self,
        shm: SharedMemory,
        log_dirs: Sequence[Path],
        policy: PolicyThread | None = None,
        clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._shm = shm
        self._clock = clock
        self._log_dirs = [Path(path) for path in log_dirs]
        self._policy = policy
        self._listed: dict[int, _Listing] = {}
        self._generations: list[int] = []
        self._kept: dict[str, str] = {}  # by partition: why the last check kept segments that would otherwise expire
        self._logged_future: set[tuple[str, int, str]] = set()
        self.removed_segments = self.removed_bytes = self.deleted_files = 0

    def run(self, now_ms: int | None = None) -> dict[str, str]:
        """Remove the expired segments of every log, then delete files whose delay is over. Returns the failures of the first.

        :param now_ms: wall clock; None for the present.
        """
        now_ms = clock.now_ms() if now_ms is None else now_ms
        removals = []
        self._kept = {}
        failures: dict[str, str] = {}
        questions: list[Question] = []
        for slot in range(self._shm.slots_used):
            try:
                removal = self._plan(slot, now_ms, questions)
            except (OSError, ValueError) as error:
                name = partition_name(slot)
                log.error("retention cannot read the log of %s: %s; retrying at the next check", name, error)
                failures[name] = f"retention cannot read the log: {error}"
                continue
            if removal is not None:
                removals.append(removal)
            self._shm.beat()
        failures |= self._carry_out(removals)
        if self._policy is not None:
            self._policy.ask(questions)
        self.remove_files()  # its own pass returns the failures
        return self._kept | failures

    def follow_policy(self) -> dict[str, str]:
        """Remove the segments that the deletion policy has chosen since the last call. Returns the failures, also those of the
        policy."""
        if self._policy is None:
            return {}
        self._policy.look()
        failures = self._policy.failures()
        removals = []
        for answer in self._policy.answers():
            try:
                removal = self._plan_answer(answer)
            except OSError as error:
                name = partition_name(answer.slot)
                log.error("cannot delete the segments that the deletion policy chose in %s: %s", name, error)
                failures[name] = f"cannot delete the segments that the deletion policy chose: {error}"
                continue
            if removal is not None:
                removals.append(removal)
        return failures | self._carry_out(removals)

    def _carry_out(self, removals: Sequence[_Removal]) -> dict[str, str]:
        """Make the log start offsets durable, then rename the files. Returns the failures."""
        if not removals:
            return {}
        failures = self._make_durable({removal.log_dir for removal in removals})
        for removal in removals:
            path = str(self._log_dirs[removal.log_dir])
            error = failures.get(path) or self._remove(removal)
            if error:
                failures[partition_name(removal.slot)] = error
            self._shm.beat()
        return failures

    def _directory(self, facts: SlotFacts) -> str:
        # Not a Path: a Path interns its parts, which for ten thousand logs would take a megabyte more.
        return f"{self._log_dirs[facts.log_dir]}/{partition_directory_name(facts.topic, facts.partition)}"

    def _list(self, slot: int, facts: SlotFacts) -> _Listing:
        """The directory's content; the former listing if the slot's generation is still the same. Raises OSError."""
        known = self._listed.get(slot)
        if known is not None and known.generation == facts.generation:
            return known
        if known is None:
            native.settle_intent(
                slot
            )  # complete the removal of a cleaner that died, so that this listing has its files
        bases: list[int] = []
        aside: dict[str, int] = {}
        seen = (known.aside if known is not None else None) or {}
        with os.scandir(self._directory(facts)) as entries:
            for entry in entries:
                parsed = parse_segment_file_name(entry.name)
                if parsed is None:
                    continue
                if parsed.state == DELETED:
                    aside[entry.path] = seen.get(entry.path, self._clock())
                elif parsed.kind == LOG and not parsed.state:
                    bases.append(parsed.base_offset)
        listing = self._listed[slot] = _Listing(facts.generation, tuple(sorted(bases)), aside or None)
        return listing

    def _segments(self, slot: int, facts: SlotFacts) -> list[Segment]:
        """All segments of the log, ascending, the active one last; empty if the log changed meanwhile. Raises OSError."""
        bases = [base for base in self._list(slot, facts).bases if base <= facts.segment_base]
        if not bases or bases[-1] != facts.segment_base:
            return []  # the next pass handles the log
        directory = self._directory(facts)
        ends = [*bases[1:], facts.log_end_offset]
        return [
            Segment(directory, base, end, facts if base == facts.segment_base else None)
            for base, end in zip(bases, ends, strict=True)
        ]

    def _plan(self, slot: int, now_ms: int, questions: list[Question]) -> _Removal | None:
        """Apply the rules to a log, roll an active segment that must be removed, and raise the log start offset. Returns the
        removal, which may be empty, to be carried out when the log start offset is durable.

        :param questions: receives the question about the log for the deletion policy.
        :raises OSError: a file could not be read.
        :raises ValueError: a segment is corrupt.
        """
        facts = slot_facts.of_open_log(slot)
        if facts is None or self._shm.log_dir_offline(facts.log_dir):
            return None
        try:
            segments = self._segments(slot, facts)
            count, why = expired(segments, facts, now_ms)
            first_offset = self._first_young(facts, segments[count:], now_ms)
            if not segments:
                raise ValueError(f"its directory does not contain the active segment, {facts.segment_base:020d}.log")
            self._note_future(facts, segments, count, now_ms)
        except (FileNotFoundError, ValueError):
            if self._has_changed(slot, facts):
                return None
            raise
        if first_offset >= 0 and self._has_changed(slot, facts):
            return None  # the offset may come from files of different generations
        if self._policy is not None and segments:
            question = question_about(slot, facts, segments[count:])
            if question is not None:
                questions.append(question)
        if count and count == len(segments):
            end = facts.log_end_offset
            result = native.roll(slot, facts.segment_base, end, incarnation=facts.incarnation)
            count -= (
                result != AppendResult.APPEND_OK
            )  # another process appended meanwhile, so the active segment has not expired
        keep = segments[count - 1].end_offset if count else -1
        return self._advance(slot, facts, segments[:count], keep, max(keep, first_offset), why)

    def _note_future(self, facts: SlotFacts, segments: Sequence[Segment], count: int, now_ms: int) -> None:
        """Note a log whose oldest segment retention.ms keeps because of a timestamp in the future, if no size limits the log.

        :param count: the number of segments that expire. :raises OSError: a file could not be read.
        """
        by_time_alone = facts.delete and facts.retention_ms >= 0 and facts.retention_bytes < 0
        if not by_time_alone or count == len(segments) or segments[count].newest_ms < now_ms + FUTURE_MS:
            return
        name, newest = _name(facts), shown_time(segments[count].newest_ms)
        self._kept[name] = (
            f"retention.ms keeps the segments from offset {segments[count].base_offset} on, because they contain a record of "
            f"{newest}, in the future; DeleteRecords or retention.bytes deletes them"
        )
        if (facts.topic, facts.partition, newest) not in self._logged_future:
            self._logged_future.add((facts.topic, facts.partition, newest))
            log.warning("%s: %s", name, self._kept[name])

    def _first_young(self, facts: SlotFacts, segments: Sequence[Segment], now_ms: int) -> int:
        """The log start offset by odradek.retention.exact, within the segments that stay; -1 if the setting is off or no
        record is young enough."""
        if not (facts.exact_retention and facts.delete and facts.retention_ms >= 0 and segments):
            return -1
        limit_ms = now_ms - facts.retention_ms
        offset = first_young_offset(self._directory(facts), segments, facts, limit_ms, self._shm.beat)
        return -1 if offset is None else min(offset, facts.high_watermark)

    def _has_changed(self, slot: int, facts: SlotFacts) -> bool:
        """Whether the log was deleted, compacted, truncated or rolled meanwhile."""
        newer = slot_facts.of_open_log(slot)
        return newer is None or newer.generation != facts.generation

    def _plan_answer(self, answer: Answer) -> _Removal | None:
        """Like `_plan`, for segments that the deletion policy chose. Raises OSError."""
        facts = slot_facts.of_open_log(answer.slot)
        if facts is None or facts.incarnation != answer.incarnation or self._shm.log_dir_offline(facts.log_dir):
            return None
        segments = self._segments(answer.slot, facts)
        leading = [segment for segment in segments if segment.base_offset < answer.keep]
        is_prefix = bool(leading) and leading[-1].end_offset == answer.keep and not leading[-1].is_active
        if not is_prefix or answer.keep > facts.high_watermark:
            return None  # the log changed since the policy was called: the next pass calls it again
        return self._advance(answer.slot, facts, leading, answer.keep, answer.keep, KEY)

    def _advance(
        self, slot: int, facts: SlotFacts, removed: Sequence[Segment], keep: int, log_start: int, why: str
    ) -> _Removal | None:
        """Raise the log start offset. Returns the removal to carry out when it is durable; None if there is nothing to do.

        :param removed: the segments to remove, oldest first. :param keep: the base offset of the first segment that stays.
        :raises OSError: a file could not be read.
        """
        if not removed and log_start <= facts.log_start_offset:
            return None
        result, reached = native.advance(slot, log_start, incarnation=facts.incarnation)
        if result != AppendResult.APPEND_OK:
            log.info("retention removes nothing from %s: the log is %s", _name(facts), RESULT_TEXTS[result])
            return None
        if removed:
            log.info(
                "%s: deleting %d segments below offset %d (%s) with records %s; the log start offset is now %d",
                _name(facts), len(removed), keep, why, period_of(removed), reached,
            )  # fmt: skip
        else:
            log.debug("%s: the log start offset is now %d (odradek.retention.exact)", _name(facts), reached)
        sizes = [segment.size for segment in removed]
        bases = [segment.base_offset for segment in removed] + [keep]
        return _Removal(slot, facts.incarnation, facts.log_dir, bases, sizes)

    def _make_durable(self, numbers: set[int]) -> dict[str, str]:
        """Write the log start offsets of the log directories with these numbers, before files are renamed: after the removal, a
        start must not use an older log start offset. Returns the directories in which no segment may be removed, and why."""
        failures = {}
        for number in sorted(numbers):
            try:
                write_log_starts(self._shm, self._log_dirs, only=number)
            except (OSError, CorruptCheckpointError) as error:
                log.error(
                    "cannot write the log start offsets of %s: %s; retrying at the next check",
                    self._log_dirs[number],
                    error,
                )
                # If the disk is full, only a removal frees space. A start takes the base of the first segment, which is
                # larger.
                if not isinstance(error, OSError) or error.errno not in NO_ROOM:
                    failures[str(self._log_dirs[number])] = f"cannot write the log start offsets: {error}"
        native.meet_fault(FaultPoint.REMOVE_LOG_START_DURABLE)
        return failures

    def _remove(self, removal: _Removal) -> str:
        """Rename the files, oldest first, `SEGMENTS_PER_LOCK` segments each time the lock is held. Returns why that failed, or
        an empty text."""
        for first in range(0, len(removal.bases) - 1, SEGMENTS_PER_LOCK):
            last = min(first + SEGMENTS_PER_LOCK, len(removal.bases) - 1)
            try:
                result = native.remove_before(removal.slot, removal.bases[last], incarnation=removal.incarnation)
            except OSError as error:
                name = partition_name(removal.slot)
                log.error("cannot remove segments of %s: %s; retrying at the next check", name, error)
                return f"cannot remove segments: {error}"
            if result != AppendResult.APPEND_OK:
                name = partition_name(removal.slot)
                log.info("segments of %s are kept until the next check: the log is %s", name, RESULT_TEXTS[result])
                return ""
            self.removed_segments += last - first
            self.removed_bytes += sum(removal.sizes[first:last])
        return ""

    def remove_files(self) -> dict[str, str]:
        """Delete the files that were renamed to `.deleted` by retention, compaction or a start: file.delete.delay.ms after this
        cleaner first saw them, or without delay if the log directory is low on space or full. Returns the failures.
        """
        generations = native.generations()
        if generations == self._generations and not any(listed.aside for listed in self._listed.values()):
            return {}
        before = self.deleted_files
        try:
            return self._remove_files(generations)
        finally:
            if self.deleted_files != before:
                announce_removed_files()

    def _remove_files(self, generations: list[int]) -> dict[str, str]:
        failures: dict[str, str] = {}
        disks = [self._shm.disk(number)[0] for number in range(len(self._log_dirs))]
        room = LISTINGS_PER_PASS if all(disk == DiskState.DISK_ROOMY for disk in disks) else len(generations)
        for slot, generation in enumerate(generations):
            listed = self._listed.get(slot)
            if generation < 0:
                self._listed.pop(slot, None)
                continue
            if listed is not None and listed.generation == generation and not listed.aside:
                continue
            facts = slot_facts.of_open_log(slot)
            if facts is None or self._shm.log_dir_offline(facts.log_dir):
                continue
            if listed is None or listed.generation != facts.generation:
                room -= 1
                if room < 0:
                    return failures  # the next pass continues
            try:
                delay_ms = facts.file_delete_delay_ms if disks[facts.log_dir] == DiskState.DISK_ROOMY else None
                self._remove_aside(self._list(slot, facts), delay_ms)
            except OSError as error:
                name = partition_name(slot)
                log.error(
                    "cannot delete the files of removed segments of %s: %s; retrying in the next pass", name, error
                )
                failures[name] = f"cannot delete the files of removed segments: {error}"
            self._shm.beat()
        self._generations = (
            [] if failures else generations
        )  # a directory that was not listed is listed in the next pass
        return failures

    def _remove_aside(self, listed: _Listing, delay_ms: int | None) -> None:
        aside, now_ms = listed.aside or {}, self._clock()
        for path, since_ms in list(aside.items()):
            if delay_ms is not None and now_ms - since_ms < delay_ms:
                continue
            Path(path).unlink(missing_ok=True)  # the whole directory may have been removed
            native.meet_fault(FaultPoint.REMOVE_FILE_UNLINKED)
            self.deleted_files += 1
            del aside[path]
