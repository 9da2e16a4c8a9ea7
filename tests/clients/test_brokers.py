"""Brokers of a cluster as a client sees them, from what their responses tell."""

import pytest

from odradek.cli.health.cluster import brokers_that_are_down
from odradek.clients import brokers
from odradek.clients.cluster import Address, Cluster, Partition, TopicInfo, View
from odradek.clients.errors import UnreachableError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_cluster, explain_group, metadata

VIEW = View(
    "id",
    2,
    {1: Address("a", 1), 2: Address("b", 2)},
    {1: "r1", 2: None},
    {
        "t": TopicInfo(
            "t", b"", False, tuple(Partition("t", n, 1, 0, (1, 2, 4), (1,), (), ErrorCode.NONE) for n in range(3))
        )
    },
)


class FakeResponse:
    """A connection to a broker with these APIs and features."""

    def __init__(self, apis=(), **features):
        self.apis = dict.fromkeys(apis, (0, 2))
        self.features = {name.replace("_", "."): (1, level) for name, level in features.items()}
        self.feature_levels = {name: level for name, (_, level) in self.features.items()}
        self.features_epoch = 3

    def serves(self, api_key):
        return self.apis.get(api_key)


class Site(Cluster):
    """Two brokers, of which one cannot be reached, and one that is fenced."""

    def __init__(self):
        super().__init__("a:1")

    def metadata(self, topics=None):
        return VIEW

    def any_broker(self):
        return FakeResponse([describe_cluster.API_KEY])

    def broker(self, node_id):
        if node_id == 2:
            raise UnreachableError("no broker answers at b:2")
        return FakeResponse([], metadata_version=21)

    def ask(self, api, request, oldest):
        assert request.include_fenced_brokers and oldest == 2
        row = api.response.DescribeClusterBroker
        rows = [row(broker_id=number, host="h", port=9, is_fenced=number == 3) for number in (1, 2, 3)]
        return api.response(brokers=rows)


@pytest.mark.parametrize(
    ("connection", "software"),
    [
        (FakeResponse(), None),
        (FakeResponse([explain_group.API_KEY]), "Odradek"),
        (FakeResponse(metadata_version=7), "Kafka 3.3"),
        (FakeResponse(metadata_version=19), "Kafka 3.7"),
        (FakeResponse(metadata_version=21), "Kafka 3.9"),
        (FakeResponse(metadata_version=25), "Kafka 4.0"),
        (FakeResponse(metadata_version=30), "Kafka 4.3"),
        (FakeResponse(metadata_version=31), "newer than Kafka 4.3 (metadata.version 31)"),
        (FakeResponse(kraft_version=1), None),
    ],
)
def test_a_version_is_what_the_broker_tells_and_nothing_else(connection, software):
    assert brokers.software_of(connection) == software


def test_brokers_that_cannot_be_asked_are_listed_with_the_reason():
    described = brokers.describe(Site())
    assert described.kraft and described.view is VIEW
    assert [
        (broker.node_id, broker.software, broker.fenced, broker.leads, broker.replicas) for broker in described.brokers
    ] == [
        (1, "Kafka 3.9", False, 3, 3),
        (2, None, False, 0, 3),
        (3, None, True, 0, 0),
        (4, None, False, 0, 3),
    ]
    assert [broker.problem for broker in described.brokers[:2]] == [None, "no broker answers at b:2"]
    assert "fenced" in described.brokers[2].problem and described.brokers[2].apis is None
    away = described.brokers[3]
    assert away.address is None and "is not registered, and has 3 replicas" in away.problem


def test_a_broker_that_has_replicas_and_is_not_registered_is_a_finding():
    (finding,) = brokers_that_are_down(VIEW)
    assert (finding.severity, finding.subject) == ("error", "broker 4")
    assert finding.what == "the broker is down: it is not registered, and has 3 replicas (t-0, t-1, t-2)"
    assert "odradek partition move --off 4" in finding.remedy


class OldBroker(Cluster):
    """A broker that creates the topics which a client names, or a newer one. :ivar asked: the last request."""

    def __init__(self, version):
        super().__init__("a:1")
        self.version = version

    def any_broker(self):
        return self

    def version_of(self, schema, oldest):
        return self.version

    def ask(self, schema, request, oldest):
        self.asked = request
        topic = metadata.Response.MetadataResponseTopic
        present = ("a", "b")
        names = present if request.topics is None else [row.name for row in request.topics]
        return metadata.Response(
            controller_id=1,
            topics=[
                topic(name=name, error_code=0 if name in present else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for name in names
            ],
        )


@pytest.mark.parametrize("version", [3, 4])
def test_no_topic_is_created_because_it_is_named(version):
    cluster = OldBroker(version)
    assert list(cluster.metadata(["a", "x"]).topics) == ["a"]
    assert (cluster.asked.topics is None) == (version < 4)
    assert cluster.asked.allow_auto_topic_creation == (version < 4)  # older versions have no such field
    assert list(cluster.metadata(()).topics) == []
    assert cluster.asked.topics == [] and list(cluster.metadata().topics) == ["a", "b"]
