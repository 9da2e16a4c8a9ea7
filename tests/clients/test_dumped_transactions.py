"""Kafka's DumpLogSegments decodes `__transaction_state` and the offsets of transactions that this broker wrote.

The tools of 4.3 print records as JSON, with the fields that differ from their defaults in the flexible versions; the tool of
3.9 prints transactions in a format of its own, with fewer fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.schemas import group_records, transaction_records
from odradek.protocol.schemas.transaction_records import STATES
from odradek.storage.batch import END_TXN_VALUE, RecordBatch, read_batches
from odradek.testing import Broker
from tests.clients.dump_log_segments import Dump, dump, files_of
from tests.transactions_against_kafka import exhausting
from tests.transactions_against_kafka.sides import BROKER_ID, CONFIG, Side
from tests.transactions_against_kafka.transaction_talk import Producer
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("dumped-transactions"), pytest.mark.timeout(600), pytest.mark.java]

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
LEVELS = (2, 1, 0)
LONG_MS = 600_000
GROUP, TOPIC = "a group", "topic"
EXHAUSTED = "exhausted"
TOOLS = ("4.3.0", "3.9.1")
_BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) .* baseSequence: (-?\d+) lastSequence: (-?\d+) producerId: (-?\d+) "
    r"producerEpoch: (-?\d+) .* isTransactional: (\w+) isControl: (\w+) "
)
_RECORD = re.compile(
    r"^\| offset: (\d+) .* headerKeys: \[\] (?:key: (.*) payload: (.*)|endTxnMarker: (\w+) coordinatorEpoch: (\d+))$"
)


@dataclass
class Written:
    """The logs of a topic in the directory of the stopped broker."""

    data_dir: Path
    batches: dict[Path, list[RecordBatch]]

    def dumped(self, version: str, decoder: str) -> dict[Path, Dump]:
        """What a tool prints of the logs."""
        dumps, complaints = dump(self.data_dir, list(self.batches), "--deep-iteration", decoder, version=version)
        assert not complaints
        assert list(dumps) == list(self.batches)
        return dumps


def written(data_dir: Path, topic: str) -> Written:
    files = [file for file in files_of(data_dir, ".log") if file.parent.name.rpartition("-")[0] == topic]
    return Written(data_dir, {file: list(read_batches((data_dir / file).read_bytes())) for file in files})


def begin(side: Side, name: str, level: int) -> Producer:
    """A transaction with records in two partitions, and with offsets."""
    talk = side.talk
    producer = talk.init(name, timeout_ms=LONG_MS)
    if level < 2:
        talk.add(producer, (TOPIC, 0), (TOPIC, 1))
        talk.add_offsets(producer, GROUP)
    for partition in (0, 1):
        sent = talk.send_batch(producer, (TOPIC, partition), 0, version=12 if level == 2 else 11)
        assert sent.error_code == 0
    offsets: Any = {(TOPIC, 0): 10 + level, (TOPIC, 1): (20 + level, f"a note of {name}")}
    answer = talk.commit_in_transaction(producer, GROUP, offsets, 5 if level == 2 else 4)
    assert {partition.error_code for topic in answer.topics for partition in topic.partitions} == {0}
    return producer


def transact(side: Side) -> None:
    """Transactions at each level that are committed, aborted and left open, and one that is to have the last epoch."""
    side.topic(TOPIC, 2)
    exhausting.prepare_ids(side, [EXHAUSTED])
    side.talk.commit(GROUP, {(TOPIC, 0): 1})
    for level in LEVELS:
        side.talk.at_level(level)
        version = 5 if level == 2 else 4
        side.talk.end(begin(side, f"committed-{level}", level), True, version)
        side.talk.end(begin(side, f"aborted-{level}", level), False, version)
        begin(side, f"open-{level}", level)
    side.talk.at_level(2)


def end_the_last_epoch(side: Side) -> None:
    """The id gets another producer id with the end of the transaction."""
    found = side.talk.state_of(EXHAUSTED)
    last = side.talk.init(Producer(EXHAUSTED, found.producer_id, found.producer_epoch))
    assert last.epoch == exhausting.LAST
    assert side.talk.send_batch(last, (TOPIC, 0), 0).error_code == 0
    assert side.talk.end(last, True).producer_id != last.producer_id


def expire(side: Side) -> None:
    """All ids without an open transaction."""
    until(
        lambda: (
            {one.transactional_id for one in side.talk.list_transactions().transaction_states}
            == {f"open-{level}" for level in LEVELS}
        ),
        "only open transactions are left",
    )


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a broker that has stopped."""
    with Broker(CONFIG | {"broker.id": BROKER_ID}, directory=tmp_path_factory.mktemp("broker")) as broker:
        for step in (transact, end_the_last_epoch, expire):
            with Side.of(broker) as side:
                step(side)
            broker.stop()
            if step is transact:
                exhausting.exhaust(broker.data_dir, [EXHAUSTED])
            if step is end_the_last_epoch:
                broker.config["transactional.id.expiration.ms"] = "1"
                broker.config["transaction.remove.expired.transaction.cleanup.interval.ms"] = "20"
            if step is not expire:
                broker.start()
        yield broker.data_dir


@pytest.fixture(scope="module")
def state(data_dir: Path) -> Written:
    return written(data_dir, STATE)


@pytest.fixture(scope="module")
def offsets(data_dir: Path) -> Written:
    return written(data_dir, OFFSETS)


def as_json(value: Any, version: int) -> dict[str, Any]:
    """A key or a value as Kafka prints it."""
    shown = {}
    for field in value._structure.fields:
        content = getattr(value, field.attribute)
        if version not in field.versions or (field.tag >= 0 and content == int(field.default or 0)):
            continue
        if isinstance(content, list):
            content = [as_json(part, version) if hasattr(part, "_structure") else part for part in content]
        shown[field.name[0].lower() + field.name[1:]] = content
    return shown


def versioned(content: Any, raw: bytes, name: str) -> dict[str, Any]:
    version = int.from_bytes(raw[:2], "big")
    return {name: str(version), "data": as_json(content, 0 if name == "type" else version)}


def check_batches(written: Written, dumps: dict[Path, Dump]) -> None:
    """The batches and the markers are what was written; the records are compared by the caller."""
    for file, batches in written.batches.items():
        lines = dumps[file].lines
        printed = [found.groups() for line in lines if (found := _BATCH.match(line))]
        assert printed == [
            tuple(
                str(field).lower()
                for field in (
                    batch.base_offset,
                    batch.last_offset,
                    batch.base_sequence,
                    -1 if batch.base_sequence < 0 else batch.base_sequence + batch.last_offset_delta,
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.is_transactional,
                    batch.is_control,
                )
            )
            for batch in batches
        ]
        markers = [found.groups()[3:] for line in lines if (found := _RECORD.match(line)) and found[4]]
        expected = []
        for batch in batches:
            if batch.is_control:
                (record,) = batch.records()
                assert record.key is not None and record.value is not None
                _, epoch = END_TXN_VALUE.unpack(record.value)
                expected.append(("COMMIT" if record.key[3] else "ABORT", str(epoch)))
        assert markers == expected


def printed_records(dumped: Dump) -> dict[int, tuple[str, str]]:
    """Key and payload of each record by offset, without markers."""
    found = (_RECORD.match(line) for line in dumped.lines)
    return {int(record[1]): (record[2], record[3]) for record in found if record and record[2]}


def records_of(batches: list[RecordBatch]) -> dict[int, tuple[bytes, bytes | None]]:
    found = {}
    for batch in batches:
        for record in batch.records() if not batch.is_control else ():
            assert record.key is not None
            found[record.offset] = record.key, record.value
    return found


def test_the_log_has_all_that_is_to_be_decoded(state: Written, offsets: Written) -> None:
    """Each state in each version of values, tombstones, both numbers of the protocol, and other producer ids."""
    seen, versions, others = set(), set(), set()
    for batches in state.batches.values():
        for raw_key, raw in records_of(batches).values():
            key, value = transaction_records.read_record(raw_key, raw)
            if value is None:
                seen.add((key.transactional_id.rpartition("-")[0], "tombstone"))
            else:
                assert raw is not None
                name, _, level = key.transactional_id.rpartition("-")
                if name in ("committed", "aborted", "open"):
                    assert raw[:2] == bytes((0, min(int(level), 1)))
                    seen.add((level, STATES[value.transaction_status]))
                versions.add((raw[1], value.client_transaction_version))
                if key.transactional_id == EXHAUSTED:
                    others.add((value.previous_producer_id != value.producer_id, value.next_producer_id >= 0))
    states = STATES[: STATES.index("Dead")]
    assert seen == {(str(level), name) for level in LEVELS for name in states} | {
        (name, "tombstone") for name in ("", "probe", "committed", "aborted")
    }
    assert versions == {(0, 0), (1, 0), (1, 2)}
    assert others == {(False, False), (False, True), (True, False)}
    kinds = {(batch.is_transactional, batch.is_control) for batches in offsets.batches.values() for batch in batches}
    assert kinds == {(False, False), (True, False), (True, True)}


def test_the_tool_of_4_3_reads_transactions(state: Written) -> None:
    dumps = state.dumped("4.3.0", "--transaction-log-decoder")
    check_batches(state, dumps)
    for file, batches in state.batches.items():
        expected = {}
        for offset, (raw_key, raw) in records_of(batches).items():
            key, value = transaction_records.read_record(raw_key, raw)
            expected[offset] = versioned(key, raw_key, "type"), raw and versioned(value, raw, "version")
        assert {
            offset: (json.loads(key), None if payload == "<DELETE>" else json.loads(payload))
            for offset, (key, payload) in printed_records(dumps[file]).items()
        } == expected


def test_the_tool_of_3_9_reads_transactions(state: Written) -> None:
    dumps = state.dumped("3.9.1", "--transaction-log-decoder")
    check_batches(state, dumps)
    for file, batches in state.batches.items():
        printed = printed_records(dumps[file])
        assert printed.keys() == records_of(batches).keys()
        for offset, (raw_key, raw) in records_of(batches).items():
            key, value = transaction_records.read_record(raw_key, raw)
            assert printed[offset][0] == f"transaction_metadata::transactionalId={key.transactional_id}"
            if value is None:
                assert printed[offset][1] == "<DELETE>"
                continue
            payload = re.fullmatch(
                r"producerId:(\d+),producerEpoch:(\d+),state=(\w+),partitions=\[(.*)\],txnLastUpdateTimestamp=(\d+),"
                r"txnTimeoutMs=(\d+)",
                printed[offset][1],
            )
            assert payload is not None, printed[offset]
            places = {
                f"{topic.topic}-{partition}"
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            }
            assert set(filter(None, payload[4].split(","))) == places
            assert (payload[3], *map(int, payload.group(1, 2, 5, 6))) == (
                STATES[value.transaction_status],
                value.producer_id,
                value.producer_epoch,
                value.transaction_last_update_timestamp_ms,
                value.transaction_timeout_ms,
            )


@pytest.mark.parametrize("version", TOOLS)
def test_the_tools_read_offsets_of_transactions(offsets: Written, version: str) -> None:
    dumps = offsets.dumped(version, "--offsets-decoder")
    check_batches(offsets, dumps)
    notes = set()
    for file, batches in offsets.batches.items():
        expected = {}
        for offset, (raw_key, raw) in records_of(batches).items():
            _, key, value = group_records.read_record(raw_key, raw)
            assert raw is not None
            expected[offset] = versioned(key, raw_key, "type"), versioned(value, raw, "version")
            notes.add(value.metadata)
        assert {
            offset: (json.loads(key), json.loads(payload))
            for offset, (key, payload) in printed_records(dumps[file]).items()
        } == expected
    assert notes == {
        "",
        *(f"a note of {name}-{level}" for name in ("committed", "aborted", "open") for level in LEVELS),
    }
