"""The checker finds each anomaly in a history that contains it, and nothing in histories that Kafka allows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.transactions.checker.anomalies import Kind, anomalies
from tests.transactions.checker.cycles import cycles
from tests.transactions.checker.history import (
    History,
    Log,
    Outcome,
    Place,
    Poll,
    Reader,
    Record,
    Transaction,
    Value,
    Write,
)

A, B, OUT = Place("t", 0), Place("t", 1), Place("out", 0)
COMMITTED, ABORTED, UNKNOWN = Outcome
COMMIT_SENT_NS, LATER_NS = 1_000, 2_000


class Story:
    """A history in the making."""

    def __init__(self) -> None:
        self.history = History()

    def transaction(self, number: int, outcome: Outcome, *writes: tuple[Place, int | None]) -> Transaction:
        """A transaction of the values ``number.0``, ``number.1`` ..., at (partition, acknowledged offset) each."""
        made = Transaction(number, f"producer-{number}", outcome=outcome)
        made.writes = [Write(place, Value(number, index), offset) for index, (place, offset) in enumerate(writes)]
        made.commit_sent_ns = None if outcome is ABORTED else COMMIT_SENT_NS
        self.history.transactions[number] = made
        return made

    def log(self, place: Place, *committed: str | None, aborted: dict[int, str] | None = None, **fields: int) -> None:
        """The log of a partition: committed values in order of their offsets, with None for an offset without one."""
        found = {offset: value for offset, value in enumerate(committed) if value is not None}
        everything = found | (aborted or {})
        end = max(len(committed), *(offset + 1 for offset in everything), 0)
        fields = {"end": end, "last_stable": end} | fields
        self.history.logs[place] = Log(committed=_records(found), everything=_records(everything), **fields)

    def reader(self, place: Place, records: dict[int, str], at_ns: int = LATER_NS, group: str | None = None) -> None:
        """A reader that received each record by a poll of its own, in the order given."""
        polls = [Poll(place, [Record(offset, _value(value))], at_ns) for offset, value in records.items()]
        self.history.readers.append(Reader(f"reader-{len(self.history.readers)}", group, polls))

    def kinds(self) -> set[Kind]:
        return {anomaly.kind for anomaly in anomalies(self.history)}


def _value(text: str) -> Value:
    return Value.decode(text.encode())


def _records(values: dict[int, str]) -> list[Record]:
    return [Record(offset, _value(value)) for offset, value in sorted(values.items())]


def polled(transaction: Transaction, place: Place, offset: int, value: str, at_ns: int = LATER_NS) -> None:
    transaction.reads.append(Poll(place, [Record(offset, _value(value))], at_ns))


def copied(story: Story, number: int, outcome: Outcome, source: str, offset: int | None) -> None:
    """A transaction that wrote one output."""
    story.transaction(number, outcome, (OUT, offset)).writes[0].input = _value(source)


# -- what Kafka allows --------------------------------------------------------------------------------------------------


def test_committed_and_aborted_transactions_between_each_other() -> None:
    story = Story()
    story.transaction(1, COMMITTED, (A, 0), (A, 2), (B, 0))
    story.transaction(2, ABORTED, (A, 1), (B, 1))
    story.log(A, "1.0", None, "1.1", None, None, aborted={1: "2.0"})
    story.log(B, "1.2", None, None, None, aborted={1: "2.1"})
    story.reader(A, {0: "1.0", 2: "1.1"})
    assert story.kinds() == set()


@pytest.mark.parametrize("visible", [True, False])
def test_either_outcome_of_an_unknown_transaction(visible: bool) -> None:
    story = Story()
    story.transaction(1, UNKNOWN, (A, 0), (B, None))
    story.log(A, *(["1.0"] if visible else [None]), aborted={} if visible else {0: "1.0"})
    story.log(B)
    assert story.kinds() == set()


def test_a_record_without_acknowledgement_is_there_or_not() -> None:
    story = Story()
    story.transaction(1, UNKNOWN, (A, 0), (A, None), (B, None))
    story.log(A, "1.0", "1.1")
    story.log(B)
    assert story.kinds() == set()


def test_cycles_of_writes() -> None:
    story = Story()
    story.transaction(1, COMMITTED, (A, 0), (B, 1))
    story.transaction(2, COMMITTED, (A, 1), (B, 0))
    story.log(A, "1.0", "2.0")
    story.log(B, "2.1", "1.1")
    assert story.kinds() == set()


def test_a_member_of_a_group_that_skips_and_goes_back() -> None:
    story = Story()
    story.transaction(1, COMMITTED, (A, 0), (A, 1), (A, 2))
    story.log(A, "1.0", "1.1", "1.2")
    story.history.groups["g"] = frozenset({"t"})
    story.reader(A, {0: "1.0", 2: "1.2"}, group="g")
    story.reader(A, {1: "1.1", 0: "1.0"}, group="g")
    assert story.kinds() == set()


def test_transactions_that_read_one_after_another() -> None:
    story = Story()
    story.transaction(1, COMMITTED, (A, 0))
    polled(story.transaction(2, COMMITTED, (B, 0)), A, 0, "1.0")
    polled(story.transaction(3, UNKNOWN), B, 0, "2.0")
    story.log(A, "1.0")
    story.log(B, "2.0")
    assert story.kinds() == set()


def test_a_commit_that_was_sent_before_the_producer_was_fenced() -> None:
    story = Story()
    story.transaction(1, COMMITTED, (A, 0)).fenced_ns = COMMIT_SENT_NS + 1
    story.log(A, "1.0")
    assert story.kinds() == set()


def test_an_input_that_is_processed_by_the_second_attempt() -> None:
    story = Story()
    story.transaction(1, COMMITTED, (A, 0))
    story.log(A, "1.0")
    copied(story, 2, ABORTED, "1.0", 0)
    copied(story, 3, COMMITTED, "1.0", 2)
    story.log(OUT, None, None, "3.0", None, aborted={0: "2.0"})
    story.history.copies["out"] = "t"
    assert story.kinds() == set()


# -- anomalies ---------------------------------------------------------------------------------------------------------


def _aborted_read(story: Story) -> None:
    story.transaction(1, ABORTED, (A, 0))
    story.log(A, None, None, aborted={0: "1.0"})
    story.reader(A, {0: "1.0"})


def _aborted_read_at_the_end(story: Story) -> None:
    story.transaction(1, ABORTED, (A, 0))
    story.log(A, "1.0")


def _aborted_read_in_a_transaction(story: Story) -> None:
    story.transaction(1, ABORTED, (A, 0))
    story.log(A, None, None, aborted={0: "1.0"})
    polled(story.transaction(2, COMMITTED), A, 0, "1.0")


def _aborted_read_of_a_group(story: Story) -> None:
    story.transaction(1, ABORTED, (A, 0))
    story.log(A, None, None, aborted={0: "1.0"})
    story.reader(A, {0: "1.0"}, group="g")


def _precommitted_read(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0))
    story.log(A, "1.0")
    story.reader(A, {0: "1.0"}, at_ns=COMMIT_SENT_NS - 1)


def _precommitted_read_of_its_own(story: Story) -> None:
    transaction = story.transaction(1, UNKNOWN, (A, 0))
    story.log(A, "1.0")
    polled(transaction, A, 0, "1.0", COMMIT_SENT_NS - 1)


def _value_of_another_partition(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0))
    story.log(A, "1.0")
    story.log(B, "1.0")


def _value_of_nobody(story: Story) -> None:
    story.log(A, "7.0")


def _torn(story: Story) -> None:
    story.transaction(1, UNKNOWN, (A, 0), (B, 0))
    story.log(A, "1.0")
    story.log(B, None, None, aborted={0: "1.1"})


def _torn_within_a_partition(story: Story) -> None:
    """A late commit of the transaction before ended this one after its first record."""
    story.transaction(1, UNKNOWN, (A, 0), (A, 2))
    story.log(A, "1.0", None, None, None, aborted={2: "1.1"})


def _torn_without_acknowledgement(story: Story) -> None:
    story.transaction(1, UNKNOWN, (A, None), (B, 0))
    story.log(A, "1.0")
    story.log(B, None, None, aborted={0: "1.1"})


def _lost_write(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0))
    story.log(A)


def _lost_write_of_an_aborted_transaction(story: Story) -> None:
    story.transaction(1, ABORTED, (A, 0))
    story.log(A)


def _committed_and_aborted_in_the_log(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0))
    story.log(A, None, None, aborted={0: "1.0"})


def _duplicate(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0))
    story.log(A, "1.0", "1.0")


def _duplicate_of_an_aborted_record(story: Story) -> None:
    story.transaction(1, ABORTED, (A, 0))
    story.log(A, None, None, None, aborted={0: "1.0", 1: "1.0"})


def _acknowledged_elsewhere(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0), (A, 5))
    story.log(A, "1.0", "1.1", "1.2")
    story.transaction(2, COMMITTED, (A, None)).writes[0].value = _value("1.2")
    story.history.transactions[1].writes[1].offset = 2


def _other_record_at_the_offset(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0))
    story.transaction(2, COMMITTED, (A, None))
    story.log(A, "1.0", "2.0")
    story.reader(A, {0: "2.0"})


def _reordered(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 1), (A, 0))
    story.log(A, "1.1", "1.0")


def _skipped(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0), (A, 1), (A, 2))
    story.log(A, "1.0", "1.1", "1.2")
    story.reader(A, {0: "1.0", 2: "1.2"})


def _skipped_at_the_start(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0), (A, 1))
    story.log(A, "1.0", "1.1")
    story.reader(A, {1: "1.1"})


def _backward(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0), (A, 1))
    story.log(A, "1.0", "1.1")
    story.reader(A, {1: "1.1", 0: "1.0"})


def _circular(story: Story) -> None:
    polled(story.transaction(1, COMMITTED, (A, 0)), B, 0, "2.0")
    polled(story.transaction(2, UNKNOWN, (B, 0)), A, 0, "1.0")
    story.log(A, "1.0")
    story.log(B, "2.0")


def _commit_of_a_fenced_producer(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0)).fenced_ns = COMMIT_SENT_NS - 1
    story.log(A, "1.0")


def _hanging(story: Story) -> None:
    story.transaction(1, ABORTED, (A, 1))
    story.transaction(2, COMMITTED, (A, 0))
    story.log(A, "2.0", None, aborted={1: "1.0"}, end=3, last_stable=1)


def _not_read_by_the_group(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0), (A, 1))
    story.log(A, "1.0", "1.1")
    story.history.groups["g"] = frozenset({"t"})
    story.reader(A, {1: "1.1"}, group="g")
    story.reader(A, {0: "1.0"}, group="other")


def _copied_twice(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0))
    story.log(A, "1.0")
    copied(story, 2, UNKNOWN, "1.0", 0)
    copied(story, 3, COMMITTED, "1.0", 1)
    story.log(OUT, "2.0", "3.0")
    story.history.copies["out"] = "t"


def _not_copied(story: Story) -> None:
    story.transaction(1, COMMITTED, (A, 0))
    story.log(A, "1.0")
    story.log(OUT)
    story.history.copies["out"] = "t"


def _copy_of_an_aborted_input(story: Story) -> None:
    story.transaction(1, ABORTED, (A, 0))
    story.log(A, None, None, aborted={0: "1.0"})
    copied(story, 2, COMMITTED, "1.0", 0)
    story.log(OUT, "2.0")
    story.history.copies["out"] = "t"


ANOMALIES: list[tuple[Callable[[Story], None], set[Kind]]] = [
    (_aborted_read, {Kind.ABORTED_READ}),
    (_aborted_read_at_the_end, {Kind.ABORTED_READ}),
    (_aborted_read_in_a_transaction, {Kind.ABORTED_READ}),
    (_aborted_read_of_a_group, {Kind.ABORTED_READ}),
    (_precommitted_read, {Kind.PRECOMMITTED_READ}),
    (_precommitted_read_of_its_own, {Kind.PRECOMMITTED_READ}),
    (_value_of_another_partition, {Kind.UNKNOWN_VALUE}),
    (_value_of_nobody, {Kind.UNKNOWN_VALUE}),
    (_torn, {Kind.TORN}),
    (_torn_within_a_partition, {Kind.TORN}),
    (_torn_without_acknowledgement, {Kind.TORN}),
    (_lost_write, {Kind.LOST_WRITE}),
    (_lost_write_of_an_aborted_transaction, {Kind.LOST_WRITE}),
    (_committed_and_aborted_in_the_log, {Kind.LOST_WRITE}),
    (_duplicate, {Kind.DUPLICATE}),
    (_duplicate_of_an_aborted_record, {Kind.DUPLICATE}),
    (_acknowledged_elsewhere, {Kind.INCONSISTENT_OFFSETS}),
    (_other_record_at_the_offset, {Kind.INCONSISTENT_OFFSETS}),
    (_reordered, {Kind.REORDERED}),
    (_skipped, {Kind.SKIPPED}),
    (_skipped_at_the_start, {Kind.SKIPPED}),
    (_backward, {Kind.BACKWARD}),
    (_circular, {Kind.CIRCULAR}),
    (_commit_of_a_fenced_producer, {Kind.ZOMBIE}),
    (_hanging, {Kind.HANGING}),
    (_not_read_by_the_group, {Kind.NOT_READ_BY_GROUP}),
    (_copied_twice, {Kind.COPIED_TWICE}),
    (_not_copied, {Kind.NOT_COPIED}),
    (_copy_of_an_aborted_input, {Kind.COPY_OF_INVISIBLE}),
]


@pytest.mark.parametrize(
    ("tell", "kinds"), ANOMALIES, ids=[tell.__name__.strip("_").replace("_", "-") for tell, _ in ANOMALIES]
)
def test_an_anomaly_is_found_and_nothing_else(tell: Callable[[Story], None], kinds: set[Kind]) -> None:
    story = Story()
    tell(story)
    assert story.kinds() == kinds, "\n".join(map(str, anomalies(story.history)))


def test_every_kind_of_anomaly_is_tested() -> None:
    assert {kind for _, kinds in ANOMALIES for kind in kinds} == set(Kind)


def test_cycles_of_a_graph() -> None:
    assert list(cycles({1: {2}, 2: {3}, 3: {4}})) == []
    assert list(cycles({1: {1, 2}})) == []
    assert sorted(cycles({1: {2}, 2: {3, 1}, 3: {1}, 5: {6}, 6: {5, 1}})) == [[1, 2, 1], [5, 6, 5]]
    ring = {number: {number + 1} for number in range(5000)} | {5000: {0}}
    (found,) = cycles(ring)
    assert found == [*range(5001), 0]
