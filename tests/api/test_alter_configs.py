"""AlterConfigs, IncrementalAlterConfigs, DescribeLogDirs, DescribeProducers, ElectLeaders, ListConfigResources on the wire."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    alter_configs,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
)
from tests.api.group_talk import GroupTalk
from tests.waiting import until
from tests.wire import batch

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

pytestmark = pytest.mark.xdist_group("api-other")


def alter(wire, name, *edits, kind=TOPIC, validate_only=False):
    make = incremental_alter_configs.Request
    configs = [make.AlterableConfig(name=key, config_operation=verb, value=value) for key, verb, value in edits]
    resource = make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = make(resources=[resource], validate_only=validate_only)
    (told,) = wire.ask(request, incremental_alter_configs.API_KEY, 1).responses
    return told


def settings(wire, name):
    """Those of the topic's own."""
    make = describe_configs.Request
    request = make(
        resources=[make.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)]
    )
    (result,) = wire.ask(request, describe_configs.API_KEY, 4).results
    return {one.name: one.value for one in result.configs if one.config_source == 1}


def test_settings_are_set_extended_and_deleted(wire, name):
    wire.create(name)
    assert alter(wire, name, ("retention.ms", SET, "1000"), ("segment.bytes", SET, "2097152")).error_code == 0
    assert settings(wire, name) == {"retention.ms": "1000", "segment.bytes": "2097152"}
    assert alter(wire, name, ("cleanup.policy", APPEND, "compact"), ("retention.ms", DELETE, None)).error_code == 0
    assert settings(wire, name) == {"cleanup.policy": "delete,compact", "segment.bytes": "2097152"}
    assert alter(wire, name, ("cleanup.policy", SUBTRACT, "delete")).error_code == 0
    assert settings(wire, name)["cleanup.policy"] == "compact"


def test_a_setting_is_in_force_when_it_is_answered(wire, name):
    wire.create(name)
    assert wire.produce(name, batch(bytes(500))).error_code == 0
    assert alter(wire, name, ("max.message.bytes", SET, "200")).error_code == 0
    assert wire.produce(name, batch(bytes(500))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(wire, name, ("max.message.bytes", DELETE, None)).error_code == 0
    assert wire.produce(name, batch(bytes(500))).error_code == 0


@pytest.mark.parametrize(
    ("edit", "code", "says"),
    [
        (("no.such", SET, "1"), ErrorCode.INVALID_CONFIG, "no.such"),
        (("retention.ms", SET, "many"), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (("min.cleanable.dirty.ratio", SET, "2"), ErrorCode.INVALID_CONFIG, "min.cleanable.dirty.ratio"),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "retention.ms"),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST, "operation 9"),
    ],
)
def test_an_invalid_setting_is_named_and_nothing_changes(wire, name, edit, code, says):
    wire.create(name)
    told = alter(wire, name, ("segment.ms", SET, "5000"), edit)
    assert told.error_code == code
    assert says in told.error_message
    assert settings(wire, name) == {}


def test_validation_only_changes_nothing(wire, name):
    wire.create(name)
    assert alter(wire, name, ("retention.ms", SET, "1"), validate_only=True).error_code == 0
    assert settings(wire, name) == {}


def test_a_key_that_is_named_twice_and_unknown_resources_are_refused(wire, name):
    wire.create(name)
    twice = alter(wire, name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert twice.error_code == ErrorCode.INVALID_REQUEST
    missing = alter(wire, "no-such-topic", ("retention.ms", SET, "1"))
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(wire, "a/b", ("retention.ms", SET, "1")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", range(3))
def test_all_settings_are_replaced(wire, name, version):
    wire.create(name, retention_ms=5)
    make = alter_configs.Request
    configs = [make.AlterableConfig(name="segment.ms", value="6000")]
    resource = make.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)
    (told,) = wire.ask(make(resources=[resource]), alter_configs.API_KEY, version).responses
    assert told.error_code == 0
    assert settings(wire, name) == {"segment.ms": "6000"}


@pytest.mark.parametrize("version", range(6))
def test_log_dirs_contain_the_sizes_of_partitions(wire, name, version):
    wire.create(name, 2)
    data = batch(bytes(1000))
    wire.produce(name, data, 1)
    topics = [describe_log_dirs.Request.DescribableLogDirTopic(topic=name, partitions=[0, 1, 7])]
    (result,) = wire.ask(describe_log_dirs.Request(topics=topics), describe_log_dirs.API_KEY, version).results
    assert result.error_code == 0
    (topic,) = result.topics
    sizes = {one.partition_index: one.partition_size for one in topic.partitions}
    assert sizes == {0: 0, 1: len(data)}
    if version >= 4:
        assert result.total_bytes > result.usable_bytes > 0
    everything = wire.ask(describe_log_dirs.Request(topics=None), describe_log_dirs.API_KEY, version).results
    assert name in {one.name for one in everything[0].topics}


def test_producers_of_a_partition(wire, name):
    wire.create(name)
    wire.produce(name, batch(b"a", b"b", producer_id=4711, producer_epoch=3, base_sequence=0))
    make = describe_producers.Request
    request = make(topics=[make.TopicRequest(name=name, partition_indexes=[0, 5])])
    (topic,) = wire.ask(request, describe_producers.API_KEY, 0).topics
    known, missing = topic.partitions
    (one,) = known.active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_start_offset) == (4711, 3, 1, -1)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(3))
def test_there_is_nothing_to_elect(wire, name, version):
    wire.create(name)
    make = elect_leaders.Request
    request = make(topic_partitions=[make.TopicPartitions(topic=name, partitions=[0, 9])])
    (result,) = wire.ask(request, elect_leaders.API_KEY, version).replica_election_results
    codes = [one.error_code for one in result.partition_result]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert wire.ask(make(topic_partitions=None), elect_leaders.API_KEY, version).replica_election_results == []


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_type_of_election_is_refused_in_the_response_and_in_each_partition(wire, name, version):
    make = elect_leaders.Request
    partitions = [make.TopicPartitions(topic=name, partitions=[0, 1])]
    response = wire.ask(make(election_type=7, topic_partitions=partitions), elect_leaders.API_KEY, version)
    (result,) = response.replica_election_results
    codes = {row.partition_id: row.error_code for row in result.partition_result}
    assert (response.error_code, result.topic) == (ErrorCode.INVALID_REQUEST, name)
    assert codes == {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.INVALID_REQUEST}
    assert "election type 7" in result.partition_result[0].error_message
    response = wire.ask(make(election_type=7, topic_partitions=None), elect_leaders.API_KEY, version)
    assert (response.error_code, response.replica_election_results) == (ErrorCode.INVALID_REQUEST, [])


def test_resources_with_configuration_are_listed(wire, name):
    wire.create(name)
    request = list_config_resources.Request(resource_types=[TOPIC, BROKER])
    found = {
        (one.resource_type, one.resource_name)
        for one in wire.ask(request, list_config_resources.API_KEY, 1).config_resources
    }
    assert {(TOPIC, name), (BROKER, "1")} <= found


def described(wire, kind, name, *keys):
    """(value, source) by key."""
    make = describe_configs.Request
    asked = make.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    (result,) = wire.ask(make(resources=[asked], include_synonyms=True), describe_configs.API_KEY, 4).results
    assert result.error_code == 0, result
    return {one.name: (one.value, one.config_source) for one in result.configs}


@pytest.fixture
def clean(wire):
    """Afterwards nothing is set at run time."""
    yield
    make = alter_configs.Request
    resources = [make.AlterConfigsResource(resource_type=BROKER, resource_name=one, configs=[]) for one in ("", "1")]
    told = wire.ask(make(resources=resources), alter_configs.API_KEY, 2).responses
    assert [one.error_code for one in told] == [0, 0]


@pytest.mark.usefixtures("clean")
def test_a_broker_s_setting_is_in_force_for_every_topic_when_it_is_answered(wire, name):
    wire.create(name)
    wire.create(f"{name}-own", max_message_bytes=5000)
    large = batch(bytes(500))
    assert alter(wire, "", ("message.max.bytes", SET, "200"), kind=BROKER).error_code == 0
    assert wire.produce(name, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert wire.produce(f"{name}-own", large).error_code == 0
    assert described(wire, TOPIC, name, "max.message.bytes") == {"max.message.bytes": ("200", 3)}
    assert alter(wire, "1", ("message.max.bytes", SET, "4000"), kind=BROKER).error_code == 0
    assert wire.produce(name, large).error_code == 0
    assert described(wire, TOPIC, name, "max.message.bytes") == {"max.message.bytes": ("4000", 2)}
    assert described(wire, BROKER, "1", "message.max.bytes") == {"message.max.bytes": ("4000", 2)}
    assert described(wire, BROKER, "") == {"message.max.bytes": ("200", 3)}
    assert alter(wire, "1", ("message.max.bytes", DELETE, None), kind=BROKER).error_code == 0
    assert wire.produce(name, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    wire.create(f"{name}-new")
    assert wire.produce(f"{name}-new", large).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.usefixtures("clean")
def test_a_limit_of_connections_holds_from_when_it_is_answered(wire, connect):
    """Or from soon after: the answer waits for the process that accepts, for two seconds."""

    def refused():
        other = connect()
        try:
            other.metadata()
        except (EOFError, ConnectionError):
            return True
        other.socket.close()
        return False

    assert alter(wire, "1", ("max.connections.per.ip", SET, "1"), kind=BROKER).error_code == 0
    until(refused, "a second connection is served")
    assert alter(wire, "1", ("max.connections.per.ip", DELETE, None), kind=BROKER).error_code == 0
    until(lambda: not refused(), "a second connection is refused")


@pytest.mark.parametrize(
    ("who", "edit", "says"),
    [
        ("1", ("broker.id", SET, "7"), "broker.id=7: cannot be changed at run time"),
        ("1", ("no.such", SET, "7"), "no.such=7: is not a broker configuration key"),
        ("1", ("log.cleaner.threads", SET, "-1"), "must be an integer from 0 to 2147483647"),
        ("", ("ssl.keystore.type", SET, "JKS"), "set listener.name.<listener>.ssl.keystore.type"),
        ("7", ("log.roll.ms", SET, "7"), "expected 1, but received 7"),
        ("x", ("log.roll.ms", SET, "7"), "must be an integer, but it is: x"),
        ("1", ("log.roll.ms", SET, None), "Null value not supported for : log.roll.ms"),
    ],
)
def test_a_setting_that_a_broker_refuses_is_named_and_nothing_changes(wire, who, edit, says):
    told = alter(wire, who, ("log.segment.bytes", SET, "2000"), edit, kind=BROKER)
    assert told.error_code == ErrorCode.INVALID_REQUEST
    assert says in told.error_message
    assert described(wire, BROKER, "") == {}
    assert {source for _, source in described(wire, BROKER, "1").values()} <= {4, 5}


def test_validation_only_of_broker_settings_changes_nothing(wire):
    assert alter(wire, "", ("log.roll.ms", SET, "7"), kind=BROKER, validate_only=True).error_code == 0
    assert described(wire, BROKER, "") == {}


def test_settings_of_groups_are_kept_checked_and_listed(wire, name):
    key = "consumer.session.timeout.ms"
    assert described(wire, GROUP, name)[key] == ("45000", 5)
    assert alter(wire, name, (key, SET, "50000"), kind=GROUP).error_code == 0
    assert described(wire, GROUP, name)[key] == ("50000", 8)
    request = list_config_resources.Request(resource_types=[GROUP])
    listed = wire.ask(request, list_config_resources.API_KEY, 1).config_resources
    assert (GROUP, name) in {(one.resource_type, one.resource_name) for one in listed}
    refused = alter(wire, name, (key, SET, "1"), kind=GROUP)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "from 45000 (group.consumer.min.session.timeout.ms) to 60000" in refused.error_message
    assert alter(wire, "", (key, SET, "50000"), kind=GROUP).error_code == ErrorCode.INVALID_REQUEST
    assert alter(wire, name, (key, DELETE, None), kind=GROUP).error_code == 0
    assert wire.ask(request, list_config_resources.API_KEY, 1).config_resources == []


def test_a_group_s_settings_are_in_force_when_they_are_answered(wire_broker, name):
    def told_interval(member_id, epoch):
        told = wire.beat(name, member_id, epoch)
        assert told.error_code == ErrorCode.NONE
        return told.member_epoch, told.heartbeat_interval_ms

    key = "consumer.heartbeat.interval.ms"
    with GroupTalk(wire_broker.host, wire_broker.port) as wire:
        wire.create(name)
        wire.until_coordinated(name)
        epoch, interval_ms = told_interval("m" * 22, 0)
        assert interval_ms == 5000
        assert alter(wire, name, (key, SET, "7000"), kind=GROUP).error_code == 0
        assert told_interval("m" * 22, epoch) == (epoch, 7000)
        assert alter(wire, name, (key, DELETE, None), kind=GROUP).error_code == 0
        assert told_interval("m" * 22, epoch) == (epoch, 5000)
        assert wire.beat(name, "m" * 22, -1).error_code == ErrorCode.NONE


def test_assignments_of_a_group_are_as_far_apart_as_the_broker_or_the_group_says(wire_broker, name):
    own, of_all = "consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms"
    first, second = "a" * 22, "b" * 22
    with GroupTalk(wire_broker.host, wire_broker.port) as wire:
        wire.create(name, 2)
        wire.until_coordinated(name)
        assert alter(wire, name, (own, SET, "3600000"), kind=GROUP).error_code == 0
        topics = {"subscribed_topic_names": [name]}
        joined = wire.beat(name, first, 0, **topics)
        assert len(joined.assignment.topic_partitions[0].partitions) == 2
        early = wire.beat(name, second, 0, **topics)
        assert (early.member_epoch, early.assignment.topic_partitions) == (joined.member_epoch, [])
        assert alter(wire, "", (of_all, SET, "0"), kind=BROKER).error_code == 0
        assert wire.beat(name, second, early.member_epoch).member_epoch == early.member_epoch  # the group has its own
        assert alter(wire, name, (own, DELETE, None), kind=GROUP).error_code == 0
        assert wire.beat(name, second, early.member_epoch).member_epoch == early.member_epoch + 1
        assert alter(wire, "", (of_all, DELETE, None), kind=BROKER).error_code == 0


@pytest.mark.parametrize("kind", [0, 16, 99])
def test_other_resources_are_refused(wire, kind):
    told = alter(wire, "1", ("root", SET, "DEBUG"), kind=kind)
    assert told.error_code == ErrorCode.INVALID_REQUEST
    assert told.error_message


def test_what_a_topic_does_not_have_may_be_deleted(wire, name):
    wire.create(name)
    assert alter(wire, name, ("no.such", DELETE, None)).error_code == 0
