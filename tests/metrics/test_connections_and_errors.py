"""What /metrics says of connections beyond the open ones, and of errors inside of answers; a real broker, scraped."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.protocol.schemas import (
    api_versions,
    create_topics,
    delete_topics,
    describe_configs,
    leave_group,
    metadata,
    offset_commit,
)
from odradek.testing import Broker
from tests.api.group_talk import GroupTalk
from tests.metrics.scraping import scrape
from tests.waiting import until
from tests.wire import Wire, fetch_request

pytestmark = [pytest.mark.xdist_group("connections-and-errors"), pytest.mark.timeout(600)]

KINDS = 256
"""Of software that a worker has places for."""
SOFTWARE = "kafka_server_socket_server_metrics_connections"
COUNT = "kafka_server_socket_server_metrics_connection_count"
ERRORS = "kafka_network_requestmetrics_errors_total"
CONFIG = {
    "num.network.threads": 1,
    "metrics.listener": "127.0.0.1:0",
    "max.connections": 400,
    "auto.create.topics.enable": "false",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("connections")) as made:
        yield made


def wire(broker: Broker, source: str = "127.0.0.1") -> Wire:
    return Wire.over(socket.create_connection((broker.host, broker.port), source_address=(source, 0)))


def test_software_beyond_the_table_is_other_and_clients_without_a_name_are_unknown(broker: Broker) -> None:
    until(lambda: scrape(broker).sum(COUNT) == 0, "no connections of others")
    with ExitStack() as open_ones:
        for number in range(KINDS + 5):
            client = open_ones.enter_context(wire(broker))
            client.ask(api_versions.Request(client_software_name=f"kind-{number}", client_software_version="1"), 18, 3)
        for _ in range(3):
            open_ones.enter_context(wire(broker)).ask(metadata.Request(topics=[]), 3, 1)
        found = scrape(broker)
        place = {"listener": "PLAINTEXT", "networkprocessor": "0"}
        assert found.value(SOFTWARE, clientsoftwarename="kind-0", clientsoftwareversion="1", **place) == 1
        assert found.value(SOFTWARE, clientsoftwarename="other", clientsoftwareversion="other", **place) == 5
        assert found.value(SOFTWARE, clientsoftwarename="unknown", clientsoftwareversion="unknown", **place) == 3
        assert found.sum(SOFTWARE) == found.sum(COUNT) == KINDS + 8
    until(lambda: scrape(broker).sum(SOFTWARE) == 0, "no connections")


def test_the_connection_limit_and_refusals_are_counted(tmp_path: Path) -> None:
    limits = {"max.connections": 4, "max.connections.per.ip": 2, "max.connections.per.ip.overrides": "127.0.0.2:100"}
    with Broker(CONFIG | limits, directory=tmp_path) as broker, ExitStack() as open_ones:
        before = scrape(broker)
        assert before.value("odradek_connections_limit") == 4
        assert before.value("odradek_connections_refused_total") == before.value("odradek_connections_full_total") == 0
        for _ in range(2):
            open_ones.enter_context(wire(broker)).ask(metadata.Request(topics=[]), 3, 1)
        refused = open_ones.enter_context(wire(broker))
        assert refused.closed_by_broker()
        found = scrape(broker)
        assert found.value("odradek_connections_refused_total") == 1
        assert found.value("odradek_connections_full_total") == 0
        assert found.sum(COUNT) == 2
        for _ in range(2):
            other = open_ones.enter_context(wire(broker, "127.0.0.2"))
            other.ask(metadata.Request(topics=[]), 3, 1)
        open_ones.enter_context(wire(broker, "127.0.0.2"))
        until(lambda: scrape(broker).value("odradek_connections_full_total") == 1, "the limit was reached")


def test_fetch_sessions_and_their_partitions_are_counted(broker: Broker) -> None:
    cache = "kafka_server_fetchsessioncache_"
    names = (
        "numincrementalfetchsessions",
        "numincrementalfetchpartitionscached",
        "incrementalfetchsessionevictions_total",
    )

    def counts() -> list[float]:
        found = scrape(broker)
        return [found.value(cache + name) for name in names]

    assert counts() == [0, 0, 0]
    with wire(broker) as client:
        request = fetch_request([("never-made", number, 0) for number in range(3)], session_epoch=0)
        assert client.ask(request, 1, 12).session_id
        assert counts() == [1, 3, 0]
    until(lambda: counts() == [0, 0, 0], "the session of a closed connection has ended")


def test_errors_of_topics_groups_and_resources_inside_of_answers_are_counted(broker: Broker) -> None:
    before = scrape(broker)
    topic = create_topics.Request.CreatableTopic
    with wire(broker) as client:
        wanted = [
            topic(name=name, num_partitions=1, replication_factor=1) for name in ("inside", "in/valid", "in valid")
        ]
        codes = [
            one.error_code for one in client.ask(create_topics.Request(topics=wanted, timeout_ms=90_000), 19, 5).topics
        ]
        assert sorted(codes) == [0, 17, 17]
        names = [delete_topics.Request.DeleteTopicState(name="never-made")]
        client.ask(delete_topics.Request(topics=names, timeout_ms=90_000), 20, 6)
        resource = describe_configs.Request.DescribeConfigsResource
        client.ask(describe_configs.Request(resources=[resource(resource_type=2, resource_name="never-made")]), 32, 1)
        client.ask(metadata.Request(topics=[metadata.Request.MetadataRequestTopic(name="never-made")]), 3, 5)
        partition = offset_commit.Request.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        offsets = [offset_commit.Request.OffsetCommitRequestTopic(name="inside", partitions=[partition])]
        stale = offset_commit.Request(group_id="g", generation_id_or_member_epoch=3, member_id="nobody", topics=offsets)
        refused = client.ask(stale, 8, 5).topics[0].partitions[0].error_code
        assert refused != 0
        members = [leave_group.Request.MemberIdentity(member_id="nobody")]
        left = client.ask(leave_group.Request(group_id="g", members=members), 13, 4)
    after = scrape(broker)

    def more(request: str, error: str) -> float:
        return after.sum(ERRORS, request=request, error=error) - before.sum(ERRORS, request=request, error=error)

    assert more("CreateTopics", "INVALID_TOPIC_EXCEPTION") == 2
    assert more("DeleteTopics", "UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert more("DescribeConfigs", "UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert more("Metadata", "UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert after.sum(ERRORS, request="OffsetCommit") == 1
    inside = sum(bool(one.error_code) for one in left.members)
    assert after.sum(ERRORS, request="LeaveGroup") == bool(left.error_code) + inside > 0
    # A request is one that failed once, whatever is wrong inside of its answer.
    for api in ("CreateTopics", "DeleteTopics", "DescribeConfigs", "Metadata", "LeaveGroup", "OffsetCommit"):
        assert (
            after.sum("odradek_usage_errors_total", api=api) - before.sum("odradek_usage_errors_total", api=api) == 1
        ), api


def test_a_natively_answered_commit_with_errors_counts_as_one_failed_request(broker: Broker) -> None:
    def counts() -> tuple[float, float, float]:
        found = scrape(broker)
        mine = {"api": "OffsetCommit", "client_id": "wire"}
        usage = [found.sum(f"odradek_usage_{what}_total", **mine) for what in ("requests", "errors")]
        return usage[0], usage[1], found.sum(ERRORS, request="OffsetCommit")

    with GroupTalk(broker.host, broker.port) as wire:
        wire.create("committed", 2)
        wire.until_coordinated("native")
        topic, before = "committed", counts()
        wire.commit("native", {(topic, 0): 1})
        wire.commit("native", {(topic, 0): 2, (topic, 1): 2})
        assert [after - earlier for after, earlier in zip(counts(), before, strict=True)] == [2, 0, 0]
        wire.commit("native", {(topic, 0): 3, (topic, 7): 3, (topic, 8): 3})
        wire.commit("native", {(topic, 0): 4}, generation_id_or_member_epoch=3, member_id="nobody")
        assert [after - earlier for after, earlier in zip(counts(), before, strict=True)] == [4, 2, 3]
