"""The rules of retention: which of the oldest segments expire, and the question for the deletion policy.

Used in the cleaner. The rules read files and change nothing.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from odradek._ext.partition.slot_facts import SlotFacts
from odradek.cleaner.deletion_policy import LogView, Question
from odradek.storage.file_names import LOG, TIME_INDEX, segment_file_name
from odradek.storage.indexes import last_timestamp_of


class Segment:
    """A segment as retention sees it. Size and timestamp of a closed segment are read from disk at their first use.

    :param end_offset: the base offset of the next segment, or the log end offset.
    :param active: the slot's facts if it is the active segment, else None.
    """

    def __init__(
        self, directory: str | Path, base_offset: int, end_offset: int = -1, active: SlotFacts | None = None
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self._log = f"{directory}/{segment_file_name(base_offset, LOG)}"
        self._time_index = f"{directory}/{segment_file_name(base_offset, TIME_INDEX)}"
        self._active = active

    @property
    def is_active(self) -> bool:
        return self._active is not None

    @cached_property
    def size(self) -> int:
        """Bytes of its log file. Raises OSError."""
        return int(self._active.size) if self._active is not None else Path(self._log).stat().st_size

    @cached_property
    def newest_ms(self) -> int:
        """The largest timestamp of its records; -1 if they have none. Raises OSError."""
        return int(self._active.max_timestamp) if self._active is not None else self._last_time_entry()

    @cached_property
    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of its records, or the file's modification time if they have none. Raises OSError."""
        return self.newest_ms if self.newest_ms >= 0 else Path(self._log).stat().st_mtime_ns // 1_000_000

    def _last_time_entry(self) -> int:
        try:
            return last_timestamp_of(self._time_index)
        except FileNotFoundError:
            return -1


def period_of(segments: Sequence[Segment]) -> str:
    """From when the newest records of the first and of the last segment are, as text for a log line."""
    try:
        first, last = (shown_time(segment.newest_ms) for segment in (segments[0], segments[-1]))
    except (OSError, ValueError):
        return "of unknown times"
    return f"of {first}" if first == last else f"of {first} to {last}"


def shown_time(time_ms: int) -> str:
    """A timestamp of a record. Producers choose them, so they may be of any year."""
    if time_ms < 0:
        return "no time"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{time_ms} ms since 1970"


def expired(segments: Sequence[Segment], facts: SlotFacts, now_ms: int) -> tuple[int, str]:
    """How many of the oldest segments expire, and the reasons as text for a log line. These are Kafka's rules, with one
    exception: an active segment whose records are all below the log start offset expires, too; Kafka keeps it until it is
    rolled.

    An empty active segment never expires, and no segment with uncommitted records.

    :param segments: all segments of the log, ascending; the last one is the active segment.
    :raises OSError: a file could not be read.
    """

    def while_met(count: int, met: Callable[[int], bool]) -> int:
        while count < len(segments):
            is_last = count == len(segments) - 1
            end = facts.log_end_offset if is_last else segments[count + 1].base_offset
            if facts.high_watermark < end or (is_last and segments[count].size == 0) or not met(count):
                break
            count += 1
        return count

    def before_log_start(number: int) -> bool:
        is_last = number == len(segments) - 1
        end = facts.log_end_offset if is_last else segments[number + 1].base_offset
        return bool(end <= facts.log_start_offset)

    count = while_met(0, before_log_start)
    reasons = ["log start offset"] if count else []
    if facts.delete and facts.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[count:]) - facts.retention_bytes

        def in_excess(number: int) -> bool:
            nonlocal excess
            excess -= segments[number].size
            return excess >= 0

        if excess >= 0 and (more := while_met(count, in_excess)) > count:
            count = more
            reasons.append(f"retention.bytes={facts.retention_bytes}")
    if facts.delete and facts.retention_ms >= 0:
        oldest_ms = now_ms - facts.retention_ms
        more = while_met(count, lambda number: segments[number].largest_timestamp_ms < oldest_ms)
        if more > count:
            count = more
            reasons.append(f"retention.ms={facts.retention_ms}")
    return count, ", ".join(reasons)


def question_about(slot: int, facts: SlotFacts, segments: Sequence[Segment]) -> Question | None:
    """The question about a log for the deletion policy; None if the policy may delete nothing there."""
    most = 0
    while most < len(segments) - 1 and segments[most].end_offset <= facts.high_watermark:
        most += 1
    if not facts.delete or most == 0:
        return None
    view = LogView(
        facts.topic,
        facts.partition,
        tuple(segments),
        facts.log_start_offset,
        facts.high_watermark,
        facts.log_end_offset,
        {
            "cleanup.policy": ("compact", "delete") if facts.compact else ("delete",),
            "retention.ms": facts.retention_ms,
            "retention.bytes": facts.retention_bytes,
            "odradek.retention.exact": facts.exact_retention,
            "segment.bytes": facts.segment_bytes,
            "segment.ms": facts.segment_ms,
            "file.delete.delay.ms": facts.file_delete_delay_ms,
            "delete.retention.ms": facts.delete_retention_ms,
        },
    )
    return Question(slot, facts.incarnation, view, most)
