"""Messages as Python objects: defaults, equality, text, and the refusal of unknown fields."""

from __future__ import annotations

import copy
import gc

import pytest

from odradek.protocol import decode, encode
from odradek.protocol.schema import SchemaError, message
from odradek.protocol.schemas import fetch, metadata
from odradek.protocol.structure import Versions, snake_case


def test_unset_fields_have_the_defaults_of_the_schema() -> None:
    request = fetch.Request(min_bytes=3)
    assert (request.cluster_id, request.replica_id, request.max_bytes, request.rack_id) == (None, -1, 0x7FFFFFFF, "")
    assert request.min_bytes == 3
    assert request.replica_state == fetch.Request.ReplicaState(replica_id=-1, replica_epoch=-1)
    assert fetch.Response.PartitionData().records is None


def test_mutable_defaults_are_not_shared() -> None:
    changed, other = fetch.Request(), fetch.Request()
    changed.topics.append(fetch.Request.FetchTopic())
    changed.replica_state.replica_id = 5
    assert other.topics == []
    assert other.replica_state.replica_id == -1
    assert fetch.Request() == other


def test_unknown_field_names_are_refused() -> None:
    with pytest.raises(TypeError, match=r"FetchRequest has no field maxBytes, min_byte"):
        fetch.Request(min_byte=1, maxBytes=2, min_bytes=3)
    with pytest.raises(AttributeError):
        fetch.Request().min_byte = 1


def test_messages_are_equal_by_class_and_fields() -> None:
    assert metadata.Request() == metadata.Request()
    assert metadata.Request() != metadata.Request(topics=None)
    assert metadata.Request() != metadata.Response()
    deleted = metadata.Request()
    del deleted.topics
    assert deleted != metadata.Request()
    with pytest.raises(TypeError):
        hash(metadata.Request())


def test_a_message_shows_its_fields() -> None:
    broker = metadata.Response.MetadataResponseBroker(node_id=1, host="h", port=9092)
    assert repr(broker) == "MetadataResponseBroker(node_id=1, host='h', port=9092, rack=None)"


def test_messages_can_be_copied() -> None:
    request = fetch.Request(min_bytes=3, topics=[fetch.Request.FetchTopic(topic="a")])
    shallow, deep = copy.copy(request), copy.deepcopy(request)
    assert shallow == deep == request
    request.topics[0].topic = "b"
    assert shallow.topics is request.topics
    assert deep.topics[0].topic == "a"


def test_messages_are_not_examined_by_the_garbage_collector() -> None:
    """A message is a tree without cycles. A collection that examined those of a large request would take 100 ms."""
    made = fetch.Request(topics=[fetch.Request.FetchTopic(topic="a")])
    decoded, _ = decode(fetch.Request, 12, encode(made, 12))
    for request in (made, decoded):
        parts = [request, request.topics[0], request.replica_state, fetch.Request().topics]
        assert not any(gc.is_tracked(part) for part in parts)
    assert not gc.is_tracked(decoded.topics)


def test_names_become_snake_case() -> None:
    names = {
        "TopicId": "topic_id",
        "ISRNodes": "isr_nodes",
        "isKRaftController": "is_kraft_controller",
        "V0Host": "v0_host",
    }
    assert {name: snake_case(name) for name in names} == names


def test_ranges_of_versions() -> None:
    assert Versions.parse("2+") == (2, 0x7FFF)
    assert Versions.parse("0-3") == (0, 3)
    assert Versions.parse("7") == (7, 7)
    assert 0 not in Versions.parse("none")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Name string", "cannot parse the line 'Name string'"),
        ("Name string some", "cannot parse"),
        ("Name string 0+ sometimes", "unknown option 'sometimes'"),
        ("Name string 0+ flexible=1+", "unknown option"),
        ("Place Nowhere 0+", "structure Nowhere has no fields"),
        ("Name string 0+\nstruct Unused 0+\n  X int32 0+", "no field uses the structure Unused"),
    ],
)
def test_errors_in_a_schema_are_reported(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        message("Wrong", text, "0-3", "none", __name__)
