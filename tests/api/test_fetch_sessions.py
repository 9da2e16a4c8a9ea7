"""Incremental fetch sessions (KIP-227): returned, forgotten and refused partitions, and closed sessions."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch
from tests.wire import batch, fetch_request, offsets

pytestmark = pytest.mark.xdist_group("api-fetch")


class Session:
    """A session over one connection."""

    def __init__(self, wire, version=12):
        self.wire, self.version, self.id, self.epoch = wire, version, 0, 0

    def ask(self, *places, **options):
        """(error, {(topic, partition): answer}) of the session's next request."""
        request = fetch_request(list(places), session_id=self.id, session_epoch=self.epoch, **options)
        response = self.wire.ask(request, fetch.API_KEY, options.get("version", self.version))
        if not response.error_code:
            self.id, self.epoch = response.session_id, self.epoch + 1
        found = {}
        for topic in response.responses:
            for one in topic.partitions:
                found[topic.topic or topic.topic_id, one.partition_index] = one
        return response.error_code, found


@pytest.fixture
def topic(wire, name):
    wire.create(name, 3)
    for partition in range(3):
        assert wire.produce(name, batch(), partition).error_code == 0
    return name


def places(topic, *offsets_of, first=0):
    return [(topic, first + index, offset) for index, offset in enumerate(offsets_of)]


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_only_changed_partitions_are_returned_again(wire, name, version):
    topic_id = wire.create(name, 3)
    target = topic_id if version >= 13 else name
    session = Session(wire, version)
    error, found = session.ask(*places(target, 0, 0, 0))
    assert (error, len(found)) == (0, 3)
    assert session.id != 0
    assert session.ask() == (0, {})
    wire.produce(name, batch(), 1)
    error, found = session.ask()
    assert list(found) == [(target, 1)]
    assert offsets(found[target, 1].records) == [0]
    assert list(session.ask()[1]) == [(target, 1)]  # its fetch offset is still 0
    assert session.ask((target, 1, 1)) == (0, {})


def test_partitions_are_added_and_forgotten(wire, topic):
    session = Session(wire)
    assert list(session.ask((topic, 0, 0))[1]) == [(topic, 0)]
    assert set(session.ask((topic, 2, 0), (topic, 0, 1))[1]) == {(topic, 2)}
    assert session.ask((topic, 2, 1), forget=[(topic, 0)]) == (0, {})
    for partition in range(3):
        wire.produce(topic, batch(), partition)
    assert list(session.ask()[1]) == [(topic, 2)]


def test_a_long_poll_of_a_session_is_woken(connect, topic):
    reader, writer = connect(), connect()
    reader.until_led(topic, 3)
    session = Session(reader)
    session.ask(*places(topic, 0, 0, 0))
    session.ask(*places(topic, 1, 1, 1))
    request = fetch_request([], session_id=session.id, session_epoch=session.epoch, wait_ms=600_000)
    reader.send(request, fetch.API_KEY, 12)
    writer.produce(topic, batch(), 2)
    response = reader.receive()
    assert [(one.partition_index, offsets(one.records)) for one in response.responses[0].partitions] == [(2, [1])]


def test_wrong_epochs_and_unknown_sessions_are_refused(wire, topic):
    session = Session(wire)
    session.ask((topic, 0, 0))
    good = session.epoch
    for epoch in (good + 1, good + 5):
        session.epoch = epoch
        assert session.ask() == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, {})
    session.epoch, known = good, session.id
    session.id = known ^ 0x100000
    assert session.ask() == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})
    session.id = known
    assert session.ask()[0] == 0
    session.epoch = good  # a repeated request
    assert session.ask() == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, {})


def test_a_closed_session_is_unknown_and_a_full_fetch_is_answered(wire, topic):
    session = Session(wire)
    session.ask((topic, 0, 0))
    known = session.id
    closing = fetch_request([(topic, 0, 0)], session_id=known, session_epoch=-1)
    response = wire.ask(closing, fetch.API_KEY, 12)
    assert (response.session_id, offsets(response.responses[0].partitions[0].records)) == (0, [0])
    assert session.ask() == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})


def test_a_new_session_replaces_the_named_one(wire, topic):
    session = Session(wire)
    session.ask((topic, 0, 0))
    old = session.id
    session.epoch = 0
    assert session.ask((topic, 1, 0))[0] == 0
    assert session.id not in (0, old)
    session.id, session.epoch = old, 1
    assert session.ask() == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})


@pytest.mark.parametrize("first", [12, 13])
def test_a_session_keeps_to_names_or_ids(wire, name, first):
    topic_id = wire.create(name)
    second = 25 - first
    session = Session(wire, first)
    session.ask((topic_id if first >= 13 else name, 0, 0))
    session.version = second
    assert session.ask() == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, {})
    session.version = first
    assert session.ask() == (0, {})


def test_a_deleted_topic_gets_an_error_in_its_session(wire, name):
    wire.create(name)
    session = Session(wire)
    session.ask((name, 0, 0))
    wire.delete(name)
    _, found = session.ask()
    assert found[name, 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_take_turns_when_one_response_cannot_hold_all(wire, topic):
    for partition in range(3):
        for _ in range(20):
            wire.produce(topic, batch(b"." * 1000), partition)
    session, at, order = Session(wire), {0: 0, 1: 0, 2: 0}, []
    asked = places(topic, 0, 0, 0)
    for _ in range(6):
        error, found = session.ask(*asked, max_bytes=1500, partition_max_bytes=1500)
        assert error == 0
        asked = []
        for (_, partition), one in found.items():
            if one.records:
                order.append(partition)
                at[partition] += 1
                asked.append((topic, partition, at[partition]))
    assert {order.count(partition) for partition in range(3)} == {len(order) // 3}


def test_forgetting_most_of_a_large_session_is_quick_and_keeps_the_rest(wire, name):
    count = 20_000
    wire.create(name)
    first = wire.ask(
        fetch_request([("no-such", number, 0) for number in range(count)] + [(name, 0, 0)], session_epoch=0),
        fetch.API_KEY,
        12,
    )
    forgetting = fetch_request([], session_id=first.session_id, session_epoch=1)
    forgetting.forgotten_topics_data = [fetch.Request.ForgottenTopic(topic="no-such", partitions=list(range(count)))]
    assert wire.ask(forgetting, fetch.API_KEY, 12).responses == []
    wire.produce(name, batch(b"a"))
    after = wire.ask(fetch_request([], session_id=first.session_id, session_epoch=2), fetch.API_KEY, 12)
    assert [one.topic for one in after.responses] == [name]


@pytest.mark.parametrize("ask_in_a_session", [True, False])
def test_a_recreated_topic_is_found_in_its_new_slot(wire, name, ask_in_a_session):
    session = Session(wire)
    if not ask_in_a_session:
        session.epoch = -1
    for number in range(3):
        wire.create(name)
        wire.produce(name, batch())
        error, found = session.ask((name, 0, 0))
        assert (error, found[name, 0].error_code) == (0, 0)
        assert offsets(found[name, 0].records) == [0], number
        if not ask_in_a_session:
            session.epoch = -1
        wire.delete(name)


def test_a_fetch_without_a_session_may_change_its_partitions_and_their_order(wire, topic):
    def asked(*partitions):
        request = fetch_request([(topic, partition, 0) for partition in partitions], max_bytes=1 << 20)
        answer = wire.ask(request, fetch.API_KEY, 12)
        return [(one.partition_index, offsets(one.records)) for one in answer.responses[0].partitions]

    for partitions in [(0, 1, 2), (2, 0, 1), (1,), (1, 2), (0, 0, 1), (0, 1, 0), (2, 2), (0, 1, 2)]:
        assert asked(*partitions) == [(partition, [0]) for partition in dict.fromkeys(partitions)]
