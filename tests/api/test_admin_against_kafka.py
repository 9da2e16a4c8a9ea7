"""The same admin requests to this broker and to a real Kafka: the responses must be equal, field by field.

AlterReplicaLogDirs, AlterPartitionReassignments, ListPartitionReassignments, DescribeClientQuotas, AlterClientQuotas,
DescribeUserScramCredentials, UpdateFeatures, DescribeTransactions, ListTransactions, the settings about which
docs/operate/from-kafka.md says how the two differ, and the requests of access rules. Left out is
what `test_against_kafka.comparable` leaves out.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_transactions,
    describe_user_scram_credentials,
    find_coordinator,
    incremental_alter_configs,
    list_partition_reassignments,
    list_transactions,
    update_features,
)
from odradek.testing import Broker
from tests.api.test_against_kafka import comparable, differences
from tests.clients.kafka_peer import Peer
from tests.waiting import until
from tests.wire import Wire

pytestmark = [pytest.mark.xdist_group("admin-against-kafka"), pytest.mark.timeout(900), pytest.mark.java]

CONFIG = {"auto.create.topics.enable": "false"}
US = 1
"""The id of both brokers."""

Make = Callable[["Side"], Any]
OF_TRANSACTIONS = find_coordinator.Request(key_type=1, coordinator_keys=["t", "u"])


class Side:
    """One of the two brokers, with a topic "topic" of two partitions."""

    def __init__(self, host: str, port: int, directory: str, stack: ExitStack) -> None:
        self.directory = directory
        self.wire = stack.enter_context(Wire(host, port))
        self.wire.create("topic", 2)
        self.wire.until_led("topic", 2)

    def ask(self, request: Any, api_key: int, version: int) -> Any:
        """What it answers, to be compared; entities of quotas and what they have in the order of their names."""
        told = comparable(self.wire.ask(request, api_key, version), {})
        for entry in told.get("entries") or ():
            for parts in ("entity", "values"):
                entry.get(parts, []).sort(key=repr)
        if told.get("entries"):
            told["entries"].sort(key=lambda entry: repr(entry["entity"]))
        return told


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Odradek and Kafka."""
    with ExitStack() as stack:
        theirs = stack.enter_context(Peer(tmp_path_factory.mktemp("kafka"), CONFIG))
        ours = stack.enter_context(Broker(CONFIG, directory=tmp_path_factory.mktemp("odradek")))
        host, _, port = theirs.bootstrap_servers.rpartition(":")
        yield (
            Side(ours.host, ours.port, str(ours.data_dir), stack),
            Side(host, int(port), str(theirs.data_dir), stack),
        )


def same(sides: tuple[Side, Side], make: Make, api_key: int, versions: range) -> Any:
    """Both answer alike in all versions; our last answer."""
    found, ours = {}, None
    for version in versions:
        ours, theirs = (side.ask(make(side), api_key, version) for side in sides)
        found[version] = [*differences(ours, theirs), *differences(theirs, ours)]
    assert not any(found.values()), "\n".join(f"version {v}{one}" for v, all_ in found.items() for one in all_)
    return ours


def of_log_dirs(path: Callable[[Side], str], topic: str, *partitions: int) -> Make:
    make = alter_replica_log_dirs.Request

    def request(side: Side) -> Any:
        one = make.AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))
        return make(dirs=[make.AlterReplicaLogDir(path=path(side), topics=[one])])

    return request


@pytest.mark.parametrize(
    ("path", "topic", "code"),
    [
        (lambda side: side.directory, "topic", 0),
        (lambda side: side.directory, "absent", 3),
        (lambda side: "/no/such/directory", "topic", 57),
        (lambda side: "relative", "topic", 57),
    ],
)
def test_replicas_to_other_log_directories(sides, path, topic, code):
    told = same(sides, of_log_dirs(path, topic, 0, 1), alter_replica_log_dirs.API_KEY, range(1, 3))
    assert [one["error_code"] for one in told["results"][0]["partitions"]] == [code, code]


def of_reassignment(topic: str, partition: int, replicas: list[int] | None) -> Make:
    make = alter_partition_reassignments.Request
    one = make.ReassignablePartition(partition_index=partition, replicas=replicas)
    return lambda _: make(topics=[make.ReassignableTopic(name=topic, partitions=[one])])


@pytest.mark.parametrize(
    ("topic", "partition", "replicas", "code"),
    [
        ("topic", 0, [US], 0),
        ("topic", 1, None, 85),
        ("topic", 0, [], 39),
        ("topic", 0, [US, US], 39),
        ("topic", 0, [9], 39),
        ("topic", 0, [-1], 39),
        ("topic", 7, [US], 3),
        ("absent", 0, [US], 3),
    ],
)
def test_reassignments(sides, topic, partition, replicas, code):
    make = of_reassignment(topic, partition, replicas)
    told = same(sides, make, alter_partition_reassignments.API_KEY, range(2))
    assert told["responses"][0]["partitions"][0]["error_code"] == code


@pytest.mark.parametrize("topics", [None, [], [("topic", [0, 1])], [("topic", [7])], [("absent", [0])]])
def test_reassignments_under_way(sides, topics):
    make = list_partition_reassignments.Request
    of = make.ListPartitionReassignmentsTopics
    asked = topics if topics is None else [of(name=name, partition_indexes=indexes) for name, indexes in topics]
    told = same(sides, lambda _: make(topics=asked), list_partition_reassignments.API_KEY, range(1))
    assert told["topics"] == []


def of_quota(entity: dict[str, str | None], *ops: tuple[str, float | None], validate_only: bool = False) -> Make:
    make = alter_client_quotas.Request
    entry = make.EntryData(
        entity=[make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[make.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )
    return lambda _: make(entries=[entry], validate_only=validate_only)


def of_filter(*components: tuple[str, int, str | None], strict: bool = False) -> Make:
    make = describe_client_quotas.Request
    parts = [make.ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components]
    return lambda _: make(components=parts, strict=strict)


EXACT, DEFAULT, ANY = range(3)
RATE = ("producer_byte_rate", 1024.0)


@pytest.fixture(scope="module")
def with_quotas(sides):
    for entity, ops in (
        ({"user": "ann"}, [RATE, ("consumer_byte_rate", 2048.0)]),
        ({"user": None}, [("request_percentage", 50.0)]),
        ({"user": "ann", "client-id": "app"}, [RATE]),
        ({"user": "ann", "client-id": None}, [RATE]),
        ({"client-id": "app"}, [("controller_mutation_rate", 5.0)]),
        ({"ip": "10.0.0.1"}, [("connection_creation_rate", 7.0)]),
    ):
        told = same(sides, of_quota(entity, *ops), alter_client_quotas.API_KEY, range(2))
        assert told["entries"][0]["error_code"] == 0
    told = same(sides, of_quota({"user": "bob"}, RATE, validate_only=True), alter_client_quotas.API_KEY, range(2))
    assert told["entries"][0]["error_code"] == 0
    for ops in ([RATE], [(RATE[0], None)]):
        same(sides, of_quota({"user": "carl"}, *ops), alter_client_quotas.API_KEY, range(2))
    return sides


@pytest.mark.parametrize(
    ("components", "strict", "count"),
    [
        ((), False, 6),
        ((("user", EXACT, "ann"),), False, 3),
        ((("user", EXACT, "ann"),), True, 1),
        ((("user", EXACT, "bob"),), False, 0),
        ((("user", EXACT, "carl"),), False, 0),
        ((("user", DEFAULT, None),), False, 1),
        ((("user", ANY, None),), True, 2),
        ((("user", ANY, None), ("client-id", ANY, None)), True, 2),
        ((("user", EXACT, "ann"), ("client-id", DEFAULT, None)), False, 1),
        ((("client-id", EXACT, "app"),), False, 2),
        ((("ip", ANY, None),), False, 1),
    ],
)
def test_quotas_by_filter(with_quotas, components, strict, count):
    make = of_filter(*components, strict=strict)
    told = same(with_quotas, make, describe_client_quotas.API_KEY, range(2))
    assert len(told["entries"]) == count


@pytest.mark.parametrize(
    "components",
    [
        (("", EXACT, "ann"),),
        (("users", EXACT, "ann"),),
        (("user", EXACT, None),),
        (("user", DEFAULT, "ann"),),
        (("user", 7, None),),
        (("user", EXACT, "ann"), ("user", EXACT, "bob")),
        (("user", EXACT, "ann"), ("ip", EXACT, "10.0.0.1")),
    ],
)
def test_filters_that_cannot_be(with_quotas, components):
    told = same(with_quotas, of_filter(*components), describe_client_quotas.API_KEY, range(2))
    assert told["error_code"] != 0


@pytest.mark.parametrize(
    ("entity", "ops"),
    [
        ({}, [RATE]),
        ({"users": "ann"}, [RATE]),
        ({"user": ""}, [RATE]),
        ({"user": "ann", "ip": "10.0.0.1"}, [RATE]),
        ({"user": "ann"}, [("no_such_rate", 1.0)]),
        ({"user": "ann"}, [("producer_byte_rate", -1.0)]),
        ({"user": "ann"}, [("producer_byte_rate", 0.5)]),
        ({"user": "ann"}, [("connection_creation_rate", 1.0)]),
        ({"ip": "10.0.0.1"}, [RATE]),
        ({"ip": "not an address"}, [("connection_creation_rate", 1.0)]),
        ({"ip": "10.0.0.1"}, [("connection_creation_rate", 1.5)]),
    ],
)
def test_quotas_that_cannot_be(with_quotas, entity, ops):
    told = same(with_quotas, of_quota(entity, *ops), alter_client_quotas.API_KEY, range(2))
    assert told["entries"][0]["error_code"] != 0
    assert len(same(with_quotas, of_filter(), describe_client_quotas.API_KEY, range(2))["entries"]) == 6


@pytest.mark.parametrize("users", [None, [], ["ann"], ["ann", "bob"], ["ann", "ann"], [""]])
def test_scram_credentials(sides, users):
    make = describe_user_scram_credentials.Request
    asked = users if users is None else [make.UserName(name=name) for name in users]
    told = same(sides, lambda _: make(users=asked), describe_user_scram_credentials.API_KEY, range(1))
    assert all(one["error_code"] for one in told["results"])


@pytest.mark.parametrize(
    ("name", "level", "fields"),
    [
        ("no.such.feature", 1, {}),
        ("no.such.feature", 0, {}),
        ("no.such.feature", -1, {}),
        ("no.such.feature", 1, {"upgrade_type": 2}),
        ("no.such.feature", 0, {"upgrade_type": 3}),
        ("no.such.feature", 1, {"upgrade_type": 9}),
        ("", 1, {}),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_features(sides, name, level, fields, validate_only):
    make = update_features.Request
    one = make.FeatureUpdateKey(feature=name, max_version_level=level, **fields)
    versions = range(1, 3) if fields or validate_only else range(3)
    told = same(
        sides,
        lambda _: make(feature_updates=[one], validate_only=validate_only),
        update_features.API_KEY,
        versions,
    )
    assert told["error_code"] != 0


def test_no_features(sides):
    told = same(sides, lambda _: update_features.Request(), update_features.API_KEY, range(3))
    assert told["error_code"] == 0


def test_transactions_that_there_are_not(sides):
    """A broker knows that only once it coordinates them: it makes `__transaction_state` for the first request."""
    make = describe_transactions.Request
    busy = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}

    def serves(side):
        found = side.wire.ask(OF_TRANSACTIONS, find_coordinator.API_KEY, 4).coordinators
        described = side.ask(make(transactional_ids=["t", "u"]), describe_transactions.API_KEY, 0)
        codes = {one.error_code for one in found} | {one["error_code"] for one in described["transaction_states"]}
        return not busy & codes

    for side in sides:
        until(lambda side=side: serves(side), "the coordinator of transactions")
    told = same(sides, lambda _: make(transactional_ids=["t", "u"]), describe_transactions.API_KEY, range(1))
    assert len(told["transaction_states"]) == 2


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        (0, {}),
        (0, {"state_filters": ["Ongoing", "NoSuchState"], "producer_id_filters": [7]}),
        (1, {"duration_filter": 10}),
        (2, {"transactional_id_pattern": "t.*"}),
        (2, {"transactional_id_pattern": "t("}),
        (2, {"transactional_id_pattern": ""}),
    ],
)
def test_transactions_by_filter(sides, version, fields):
    request = list_transactions.Request(**fields)
    told = same(sides, lambda _: request, list_transactions.API_KEY, range(version, 3))
    assert told["transaction_states"] == []


def test_access_rules_without_an_authorizer(sides):
    rule = {"operation": 3, "permission_type": 3}
    of_topic = {"resource_type": 2, "resource_name": "topic", "principal": "User:a", "host": "*"}
    filters = {"resource_type_filter": 2, "resource_name_filter": "topic", "principal_filter": None}
    told = same(sides, lambda side: describe_acls.Request(**filters, **rule), describe_acls.API_KEY, range(1, 4))
    assert told["error_code"] == ErrorCode.SECURITY_DISABLED
    one = create_acls.Request.AclCreation(**of_topic, **rule)
    told = same(sides, lambda side: create_acls.Request(creations=[one, one]), create_acls.API_KEY, range(1, 4))
    assert [result["error_code"] for result in told["results"]] == [ErrorCode.SECURITY_DISABLED] * 2
    gone = delete_acls.Request.DeleteAclsFilter(**filters, **rule)
    told = same(sides, lambda side: delete_acls.Request(filters=[gone]), delete_acls.API_KEY, range(1, 4))
    assert [result["error_code"] for result in told["filter_results"]] == [ErrorCode.SECURITY_DISABLED]


LOGGER = 8
SET, DELETE, APPEND, SUBTRACT = range(4)


def of_levels(*edits: tuple[str, int, str | None], name: str = str(US), validate_only: bool = False) -> Make:
    make = incremental_alter_configs.Request
    configs = [make.AlterableConfig(name=logger, config_operation=how, value=value) for logger, how, value in edits]
    resource = make.AlterConfigsResource(resource_type=LOGGER, resource_name=name, configs=configs)
    return lambda _: make(resources=[resource], validate_only=validate_only)


@pytest.mark.parametrize(
    ("edits", "name", "code"),
    [
        ([("root", SET, "WARN")], "1", 0),
        ([("root", SET, "INFO")], "1", 0),
        ([("root", DELETE, None)], "1", 42),
        ([("root", SET, "LOUD")], "1", 40),
        ([("root", SET, "debug")], "1", 40),
        ([("root", APPEND, "INFO")], "1", 42),
        ([("root", SUBTRACT, "INFO")], "1", 42),
        ([("root", SET, None)], "1", 42),
        ([("root", SET, "INFO"), ("root", SET, "INFO")], "1", 42),
        ([("no.such.logger", SET, "INFO")], "1", 40),
        ([("root", SET, "INFO")], "7", 42),
        ([("root", SET, "INFO")], "x", 42),
        ([("root", SET, "INFO")], "", 42),
        ([], "1", 0),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_levels_of_loggers(sides, edits, name, code, validate_only):
    make = of_levels(*edits, name=name, validate_only=validate_only)
    told = same(sides, make, incremental_alter_configs.API_KEY, range(2))
    assert told["responses"][0]["error_code"] == code


def test_levels_of_loggers_are_described(sides):
    make = describe_configs.Request

    def request(name: str, keys: list[str] | None) -> Make:
        resource = make.DescribeConfigsResource(resource_type=LOGGER, resource_name=name, configuration_keys=keys)
        return lambda _: make(resources=[resource], include_synonyms=True)

    for version in range(1, 5):
        ours, theirs = (
            side.ask(request("1", ["root"])(side), describe_configs.API_KEY, version)["results"][0]["configs"][0]
            for side in sides
        )
        assert ours | {"documentation": ""} == theirs | {"documentation": ""} and ours["value"] == "INFO"
    for name, code in (("7", 42), ("x", 42), ("", 42)):
        told = same(sides, request(name, None), describe_configs.API_KEY, range(1, 5))
        assert told["results"][0]["error_code"] == code


def test_levels_of_loggers_are_not_replaced_all_at_once(sides):
    make = alter_configs.Request
    resource = make.AlterConfigsResource(
        resource_type=LOGGER, resource_name="1", configs=[make.AlterableConfig(name="root", value="INFO")]
    )
    told = same(sides, lambda _: make(resources=[resource]), alter_configs.API_KEY, range(3))
    assert told["responses"][0]["error_code"] == 42


TOPIC, BROKER = 2, 4


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "ours", "theirs"),
    [
        (TOPIC, "topic", "retention.bytes", "-2", 0, 0),
        (TOPIC, "topic", "retention.ms", "-2", 40, 40),
        (TOPIC, "topic", "no.such.key", "x", 40, 40),
        (BROKER, "1", "log.retention.bytes", "-2", 0, 0),
        # The differences, each with its reason in docs/operate/from-kafka.md.
        (BROKER, "1", "no.such.key", "x", 42, 0),
        (BROKER, "", "no.such.key", "x", 42, 0),
        (BROKER, "1", "log.retention.ms", "-2", 42, 0),
        (TOPIC, "topic", "message.format.version", "2.8", 0, 40),
        (TOPIC, "topic", "message.timestamp.difference.max.ms", "5", 0, 40),
    ],
)
def test_settings_that_one_of_the_two_may_refuse(sides, kind, name, key, value, ours, theirs):
    def altered(make: Any, api_key: int, **fields: int) -> Make:
        configs = [make.AlterableConfig(name=key, value=value, **fields)]
        resource = make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        return lambda side: side.ask(make(resources=[resource]), api_key, 1)["responses"][0]["error_code"]

    edit = altered(incremental_alter_configs.Request, incremental_alter_configs.API_KEY, config_operation=SET)
    forget = altered(incremental_alter_configs.Request, incremental_alter_configs.API_KEY, config_operation=DELETE)
    replace = altered(alter_configs.Request, alter_configs.API_KEY)
    expected = [ours, theirs]
    assert [edit(side) for side in sides] == expected
    assert [forget(side) for side in sides] == [0, 0]
    if name:  # Kafka 4 refuses to replace the settings of all brokers, because one of them cannot be removed
        assert [replace(side) for side in sides] == expected
        assert [forget(side) for side in sides] == [0, 0]
