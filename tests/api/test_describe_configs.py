"""DescribeConfigs: topics and the broker, with sources, synonyms and documentation."""

import pytest

from odradek.config.table import BROKER_KEYS, TOPIC_KEYS
from odradek.controller.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_configs
from tests.api.coordinator_harness import Harness, versions
from tests.controller.mortal_cluster import single_broker

KEY = describe_configs.API_KEY
TOPIC, BROKER, LOGGER, METRICS = 2, 4, 8, 16


@pytest.fixture
def harness(tmp_path):
    with single_broker(tmp_path) as make_cluster:
        cluster = make_cluster([("log.retention.hours", "2", "server.properties:1"), ("segment.bytes", "9", "")])
        cluster.controller.create_topics([NewTopic("t", 1, 1, configs=[("segment.ms", "1000")])])
        yield Harness(cluster)


def request(*resources, synonyms=False, documentation=False):
    return describe_configs.Request(
        resources=[
            describe_configs.Request.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=keys
            )
            for kind, name, keys in resources
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )


@pytest.mark.parametrize("version", versions(KEY))
def test_a_topic_has_all_keys_with_the_sources_of_their_values(harness, version):
    (result,) = harness.ask(request((TOPIC, "t", None)), KEY, version).results
    assert (result.error_code, result.resource_type, result.resource_name) == (ErrorCode.NONE, TOPIC, "t")
    entries = {entry.name: entry for entry in result.configs}
    assert set(entries) == set(TOPIC_KEYS)
    values = {name: entry.value for name, entry in entries.items()}
    assert (values["segment.ms"], values["retention.ms"], values["cleanup.policy"]) == ("1000", "7200000", "delete")
    known = ("segment.ms", "retention.ms", "cleanup.policy")
    if version >= 1:
        assert [entries[name].config_source for name in known] == [1, 4, 5]
    else:
        assert [entries[name].is_default for name in known] == [False, False, True]
    assert all(not entry.synonyms for entry in entries.values())
    if version >= 3:
        assert entries["segment.ms"].config_type == TOPIC_KEYS["segment.ms"].type
        assert entries["segment.ms"].documentation is None


def test_synonyms_and_documentation_are_returned_on_request(harness):
    (result,) = harness.ask(
        request((TOPIC, "t", ["retention.ms", "no.such"]), synonyms=True, documentation=True), KEY
    ).results
    (entry,) = result.configs
    first = entry.synonyms[0]
    assert (first.name, first.value, first.source) == ("log.retention.hours", "2", 4)
    assert entry.documentation == TOPIC_KEYS["retention.ms"].doc


def test_the_broker_returns_its_keys_without_secrets(harness):
    results = harness.ask(request((BROKER, "1", None), (BROKER, "", None)), KEY).results
    assert {entry.name for entry in results[0].configs} == set(BROKER_KEYS)
    assert [entry.value for entry in results[0].configs if entry.is_sensitive and entry.value is not None] == []
    assert any(entry.is_sensitive for entry in results[0].configs)
    assert (results[1].error_code, results[1].configs) == (ErrorCode.NONE, [])


@pytest.mark.parametrize(
    ("kind", "name", "code", "words"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'none'"),
        (TOPIC, "no/topic", ErrorCode.INVALID_TOPIC_EXCEPTION, "no/topic"),
        (BROKER, "7", ErrorCode.INVALID_REQUEST, "expected 1 or empty string, but received 7"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "must be an integer, but it is: x"),
        (LOGGER, "7", ErrorCode.INVALID_REQUEST, "expected 1, but received 7"),
        (METRICS, "1", ErrorCode.INVALID_REQUEST, "type 16"),
    ],
)
def test_a_resource_that_cannot_be_described_gets_an_error_alone(harness, kind, name, code, words):
    bad, good = harness.ask(request((kind, name, None), (TOPIC, "t", ["segment.ms"])), KEY).results
    assert (bad.error_code, bad.resource_type, bad.resource_name, bad.configs) == (code, kind, name, [])
    assert words in bad.error_message
    assert [entry.value for entry in good.configs] == ["1000"]
