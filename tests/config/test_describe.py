"""The entries of DescribeConfigs."""

from odradek.config.broker_config import load
from odradek.config.describe import (
    DEFAULT_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    STATIC_BROKER_CONFIG,
    describe_broker,
    describe_topic,
)
from odradek.config.key import BOOLEAN, INT, LIST


def test_a_topic_s_value_with_all_its_sources():
    config = load(None, ["log.retention.hours=24", "log.retention.minutes=60"])
    (entry,) = describe_topic(config, {"retention.ms": "1000"}, {"retention.ms"})
    assert (entry.value, entry.source) == ("1000", DYNAMIC_TOPIC_CONFIG)
    assert [tuple(synonym) for synonym in entry.synonyms] == [
        ("retention.ms", "1000", DYNAMIC_TOPIC_CONFIG),
        ("log.retention.minutes", "60", STATIC_BROKER_CONFIG),
        ("log.retention.hours", "24", STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", DEFAULT_CONFIG),
    ]
    (entry,) = describe_topic(config, {}, {"retention.ms"})
    assert (entry.value, entry.source, entry.is_default) == ("3600000", STATIC_BROKER_CONFIG, False)
    (entry,) = describe_topic(load(None), {}, {"retention.ms"})
    assert (entry.value, entry.source, entry.is_default) == ("604800000", DEFAULT_CONFIG, True)


def test_values_are_written_as_java_writes_them():
    entries = {entry.name: entry for entry in describe_broker(load(None))}
    assert entries["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
    assert entries["log.cleaner.min.cleanable.ratio"].value == "0.5"
    assert entries["auto.create.topics.enable"].value == "true"
    assert entries["log.cleanup.policy"].value == "delete"
    assert entries["log.retention.ms"].value is None
    assert entries["log.cleanup.policy"].type == LIST
    assert entries["auto.create.topics.enable"].type == BOOLEAN
    assert entries["log.segment.bytes"].type == INT


def test_secrets_are_hidden_and_read_only_keys_marked():
    config = load(None, ["delegation.token.secret.key=abc", "node.id=4"])
    entries = {entry.name: entry for entry in describe_broker(config)}
    secret = entries["delegation.token.secret.key"]
    assert secret.is_sensitive and secret.value is None and "abc" not in repr(secret)
    assert secret.source == STATIC_BROKER_CONFIG
    assert entries["node.id"].read_only and entries["node.id"].value == "4"
    assert not entries["log.segment.bytes"].read_only


def test_names_that_do_not_exist_are_skipped():
    assert describe_broker(load(None), {"no.such"}) == []
    assert [entry.name for entry in describe_topic(load(None), {}, {"segment.ms", "x"})] == ["segment.ms"]
