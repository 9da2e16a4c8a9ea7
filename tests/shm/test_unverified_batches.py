"""The leader's checks of transactional batches: marks, open transactions, and batches that are joined in one write."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.partition import slot_facts, slots
from odradek._ext.shm.layout import DiskState
from odradek._ext.testing import slot_probe
from odradek.protocol.errors import ErrorCode
from odradek.storage.batch import ABORT, TRANSACTIONAL, build_end_marker
from tests.shm.one_broker import OneBroker, batch
from tests.shm.test_transactions import start_again

PRODUCER, OTHER = 7, 8
UNVERIFIED = (ErrorCode.INVALID_TXN_STATE, -1, False)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    with OneBroker(tmp_path) as made:
        yield made


def written(
    sequence: int, epoch: int = 0, *, producer: int = PRODUCER, transactional: bool = True, count: int = 1
) -> bytes:
    attributes = TRANSACTIONAL if transactional else 0
    fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence, "attributes": attributes}
    return batch(count, **fields)


def append(slot: int, *batches: bytes) -> list[tuple[int, int, bool]]:
    """As a client's batches, in one write."""
    return append_as("id", slot, *batches)


def append_as(transactional_id: str, slot: int, *batches: bytes) -> list[tuple[int, int, bool]]:
    """As batches of requests with a transactional id, in one write."""
    results: list[tuple[int, int, bool]] = slot_probe.append(
        slot, batches, trusted=False, transactional_id=transactional_id
    )
    return results


def mark(slot: int, epoch: int = 0, *, producer: int = PRODUCER, version: int = 0, name: str = "id") -> int:
    code: int = slots.allow_transaction(slot, slot_probe.incarnation_of(slot), -1, name, producer, epoch, version)
    return code


def end(slot: int, epoch: int = 0, *, producer: int = PRODUCER) -> None:
    fields = {"producer_id": producer, "producer_epoch": epoch, "coordinator_epoch": 0, "timestamp": 1000}
    marker = build_end_marker(ABORT, base_offset=slot_facts.describe(slot).log_end_offset, **fields)
    assert slot_probe.append(slot, [marker])[0][0] == 0


class TestMarks:
    def test_a_transaction_opens_only_with_a_mark_of_its_epoch(self, broker: OneBroker) -> None:
        slot = broker.create()
        assert append(slot, written(0)) == [UNVERIFIED]
        assert slot_probe.producers(slot) == {}
        mark(slot, epoch=1)
        assert append(slot, written(0)) == [UNVERIFIED]
        assert append(slot, written(0, epoch=2)) == [UNVERIFIED]
        assert append(slot, written(0, producer=OTHER)) == [UNVERIFIED]
        assert append(slot, written(0, epoch=1)) == [(0, 0, False)]
        assert slot_facts.describe(slot).log_end_offset == 1

    def test_later_batches_need_none(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        assert append(slot, written(0), written(1)) == [(0, 0, False), (0, 1, False)]
        assert append(slot, written(2)) == [(0, 2, False)]
        end(slot)
        assert append(slot, written(3)) == [UNVERIFIED]

    def test_a_mark_ends_with_the_leader_epoch(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        broker.obey(slot, 1)
        broker.lead(slot, 2)
        assert append(slot, written(0)) == [UNVERIFIED]
        mark(slot)
        assert append(slot, written(0)) == [(0, 0, False)]

    def test_a_newer_epoch_needs_its_own_mark_although_a_transaction_is_open(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        assert append(slot, written(0)) == [(0, 0, False)]
        assert append(slot, written(0, epoch=1)) == [UNVERIFIED]
        mark(slot, epoch=1)
        assert append(slot, written(0, epoch=1)) == [(0, 1, False)]
        assert slot_facts.describe(slot).first_unstable_offset == 0
        assert append(slot, written(1)) == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1, False)]

    def test_an_older_epoch_is_fenced_before_anything_else(self, broker: OneBroker) -> None:
        slot = broker.create()
        end(slot, epoch=3)
        assert append(slot, written(0, epoch=2)) == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1, False)]
        assert append(slot, written(0, epoch=3)) == [UNVERIFIED]

    def test_duplicates_are_found_without_a_mark(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        append(slot, written(0), written(1))
        mark(slot, name="another")
        assert append(slot, written(0), written(1)) == [(0, 0, True), (0, 1, True)]
        assert append(slot, written(0), written(2)) == [(0, 0, True), UNVERIFIED]

    def test_a_sequence_of_an_ended_transaction_is_no_duplicate(self, broker: OneBroker) -> None:
        """librdkafka uses the sequences of batches that it gave up in an abort again: as duplicates, records would be lost."""
        slot = broker.create()
        mark(slot)
        append(slot, written(0), written(1))
        end(slot)
        ended = (ErrorCode.INVALID_TXN_STATE, -1, False)
        assert append(slot, written(0)) == [ended]
        mark(slot)
        assert append(slot, written(1)) == [ended]
        assert append(slot, written(1), written(2), written(1), written(2)) == [
            ended,
            (0, 3, False),
            ended,
            (0, 3, True),
        ]
        assert append(slot, written(1), written(2)) == [ended, (0, 3, True)]

    def test_a_transactional_batch_does_not_repeat_a_batch_outside_of_transactions(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        ended = (ErrorCode.INVALID_TXN_STATE, -1, False)
        for _ in range(2):
            results = append(slot, written(0, transactional=False), written(0), written(0, transactional=False))
            assert (results[0][:2], results[1], results[2]) == ((0, 0), ended, (0, 0, True))

    def test_a_mark_is_of_a_transactional_id(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot, name="another")
        for version in (0, 2):
            mark(slot, name="höchst-eigen", version=version)
            for name in ("", "id", "another", "höchst-eige", "höchst-eigen "):
                assert append_as(name, slot, written(0)) == [UNVERIFIED]
        assert append_as("höchst-eigen", slot, written(0)) == [(0, 0, False)]

    def test_an_open_transaction_stays_that_of_its_transactional_id(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        assert append(slot, written(0)) == [(0, 0, False)]
        assert append_as("another", slot, written(1)) == [UNVERIFIED]
        assert append_as("another", slot, written(0)) == [(0, 0, True)]
        assert append(slot, written(1)) == [(0, 1, False)]
        assert slot_facts.describe(slot).log_end_offset == 2

    def test_an_open_transaction_without_a_mark_may_have_any_id(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        append(slot, written(0))
        start_again(broker, slot)
        assert append_as("another", slot, written(1)) == [(0, 1, False)]
        mark(slot, epoch=1)
        assert append_as("another", slot, written(2)) == [(0, 2, False)]

    def test_a_mark_is_valid_as_long_as_this_broker_leads_without_interruption(self, broker: OneBroker) -> None:
        slot = broker.create()
        broker.lead(slot, 1)
        mark(slot)
        broker.lead(slot, 2)
        assert append(slot, written(0)) == [(0, 0, False)]
        broker.lead(slot, 3)
        assert append(slot, written(1)) == [(0, 1, False)]

    def test_a_new_leadership_asks_for_the_id_of_an_open_transaction_once(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        append(slot, written(0))
        broker.obey(slot, 1)
        broker.lead(slot, 2)
        assert append(slot, written(1)) == [UNVERIFIED]
        mark(slot)
        assert append(slot, written(1)) == [(0, 1, False)]
        assert append(slot, written(2)) == [(0, 2, False)]

    def test_batches_of_two_ids_in_one_write_are_told_apart(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        found = slot_probe.append(
            slot, [written(0), written(1), written(1)], trusted=False, transactional_ids=["id", "another", "id"]
        )
        assert found == [(0, 0, False), UNVERIFIED, UNVERIFIED]

    def test_sequences_are_checked_after_the_mark(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        append(slot, written(0))
        end(slot)
        assert append(slot, written(5)) == [UNVERIFIED]
        mark(slot)
        assert append(slot, written(5)) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, False)]

    def test_version_2_begins_at_sequence_0_where_the_producer_is_unknown(self, broker: OneBroker) -> None:
        old, new = broker.create("old"), broker.create("new")
        mark(old, version=0)
        mark(new, version=2)
        assert append(old, written(5)) == [(0, 0, False)]
        assert append(new, written(5)) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, False)]
        assert append(new, written(0), written(1)) == [(0, 0, False), (0, 1, False)]

    def test_a_trusted_batch_needs_no_mark(self, broker: OneBroker) -> None:
        slot = broker.create()
        assert slot_probe.append(slot, [written(0)]) == [(0, 0, False)]
        assert append(slot, written(1)) == [(0, 1, False)]

    def test_what_is_refused_for_another_reason_needs_no_question(self, broker: OneBroker) -> None:
        slot = broker.create(segment_bytes=1 << 14)
        assert append(slot, written(0, count=1000)) == [(ErrorCode.RECORD_LIST_TOO_LARGE, -1, False)]
        broker.shm.set_disk(0, DiskState.DISK_FULL, 0, 0)
        assert append(slot, written(0)) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1, False)]


class TestOutsideOfTransactions:
    def test_no_batch_while_the_producers_transaction_is_open(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        append(slot, written(0))
        refused = (ErrorCode.INVALID_TXN_STATE, -1, False)
        assert append(slot, written(1, transactional=False)) == [refused]
        assert append(slot, written(0, epoch=1, transactional=False)) == [refused]
        assert append(slot, written(0, producer=OTHER, transactional=False)) == [(0, 1, False)]
        end(slot)
        assert append(slot, written(1, transactional=False)) == [(0, 3, False)]

    def test_nor_behind_the_batch_of_the_same_write_that_opens_it(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        results = append(slot, written(0), written(1, transactional=False), written(1))
        assert results == [(0, 0, False), (ErrorCode.INVALID_TXN_STATE, -1, False), (0, 1, False)]

    def test_a_transaction_behind_them_in_one_write_needs_a_mark(self, broker: OneBroker) -> None:
        slot = broker.create()
        assert append(slot, written(0, transactional=False), written(1)) == [(0, 0, False), UNVERIFIED]
        mark(slot)
        assert append(slot, written(1, transactional=False), written(2)) == [(0, 1, False), (0, 2, False)]
        assert slot_facts.describe(slot).first_unstable_offset == 2


class TestJoined:
    def test_batches_behind_an_unverified_one_are_not_appended(self, broker: OneBroker) -> None:
        slot = broker.create()
        append(slot, written(0, transactional=False))
        results = append(slot, written(1), written(2), written(0, producer=OTHER, transactional=False), batch())
        assert results == [UNVERIFIED, UNVERIFIED, (0, 1, False), (0, 2, False)]
        results = append(slot, written(1), written(1, transactional=False), written(0, epoch=1, transactional=False))
        assert results == [UNVERIFIED] * 3

    def test_an_epoch_behind_a_transaction_of_an_older_one(self, broker: OneBroker) -> None:
        slot = broker.create()
        mark(slot)
        assert append(slot, written(0), written(0, epoch=1), written(1, epoch=1)) == [
            (0, 0, False),
            UNVERIFIED,
            UNVERIFIED,
        ]

    @settings(max_examples=300, deadline=None)
    @given(st.data())
    def test_one_write_has_the_results_of_many(self, data: st.DataObject) -> None:
        """Except for batches that follow an unverified batch of the same producer: one write does not append them."""
        batches = st.builds(
            written,
            st.integers(0, 4),
            st.integers(0, 2),
            producer=st.sampled_from((PRODUCER, OTHER)),
            transactional=st.booleans(),
        )
        with tempfile.TemporaryDirectory() as path, OneBroker(Path(path)) as broker:
            joined, single = broker.create("joined"), broker.create("single")
            for _ in range(data.draw(st.integers(1, 5))):
                producer, epoch = data.draw(st.sampled_from((PRODUCER, OTHER))), data.draw(st.integers(0, 2))
                before = data.draw(st.sampled_from(("nothing", "mark", "mark of version 2", "end")))
                for slot in (joined, single):
                    if before.startswith("mark"):
                        mark(slot, epoch, producer=producer, version=2 if before.endswith("2") else 0)
                    elif before == "end" and slot_probe.producers(slot).get(producer, (0,))[0] <= epoch:
                        end(slot, epoch, producer=producer)
                sent = data.draw(st.lists(batches, min_size=1, max_size=6))
                producers = [int.from_bytes(found[43:51], "big") for found in sent]
                waiting: set[int] = set()
                refused: set[tuple[int, int]] = set()
                expected: list[tuple[int, int, bool]] = []
                for found, number in zip(sent, producers, strict=True):
                    if number in waiting:
                        expected.append(UNVERIFIED)
                        continue
                    key = (number, int.from_bytes(found[51:53], "big"))
                    known_epoch, kept = slot_probe.producers(single).get(number, (-1, []))
                    sequence = int.from_bytes(found[53:57], "big")
                    repeats = known_epoch == key[1] and sequence in [first for first, *_ in kept]
                    expected += slot_probe.append(single, [found], trusted=False, after_refused=key in refused)
                    if expected[-1][0]:
                        refused.add(key)
                    # INVALID_TXN_STATE of a batch outside of the transaction, or with the sequence of an ended one, is
                    # final: it holds nothing back.
                    if expected[-1] == UNVERIFIED and found[22] & TRANSACTIONAL and not repeats:
                        waiting.add(number)
                assert append(joined, *sent) == expected
                assert slot_probe.producers(joined) == slot_probe.producers(single)
                assert (
                    slot_facts.describe(joined).first_unstable_offset
                    == slot_facts.describe(single).first_unstable_offset
                )
