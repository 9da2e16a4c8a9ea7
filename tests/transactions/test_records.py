"""Records of `__transaction_state`: the native reader and writer agree with the schema of Kafka's message definition."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import ProtocolError, encode
from odradek.protocol.schemas import transaction_records
from odradek.protocol.schemas.group_records import UnknownRecord
from odradek.transactions.records import (
    by_topic,
    check,
    facts_of,
    id_of,
    is_busy,
    is_idle,
    key_of,
    pack,
    producer_of,
    state_of,
    times_of,
    value_of,
)
from odradek.transactions.states import BY_NUMBER, IDLE, State
from odradek.transactions.transaction import Facts

ids = st.integers(-1, 2**63 - 1)
epochs = st.integers(-1, 2**15 - 1)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)
places = st.lists(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=8, unique=True)


@st.composite
def all_facts(draw):
    state = draw(st.sampled_from(BY_NUMBER[:6]))
    return Facts(
        producer_id=draw(ids),
        previous_producer_id=draw(ids),
        next_producer_id=draw(ids),
        epoch=draw(epochs),
        last_epoch=draw(epochs),
        timeout_ms=draw(st.integers(0, 2**31 - 1)),
        state=state,
        places=() if state in IDLE else tuple(draw(places)),
        start_ms=draw(st.integers(-1, 2**63 - 1)),
        updated_ms=draw(st.integers(-1, 2**63 - 1)),
        client_version=draw(st.integers(0, 2)),
    )


def by_schema(facts, version):
    value = transaction_records.Value(
        producer_id=facts.producer_id,
        previous_producer_id=facts.previous_producer_id if version else -1,
        next_producer_id=facts.next_producer_id if version else -1,
        producer_epoch=facts.epoch,
        transaction_timeout_ms=facts.timeout_ms,
        transaction_status=facts.state,
        transaction_partitions=None
        if facts.state is State.EMPTY
        else [
            transaction_records.Value.PartitionsSchema(topic=topic, partition_ids=partitions)
            for topic, partitions in by_topic(facts.places).items()
        ],
        transaction_last_update_timestamp_ms=facts.updated_ms,
        transaction_start_timestamp_ms=facts.start_ms,
        client_transaction_version=facts.client_version if version else 0,
    )
    return struct.pack(">h", version) + encode(value, version)


def grouped(facts):
    """The facts with the partitions in the order of a record, which groups them by topic."""
    flat = tuple((topic, partition) for topic, numbers in by_topic(facts.places).items() for partition in numbers)
    return facts._replace(places=flat)


@given(all_facts(), st.integers(0, 2))
def test_values_are_those_of_the_schema(facts, server_version):
    version = min(server_version, 1)
    value = value_of(facts, server_version)
    assert value == by_schema(facts, version)
    expected = grouped(facts)._replace(last_epoch=-1)
    if version == 0:
        expected = expected._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0)
    check(value)
    assert facts_of(value) == expected
    assert state_of(value) is facts.state
    assert producer_of(value) == (facts.producer_id, facts.epoch)
    assert times_of(value) == (facts.updated_ms, facts.start_ms)
    assert is_busy(value) is not is_idle(value)
    assert is_idle(value) is (facts.state in IDLE)


@given(all_facts())
def test_a_packed_id_keeps_the_last_epoch(facts):
    packed = pack(facts)
    check(packed)
    assert facts_of(packed) == grouped(facts)
    assert times_of(packed) == (facts.updated_ms, facts.start_ms)


def test_tags_are_written_as_by_kafka_only_if_they_differ_from_their_defaults():
    idle = Facts(1000, 1000, -1, 3, 2, 60_000, State.COMPLETE_COMMIT, (), 5, 6, 2)
    assert value_of(idle, 2)[34:].hex() == "02" + "0008" + f"{1000:016x}" + "0202" + "0002"
    rotating = idle._replace(state=State.PREPARE_COMMIT, next_producer_id=2000, client_version=0)
    assert value_of(rotating, 1)[34:].hex() == "02" + "0008" + f"{1000:016x}" + "0108" + f"{2000:016x}"
    assert value_of(idle._replace(previous_producer_id=-1, client_version=0), 2)[34:].hex() == "00"


def test_a_tag_that_kafka_may_write_later_is_skipped():
    value = transaction_records.Value(
        producer_id=7, previous_producer_id=6, producer_epoch=1, transaction_timeout_ms=9, transaction_status=4,
        transaction_partitions=[], transaction_last_update_timestamp_ms=2, transaction_start_timestamp_ms=1,
        next_producer_epoch=12, client_transaction_version=2,
    )  # fmt: skip
    read = facts_of(struct.pack(">h", 1) + encode(value, 1))
    assert read == Facts(7, 6, -1, 1, -1, 9, State.COMPLETE_COMMIT, (), 1, 2, 2)


@given(names)
def test_keys_are_those_of_the_schema(name):
    key = struct.pack(">h", 0) + encode(transaction_records.Key(transactional_id=name), 0)
    assert key_of(name) == key
    assert id_of(key) == name


@given(all_facts(), st.integers(0, 1))
def test_no_truncated_value_is_accepted(facts, version):
    value = value_of(facts, version)
    for end in range(len(value)):
        with pytest.raises((ProtocolError, UnknownRecord)):
            check(value[:end])
            facts_of(value[:end])


@given(st.binary(max_size=80))
def test_other_bytes_are_refused_or_read(data):
    for read in (id_of, check, facts_of):
        try:
            read(data)
        except (ProtocolError, UnknownRecord):
            continue


def test_unknown_kinds_versions_and_states():
    with pytest.raises(UnknownRecord, match="kind 5"):
        id_of(b"\x00\x05\x00\x01t")
    with pytest.raises(UnknownRecord, match="version 2"):
        check(b"\x00\x02" + bytes(60))
    dead = bytearray(value_of(Facts(1, 1, -1, 3, 2, 9, State.EMPTY, (), 5, 6, 2), 1))
    dead[16] = 6
    with pytest.raises(UnknownRecord, match="state 6"):
        check(bytes(dead))
