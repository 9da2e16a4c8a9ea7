"""Settings that change at run time: layers, checks, effective values with their source."""

import pytest

from odradek.config import load
from odradek.config.broker_config import ALL_BROKERS, THIS_BROKER
from odradek.config.describe import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    GROUP_CONFIG,
    STATIC_BROKER_CONFIG,
    describe_all_brokers,
    describe_group,
    effective,
)
from odradek.config.dynamic import check_broker_changes, check_group_settings, file_changes, group_values
from odradek.config.errors import ConfigError


def test_settings_of_this_broker_precede_those_of_all_brokers_and_both_precede_the_file():
    config = load(None, ["log.segment.bytes=1000000"])
    config.run_with({"log.segment.bytes": "2000000", "log.roll.ms": "7"}, {"log.segment.bytes": "3000000"})
    assert (config["log.segment.bytes"], config.where("log.segment.bytes")) == (3_000_000, THIS_BROKER)
    assert (config["log.roll.ms"], config.where("log.roll.ms")) == (7, ALL_BROKERS)
    assert config.topic_config({})["segment.bytes"] == 3_000_000
    config.run_with({}, {})
    assert (config["log.segment.bytes"], config["log.roll.ms"]) == (1_000_000, None)
    assert config.topic_config({})["segment.ms"] == 168 * 3_600_000


def test_a_changed_copy_leaves_the_original_alone():
    config = load(None)
    other = config.changed({"message.max.bytes": "1000"}, {})
    assert (other["message.max.bytes"], other.topic_defaults["max.message.bytes"]) == (1000, 1000)
    assert (config["message.max.bytes"], config.is_set("message.max.bytes")) == (1_048_588, False)


def test_a_stored_setting_that_cannot_be_used_is_skipped_and_others_apply():
    config = load(None)
    errors = config.run_with({"log.roll.ms": "many", "message.max.bytes": "1000", "of.tomorrow": "1"}, {})
    assert [error.name for error in errors] == ["log.roll.ms"]
    assert (config["log.roll.ms"], config["message.max.bytes"]) == (None, 1000)


def test_values_that_contradict_the_file_are_skipped():
    config = load(None, ["log.cleaner.max.compaction.lag.ms=100"])
    (error,) = config.run_with({"log.cleaner.min.compaction.lag.ms": "200", "message.max.bytes": "1000"}, {})
    assert error.name == "log.cleaner.min.compaction.lag.ms"
    assert (config["log.cleaner.min.compaction.lag.ms"], config["message.max.bytes"]) == (0, 1000)


@pytest.mark.parametrize(
    ("of_all", "of_broker", "message"),
    [
        ({"no.such": "1"}, {}, "no.such=1: is not a broker configuration key"),
        ({}, {"broker.id": "7"}, "broker.id=7: cannot be changed at run time"),
        ({}, {"num.network.threads": "7"}, "restart"),
        ({}, {"ssl.keystore.password": "geheim"}, "ssl.keystore.password=[hidden]"),
        ({"ssl.keystore.type": "JKS"}, {}, "set listener.name.<listener>.ssl.keystore.type"),
        ({"listener.name.x.ssl.keystore.type": "JKS"}, {}, "set it for each broker, by the broker's id"),
        ({"log.cleaner.threads": "-1"}, {}, "log.cleaner.threads=-1: must be an integer from 0 to 2147483647"),
        ({"log.cleaner.min.compaction.lag.ms": "9"}, {"log.cleaner.max.compaction.lag.ms": "8"}, "at most"),
    ],
)
def test_a_refused_change_reports_the_key_and_what_is_allowed(of_all, of_broker, message):
    config = load(None)
    with pytest.raises(ConfigError) as raised:
        check_broker_changes(config, of_all, of_broker)
    assert message in str(raised.value)
    assert "geheim" not in str(raised.value)
    assert config.settings == {}


def test_an_effective_value_has_its_source_and_its_synonyms():
    config = load(None, ["log.retention.hours=100"])
    assert effective(config, "retention.ms", {}).source == STATIC_BROKER_CONFIG
    config.run_with({"log.retention.ms": "6000"}, {"log.retention.ms": "5000"})
    entry = effective(config, "retention.ms", {"retention.ms": "4000"})
    assert (entry.value, entry.source) == ("4000", DYNAMIC_TOPIC_CONFIG)
    assert [tuple(synonym) for synonym in entry.synonyms] == [
        ("retention.ms", "4000", DYNAMIC_TOPIC_CONFIG),
        ("log.retention.ms", "5000", DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", "6000", DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.hours", "100", STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", DEFAULT_CONFIG),
    ]
    entry = effective(config, "log.retention.ms")
    assert (entry.value, entry.source) == ("5000", DYNAMIC_BROKER_CONFIG)
    (only,) = describe_all_brokers(config)
    assert (only.name, only.value, only.source) == ("log.retention.ms", "6000", DYNAMIC_DEFAULT_BROKER_CONFIG)
    with pytest.raises(ConfigError, match=r"no\.such"):
        effective(config, "no.such")


def test_the_first_synonym_is_the_effective_one_in_every_layer():
    config = load(None, ["log.roll.ms=5"])
    config.run_with({}, {"listener.name.plaintext.ssl.keystore.type": "PKCS12"})
    assert effective(config, "segment.ms", {}).synonyms[0].name == "log.roll.ms"
    entry = effective(config, "listener.name.plaintext.ssl.keystore.type")
    assert [(synonym.name, synonym.source) for synonym in entry.synonyms] == [
        ("listener.name.plaintext.ssl.keystore.type", DYNAMIC_BROKER_CONFIG),
        ("ssl.keystore.type", DEFAULT_CONFIG),
    ]


def test_a_group_s_settings_lie_within_what_the_broker_allows():
    config = load(None)
    own = check_group_settings(config, {"consumer.session.timeout.ms": "50000"})
    assert group_values(config, own)["consumer.session.timeout.ms"] == 50_000
    assert group_values(config, own)["consumer.heartbeat.interval.ms"] == 5000
    entries = {entry.name: entry for entry in describe_group(config, {"consumer.session.timeout.ms": "50000"})}
    assert entries["consumer.session.timeout.ms"].source == GROUP_CONFIG
    assert entries["consumer.heartbeat.interval.ms"].source == DEFAULT_CONFIG
    for settings, message in (
        ({"consumer.session.timeout.ms": "44999"}, "from 45000 .* to 60000"),
        ({"consumer.heartbeat.interval.ms": "x"}, "consumer.heartbeat.interval.ms=x"),
        ({"retention.ms": "1"}, "is not a group configuration key"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_group_settings(config, settings)


def test_a_group_s_heartbeats_come_more_often_than_its_session_ends():
    config = load(None, ["group.consumer.max.heartbeat.interval.ms=50000"])
    with pytest.raises(ConfigError, match=r"less than consumer\.session\.timeout\.ms=45000"):
        check_group_settings(config, {"consumer.heartbeat.interval.ms": "45000"})


def test_all_errors_of_a_change_are_reported_at_once():
    config = load(None)
    with pytest.raises(ConfigError) as caught:
        check_broker_changes(
            config, {"message.max.bytes": "x", "log.dirs": "/a"}, {"no.such.key": "1", "log.roll.ms": "5"}
        )
    assert [error.name for error in caught.value.errors] == ["message.max.bytes", "log.dirs", "no.such.key"]
    with pytest.raises(ConfigError) as caught:
        check_group_settings(config, {"consumer.session.timeout.ms": "1", "no.such.key": "1"})
    assert [error.name for error in caught.value.errors] == ["consumer.session.timeout.ms", "no.such.key"]


def test_stored_settings_that_cannot_be_used_are_skipped_individually():
    config = load(None)
    errors = config.run_with({"message.max.bytes": "x", "log.roll.ms": "5"}, {"log.segment.bytes": "y"})
    assert [error.name for error in errors] == ["message.max.bytes", "log.segment.bytes"]
    assert config["log.roll.ms"] == 5


def test_changes_of_the_file_are_those_since_the_start_and_some_need_a_restart(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("message.max.bytes=1000\nlog.roll.ms=5\nnum.network.threads=2\nlog.segment.bytes=2000000\n")
    config = load(file, ["log.roll.ms=9"])
    file.write_text(
        "message.max.bytes=1001\nlog.roll.ms=6\nnum.network.threads=3\nsasl.jaas.config=secret\nssl.keystore.location=/x\n"
    )
    assert config.source is not None
    assert file_changes(config, config.source.read_again()) == (
        {"message.max.bytes": "1001", "log.segment.bytes": None},
        ["num.network.threads", "sasl.jaas.config", "ssl.keystore.location"],
    )
