"""Tables: the states of a transactional id, the predecessors of each state, and what EndTxn does in each state."""

from __future__ import annotations

from enum import IntEnum

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas.transaction_records import STATES


class State(IntEnum):
    """The state of a transactional id; the values are the numbers in the log.

    DEAD is only a pending state, of ids that are being removed. This broker does not use PREPARE_EPOCH_FENCE: it raises the
    producer epoch in the record of PREPARE_ABORT.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


BY_NUMBER = tuple(State)
"""The states, by their number in the log."""
NAMES = STATES
"""Kafka's names of the states, by number."""

# Looked up once, because access to a member of an enumeration takes about as long as a short function.
EMPTY = State.EMPTY
ONGOING = State.ONGOING
PREPARE_COMMIT = State.PREPARE_COMMIT
PREPARE_ABORT = State.PREPARE_ABORT
COMPLETE_COMMIT = State.COMPLETE_COMMIT
COMPLETE_ABORT = State.COMPLETE_ABORT
DEAD = State.DEAD
PREPARE_EPOCH_FENCE = State.PREPARE_EPOCH_FENCE

PREVIOUS: dict[State, frozenset[State]] = {
    EMPTY: frozenset((EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)),
    ONGOING: frozenset((ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)),
    PREPARE_COMMIT: frozenset((ONGOING,)),
    PREPARE_ABORT: frozenset((ONGOING, PREPARE_EPOCH_FENCE, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)),
    COMPLETE_COMMIT: frozenset((PREPARE_COMMIT,)),
    COMPLETE_ABORT: frozenset((PREPARE_ABORT,)),
    DEAD: frozenset((EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)),
    PREPARE_EPOCH_FENCE: frozenset((ONGOING,)),
}
"""The predecessors of each state. PREPARE_ABORT follows EMPTY and COMPLETE_* only with transaction.version 2."""

IDLE = frozenset((EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT))
"""States without a transaction: a new one may begin, and the id may expire."""
COMPLETE_OF = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
"""The states in which the outcome is decided and markers are being written, each with the state that follows."""

_ABORT, _COMMIT = False, True
_RETRY, _CURRENT = True, False
_NONE = ErrorCode.NONE
_FENCED = ErrorCode.PRODUCER_FENCED
_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
_INVALID = ErrorCode.INVALID_TXN_STATE

END_1: dict[tuple[State, bool], ErrorCode | None] = {
    (EMPTY, _ABORT): _INVALID,
    (EMPTY, _COMMIT): _INVALID,
    (ONGOING, _ABORT): None,
    (ONGOING, _COMMIT): None,
    (PREPARE_COMMIT, _ABORT): _INVALID,
    (PREPARE_COMMIT, _COMMIT): _CONCURRENT,
    (PREPARE_ABORT, _ABORT): _CONCURRENT,
    (PREPARE_ABORT, _COMMIT): _INVALID,
    (COMPLETE_COMMIT, _ABORT): _INVALID,
    (COMPLETE_COMMIT, _COMMIT): _NONE,
    (COMPLETE_ABORT, _ABORT): _NONE,
    (COMPLETE_ABORT, _COMMIT): _INVALID,
}
"""The result of EndTxn 0 to 4 with the current epoch, by state and by whether it commits. None: the transaction is ended."""

END_2: dict[tuple[State, bool, bool], ErrorCode | None] = {
    (EMPTY, _ABORT, _RETRY): _FENCED,
    (EMPTY, _ABORT, _CURRENT): None,
    (EMPTY, _COMMIT, _RETRY): _FENCED,
    (EMPTY, _COMMIT, _CURRENT): _INVALID,
    (ONGOING, _ABORT, _RETRY): _FENCED,
    (ONGOING, _ABORT, _CURRENT): None,
    (ONGOING, _COMMIT, _RETRY): _FENCED,
    (ONGOING, _COMMIT, _CURRENT): None,
    (PREPARE_COMMIT, _ABORT, _RETRY): _INVALID,
    (PREPARE_COMMIT, _ABORT, _CURRENT): _FENCED,
    (PREPARE_COMMIT, _COMMIT, _RETRY): _CONCURRENT,
    (PREPARE_COMMIT, _COMMIT, _CURRENT): _FENCED,
    (PREPARE_ABORT, _ABORT, _RETRY): _CONCURRENT,
    (PREPARE_ABORT, _ABORT, _CURRENT): _FENCED,
    (PREPARE_ABORT, _COMMIT, _RETRY): _INVALID,
    (PREPARE_ABORT, _COMMIT, _CURRENT): _FENCED,
    (COMPLETE_COMMIT, _ABORT, _RETRY): _INVALID,
    (COMPLETE_COMMIT, _ABORT, _CURRENT): None,
    (COMPLETE_COMMIT, _COMMIT, _RETRY): _NONE,
    (COMPLETE_COMMIT, _COMMIT, _CURRENT): _INVALID,
    (COMPLETE_ABORT, _ABORT, _RETRY): _NONE,
    (COMPLETE_ABORT, _ABORT, _CURRENT): None,
    # The coordinator has aborted the transaction. After INVALID_TXN_STATE, Java clients would fail (KAFKA-20785).
    (COMPLETE_ABORT, _COMMIT, _RETRY): _FENCED,
    (COMPLETE_ABORT, _COMMIT, _CURRENT): _INVALID,
}
"""The result of EndTxn 5, by state, by whether it commits, and by whether it repeats a request that was executed. None: the
transaction is ended, and the producer epoch is raised."""
