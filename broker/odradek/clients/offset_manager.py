"""Which offset of a partition may be committed while its records are processed out of order.

The newest offset with everything before it processed: a crash then repeats what was not committed and loses nothing. Pure
state, one object a partition; the caller protects it. Source: the fifth document, on consumption at least once.
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
        """A record was fetched and will be processed. Raises ValueError for an offset that is not beyond all before."""
        if self._taken and offset <= self._taken[-1]:
            raise ValueError(f"offset {offset} after {self._taken[-1]}: offsets of a partition ascend")
        if self._position is not None and offset < self._position:
            raise ValueError(f"offset {offset} lies before {self._position}, up to which all is processed")
        self._taken.append(offset)

    def done(self, offset: int) -> None:
        """The record was processed. Raises KeyError for one that is not under way."""
        if offset in self._done or not self._is_taken(offset):
            raise KeyError(f"offset {offset} is not under way")
        self._done.add(offset)
        while self._taken and self._taken[0] in self._done:
            first = self._taken.popleft()
            self._done.discard(first)
            self._position = first + 1

    def is_rewind(self, offset: int) -> bool:
        """True for an offset that does not lie beyond all that came before: reading went back, as after a reset of offsets."""
        if self._taken:
            return offset <= self._taken[-1]
        return self._position is not None and offset < self._position

    def _is_taken(self, offset: int) -> bool:
        return bool(self._taken) and self._taken[0] <= offset <= self._taken[-1]

    @property
    def waiting(self) -> int:
        """Records taken and not yet below the committable position: what a crash would repeat at most, but for commits."""
        return len(self._taken)

    @property
    def to_commit(self) -> int | None:
        """The offset to commit (of the next record to be read), None if there is nothing new.

        Before anything was processed it is the offset of the first record taken: once that is committed a crash cannot let
        `auto.offset.reset` choose another beginning.
        """
        safe = self._position if self._position is not None else self._taken[0] if self._taken else None
        return safe if safe != self._committed else None

    @property
    def begun_uncommitted(self) -> bool:
        """True while records were taken and no offset at all was committed."""
        return self._committed is None and self.to_commit is not None

    def committed(self, offset: int) -> None:
        """A commit of this offset was acknowledged."""
        self._committed = offset
