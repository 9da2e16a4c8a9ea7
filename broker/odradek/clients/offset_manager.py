"""Determines which offset of a partition may be committed while its records are processed out of order.

This is the newest offset below which all records are processed: a crash then repeats uncommitted records and loses none. Pure
state, one object per partition; the caller protects it.
"""

from collections import deque


class OffsetManager:
    """Offsets must be taken in ascending order; they may have gaps (compacted logs, transaction markers)."""

    def __init__(self) -> None:
        self._taken: deque[int] = deque()
        self._done: set[int] = set()
        self._position: int | None = None
        self._committed: int | None = None

    def take(self, offset: int) -> None:
        """Register a fetched record. Raises ValueError for an offset that is not above all earlier ones."""
        if self._taken and offset <= self._taken[-1]:
            raise ValueError(f"offset {offset} follows {self._taken[-1]}: offsets of a partition must ascend")
        if self._position is not None and offset < self._position:
            raise ValueError(
                f"offset {offset} is below {self._position}, before which all records are already processed"
            )
        self._taken.append(offset)

    def done(self, offset: int) -> None:
        """Mark a record as processed. Raises KeyError for an offset that is not being processed."""
        if offset in self._done or not self._is_taken(offset):
            raise KeyError(f"offset {offset} is not being processed")
        self._done.add(offset)
        while self._taken and self._taken[0] in self._done:
            first = self._taken.popleft()
            self._done.discard(first)
            self._position = first + 1

    def is_rewind(self, offset: int) -> bool:
        """Whether the offset is not above all earlier ones: the consumer went back, for example after an offset reset."""
        if self._taken:
            return offset <= self._taken[-1]
        return self._position is not None and offset < self._position

    def _is_taken(self, offset: int) -> bool:
        return bool(self._taken) and self._taken[0] <= offset <= self._taken[-1]

    @property
    def waiting(self) -> int:
        """Number of records that are taken and not yet below the committable position."""
        return len(self._taken)

    @property
    def to_commit(self) -> int | None:
        """The offset to commit (that of the next record to read); None if it is committed already.

        Before any record is processed, this is the offset of the first record: once it is committed, `auto.offset.reset`
        cannot choose another start after a crash.
        """
        safe = self._position if self._position is not None else self._taken[0] if self._taken else None
        return safe if safe != self._committed else None

    @property
    def begun_uncommitted(self) -> bool:
        """Whether records were taken and no offset was ever committed."""
        return self._committed is None and self.to_commit is not None

    def committed(self, offset: int) -> None:
        """Note that a commit of this offset was acknowledged."""
        self._committed = offset
