"""AlterConfigs, IncrementalAlterConfigs, DescribeLogDirs, DescribeProducers, ElectLeaders, ListConfigResources on the wire."""

import pytest

from broker.protocol import (
    alter_configs,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
)
from broker.protocol.errors import ErrorCode
from tests.api.wire import batch

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)

pytestmark = [pytest.mark.xdist_group("api-other"), pytest.mark.timeout(60)]


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
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST, "Operation 9"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_changes(wire, name, edit, code, says):
    wire.create(name)
    told = alter(wire, name, ("segment.ms", SET, "5000"), edit)
    assert told.error_code == code
    assert says in told.error_message
    assert settings(wire, name) == {}


def test_only_checking_changes_nothing(wire, name):
    wire.create(name)
    assert alter(wire, name, ("retention.ms", SET, "1"), validate_only=True).error_code == 0
    assert settings(wire, name) == {}


def test_a_key_that_is_named_twice_and_what_is_not_there(wire, name):
    wire.create(name)
    twice = alter(wire, name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert twice.error_code == ErrorCode.INVALID_REQUEST
    missing = alter(wire, "no-such-topic", ("retention.ms", SET, "1"))
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(wire, "a/b", ("retention.ms", SET, "1")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert alter(wire, "1", ("log.retention.ms", SET, "1"), kind=BROKER).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(3))
def test_all_settings_are_replaced(wire, name, version):
    wire.create(name, retention_ms=5)
    make = alter_configs.Request
    configs = [make.AlterableConfig(name="segment.ms", value="6000")]
    resource = make.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)
    (told,) = wire.ask(make(resources=[resource]), alter_configs.API_KEY, version).responses
    assert told.error_code == 0
    assert settings(wire, name) == {"segment.ms": "6000"}


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs_tell_the_sizes_of_partitions(wire, name, version):
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


def test_resources_with_configuration_are_listed(wire, name):
    wire.create(name)
    request = list_config_resources.Request(resource_types=[TOPIC, BROKER])
    found = {
        (one.resource_type, one.resource_name)
        for one in wire.ask(request, list_config_resources.API_KEY, 1).config_resources
    }
    assert {(TOPIC, name), (BROKER, "1")} <= found
