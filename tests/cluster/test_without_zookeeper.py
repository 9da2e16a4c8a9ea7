"""Requests of administrators while ZooKeeper is away: they fail after the session timeout, and the error names ZooKeeper."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.api.answer_errors import errors_of
from odradek.api.api import Place
from odradek.api.settings.config_changes import BROKER, GROUP, SET, TOPIC
from odradek.api.settings.describe_client_quotas import ANY
from odradek.api.table import served_rows
from odradek.clients.errors import ClientError
from odradek.clients.wire import Connection
from odradek.metadata import znodes
from odradek.metadata.zookeeper import ZookeeperOptions, ZookeeperStore
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    controlled_shutdown,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_delegation_token,
    describe_log_dirs,
    describe_user_scram_credentials,
    elect_leaders,
    expire_delegation_token,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_partition_reassignments,
    offset_commit,
    offset_fetch,
    renew_delegation_token,
    update_features,
)
from odradek.testing.broker_process import Broker
from tests.cluster import shown
from tests.waiting import until
from tests.zookeeper import ZookeeperServer

pytestmark = [pytest.mark.xdist_group("without-zookeeper"), pytest.mark.timeout(600)]

IDS = (1, 2)
SESSION_MS = 2000
NAME = "orders"


class Site:
    """Two brokers with a topic of two replicas, and their ZooKeeper."""

    def __init__(self, zookeeper: ZookeeperServer, brokers: dict[int, Broker]) -> None:
        self.zookeeper, self.brokers = zookeeper, brokers

    def ask(self, broker_id: int, api: ApiSchema, request: Any, newest: int | None = None) -> Any:
        """The response of a broker. ``newest``: the newest version of the request to use."""
        with closing(Connection("127.0.0.1", self.brokers[broker_id].port, 60)) as connection:
            return connection.ask(api, request, newest=newest)

    @property
    def controller(self) -> int:
        """The controller that the first broker shows."""
        return shown.brokers(self.brokers[1].bootstrap_servers)[0]

    def leader(self) -> int:
        """The leader of the topic's partition."""
        return shown.leaders(self.brokers[1].bootstrap_servers, NAME).get(0, -1)

    def works(self) -> bool:
        """Whether both brokers are registered, the controller serves, and all replicas are in sync."""
        addresses = [broker.bootstrap_servers for broker in self.brokers.values()]
        found = [shown.brokers(address) for address in addresses]
        if {ids == set(IDS) for _, ids in found} != {True} or len({controller for controller, _ in found}) > 1:
            return False
        probe = create_topics.Request.CreatableTopic(name="probe", num_partitions=1, replication_factor=2)
        try:
            answer = self.ask(
                self.controller, create_topics.SCHEMA, create_topics.Request(topics=[probe], validate_only=True)
            )
        except (ClientError, KeyError):
            return False
        in_sync = [shown.in_sync(address, NAME) for address in addresses]
        return answer.topics[0].error_code == 0 and in_sync == [{0: set(IDS)}] * len(IDS)

    def wait(self) -> None:
        """Wait until the cluster works."""
        until(self.works, lambda: f"the cluster works: {self.brokers[1].log_tail()}")

    def restart_zookeeper(self) -> None:
        """Replace the server that is paused: it would execute the requests that it has received, and change the topic."""
        self.zookeeper.kill()
        self.zookeeper.start()
        self.wait()

    def epoch(self) -> int:
        """The broker epoch of the first broker."""
        with closing(ZookeeperStore(ZookeeperOptions(self.zookeeper.hosts))) as store:
            stat = store.exists(znodes.broker_path(1))
            assert stat is not None
            return stat.created


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("without")
    config = {
        "zookeeper.session.timeout.ms": SESSION_MS,
        "num.network.threads": 1,
        "offsets.topic.replication.factor": 1,
        "auto.leader.rebalance.enable": "false",
    }
    with ZookeeperServer() as zookeeper:
        config["zookeeper.connect"] = zookeeper.hosts
        with (
            Broker(config | {"broker.id": 1}, directory=directory / "1") as first,
            Broker(config | {"broker.id": 2}, directory=directory / "2") as second,
        ):
            site = Site(zookeeper, {1: first, 2: second})
            until(lambda: site.controller in IDS, "there is a controller")
            replicas = create_topics.Request.CreatableReplicaAssignment(partition_index=0, broker_ids=list(IDS))
            topic = create_topics.Request.CreatableTopic(
                name=NAME, num_partitions=-1, replication_factor=-1, assignments=[replicas]
            )
            until(
                lambda: (
                    not errors_of(
                        create_topics.API_KEY,
                        site.ask(site.controller, create_topics.SCHEMA, create_topics.Request(topics=[topic])),
                    )
                ),
                "the topic is created",
            )
            site.wait()
            yield site


class Case(NamedTuple):
    """A request. ``prepare``: makes it from the site, before ZooKeeper is away; ``says``: its response has a message.

    ``newest``: the newest version to use.
    """

    api: ApiSchema
    prepare: Callable[[Site], Any]
    says: bool = True
    code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
    newest: int | None = None


def resource(kind: int, name: str, key: str, value: str) -> Any:
    make = incremental_alter_configs.Request
    setting = make.AlterableConfig(name=key, config_operation=SET, value=value)
    return make(resources=[make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[setting])])


def replaced(kind: int, name: str, key: str, value: str) -> Any:
    make = alter_configs.Request
    setting = make.AlterableConfig(name=key, value=value)
    return make(resources=[make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[setting])])


def described(kind: int, name: str) -> Any:
    make = describe_configs.Request
    return make(resources=[make.DescribeConfigsResource(resource_type=kind, resource_name=name)])


def quotas() -> Any:
    make = alter_client_quotas.Request
    entity = [make.EntityData(entity_type="user", entity_name="alice")]
    return make(entries=[make.EntryData(entity=entity, ops=[make.OpData(key="producer_byte_rate", value=1.0)])])


def reassigned(*replicas: int) -> Any:
    make = alter_partition_reassignments.Request
    partition = make.ReassignablePartition(partition_index=0, replicas=list(replicas))
    return make(topics=[make.ReassignableTopic(name=NAME, partitions=[partition])])


def elected(site: Site) -> Any:
    """An election that changes the leader: the other replica is made the preferred one before."""
    leader = site.leader()
    order = [*(set(IDS) - {leader}), leader]
    site.ask(site.controller, alter_partition_reassignments.SCHEMA, reassigned(*order))
    with closing(ZookeeperStore(ZookeeperOptions(site.zookeeper.hosts))) as store:
        until(
            lambda: znodes.decode_topic(NAME, store.get(znodes.topic_path(NAME))[0]).partitions[0] == order,
            "the order of the replicas is changed",
        )
    make = elect_leaders.Request
    return make(election_type=0, topic_partitions=[make.TopicPartitions(topic=NAME, partitions=[0])])


def committed() -> Any:
    make = offset_commit.Request
    partition = make.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return make(group_id="g", topics=[make.OffsetCommitRequestTopic(name=NAME, partitions=[partition])])


def fetched() -> Any:
    make = offset_fetch.Request
    return make(group_id="g", topics=[make.OffsetFetchRequestTopic(name=NAME, partition_indexes=[0])])


CASES = {
    "CreateTopics": Case(
        create_topics.SCHEMA,
        lambda _: create_topics.Request(
            topics=[create_topics.Request.CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
        ),
    ),
    "DeleteTopics": Case(
        delete_topics.SCHEMA,
        lambda _: delete_topics.Request(topics=[delete_topics.Request.DeleteTopicState(name=NAME)]),
    ),
    "CreatePartitions": Case(
        create_partitions.SCHEMA,
        lambda _: create_partitions.Request(
            topics=[create_partitions.Request.CreatePartitionsTopic(name=NAME, count=3, assignments=None)]
        ),
    ),
    "AlterPartitionReassignments": Case(alter_partition_reassignments.SCHEMA, lambda site: reassigned(site.leader())),
    "ElectLeaders": Case(elect_leaders.SCHEMA, elected),
    "AllocateProducerIds": Case(
        allocate_producer_ids.SCHEMA,
        lambda site: allocate_producer_ids.Request(broker_id=1, broker_epoch=site.epoch()),
        says=False,
    ),
    "IncrementalAlterConfigs of a topic": Case(
        incremental_alter_configs.SCHEMA, lambda _: resource(TOPIC, NAME, "retention.ms", "1000")
    ),
    "IncrementalAlterConfigs of all brokers": Case(
        incremental_alter_configs.SCHEMA, lambda _: resource(BROKER, "", "log.retention.ms", "1000")
    ),
    "IncrementalAlterConfigs of a group": Case(
        incremental_alter_configs.SCHEMA, lambda _: resource(GROUP, "g", "consumer.session.timeout.ms", "50000")
    ),
    "AlterConfigs of a topic": Case(alter_configs.SCHEMA, lambda _: replaced(TOPIC, NAME, "retention.ms", "1000")),
    "AlterClientQuotas": Case(alter_client_quotas.SCHEMA, lambda _: quotas()),
    "AlterUserScramCredentials": Case(
        alter_user_scram_credentials.SCHEMA,
        lambda _: alter_user_scram_credentials.Request(
            deletions=[],
            upsertions=[
                alter_user_scram_credentials.Request.ScramCredentialUpsertion(
                    name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
                )
            ],
        ),
    ),
    "DescribeClientQuotas": Case(
        describe_client_quotas.SCHEMA,
        lambda _: describe_client_quotas.Request(
            components=[describe_client_quotas.Request.ComponentData(entity_type="user", match_type=ANY, match=None)]
        ),
    ),
    "DescribeConfigs of a topic": Case(describe_configs.SCHEMA, lambda _: described(TOPIC, NAME)),
    "DescribeConfigs of a group": Case(describe_configs.SCHEMA, lambda _: described(GROUP, "g")),
    "ListConfigResources": Case(list_config_resources.SCHEMA, lambda _: list_config_resources.Request(), says=False),
    # Clients retry InitProducerId after this error, and the response has no message.
    "InitProducerId": Case(
        init_producer_id.SCHEMA,
        lambda _: init_producer_id.Request(transactional_id=None),
        says=False,
        code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ),
    # Groups of clients of Kafka 0.8 are in the tree. Clients retry DeleteGroups after this error.
    "DeleteGroups": Case(
        delete_groups.SCHEMA,
        lambda _: delete_groups.Request(groups_names=["g"]),
        says=False,
        code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
    "OffsetCommit to the tree": Case(offset_commit.SCHEMA, lambda _: committed(), says=False, newest=0),
    "OffsetFetch from the tree": Case(offset_fetch.SCHEMA, lambda _: fetched(), says=False, newest=0),
}
NEED_NO_ZOOKEEPER = {
    delete_records.API_KEY,
    describe_log_dirs.API_KEY,
    alter_replica_log_dirs.API_KEY,
    describe_user_scram_credentials.API_KEY,
    update_features.API_KEY,
    list_partition_reassignments.API_KEY,
    create_delegation_token.API_KEY,  # these four are refused on a listener without a login
    renew_delegation_token.API_KEY,
    expire_delegation_token.API_KEY,
    describe_delegation_token.API_KEY,
    describe_acls.API_KEY,  # these three are refused without an authorizer
    create_acls.API_KEY,
    delete_acls.API_KEY,
    20102,  # ListTreeOffsets: of clients of Kafka 0.8; private
}
"""Requests that the store thread executes from memory, or that are refused without the tree."""
REPEATED_BY_BROKERS = {alter_partition.API_KEY, controlled_shutdown.API_KEY}
"""Requests of brokers: their connection is closed, and they are repeated."""


def test_every_request_of_the_store_thread_is_a_case() -> None:
    of_store = {
        row.key for row in served_rows(clustered=True).values() if row.place in (Place.COORDINATOR, Place.CONTROLLER)
    }
    of_groups = {delete_groups.API_KEY, offset_commit.API_KEY, offset_fetch.API_KEY, init_producer_id.API_KEY}
    cases = {case.api.key for case in CASES.values()}
    assert of_store == (cases - of_groups) | NEED_NO_ZOOKEEPER | REPEATED_BY_BROKERS


@pytest.mark.parametrize("name", CASES)
def test_a_request_times_out_and_says_why(site: Site, name: str) -> None:
    case = CASES[name]
    request = case.prepare(site)
    site.wait()
    controller = site.controller
    (other,) = set(IDS) - {controller}
    site.zookeeper.pause()
    try:
        # The first request waits for the response to its first call, the others for the connection, or not at all.
        for broker_id in (controller, controller, other):
            response = site.ask(broker_id, case.api, request, case.newest)
            codes = errors_of(case.api.key, response)
            assert set(codes) == {case.code}, (
                f"broker {broker_id}: {response}"
            )  # of the whole, or of each part, or both
            assert not case.says or f"ZooKeeper at {site.zookeeper.hosts}" in repr(response)
    finally:
        site.restart_zookeeper()


def test_reassignments_are_listed_until_the_controller_resigns(site: Site) -> None:
    """The controller knows them without ZooKeeper; without a controller, nobody does."""
    site.wait()
    everything = list_partition_reassignments.Request(topics=None)
    described_broker = described(BROKER, "")
    site.zookeeper.pause()
    try:
        for broker_id in IDS:

            def code(broker_id: int = broker_id) -> int:
                answer = site.ask(broker_id, list_partition_reassignments.SCHEMA, everything)
                assert answer.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT), answer
                assert not answer.error_code or f"ZooKeeper at {site.zookeeper.hosts}" in answer.error_message
                return int(answer.error_code)

            until(lambda code=code: code() == ErrorCode.REQUEST_TIMED_OUT, f"broker {broker_id} knows no controller")
            assert not errors_of(
                describe_configs.API_KEY, site.ask(broker_id, describe_configs.SCHEMA, described_broker)
            )
    finally:
        site.restart_zookeeper()
