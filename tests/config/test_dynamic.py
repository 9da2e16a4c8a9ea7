"""Settings that change at run time: layers, checks, effective values with their source."""

import os
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as run_with
from hypothesis import strategies as st

from odradek.config.broker_config import ALL_BROKERS, THIS_BROKER, BrokerConfig, Source, load, resolve
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
from odradek.config.dynamic import UNITS, check_broker_changes, check_group_settings, file_changes, group_values
from odradek.config.errors import ConfigError
from odradek.config.table import BROKER_KEYS, TOPIC_KEYS
from odradek.controller.partitions import topic_settings


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


def config_of(settings: Mapping[str, str]) -> BrokerConfig:
    return resolve([(name, text, "file") for name, text in settings.items()])


def reload(config: BrokerConfig, settings: Mapping[str, str]) -> list[str]:
    """Use a changed file. Returns the keys that need a restart."""
    of_file, at_restart = file_changes(config, config_of(settings))
    assert config.run_with({}, {}, of_file) == []
    return at_restart


DAYS_7 = 7 * 24 * 3_600_000


@pytest.mark.parametrize(
    ("files", "retention_ms"),
    [
        ([{"log.retention.hours": "168", "log.retention.ms": "-1"}, {"log.retention.hours": "-1"}], -1),
        ([{"log.retention.hours": "1", "log.retention.ms": str(DAYS_7)}, {"log.retention.hours": "168"}], DAYS_7),
        ([{"log.retention.minutes": "5", "log.retention.ms": str(DAYS_7)}, {"log.retention.minutes": "10080"}], DAYS_7),
        # What the first reload has changed stays, because the second cannot be used.
        (
            [
                {"log.retention.hours": "1"},
                {"log.retention.hours": "1", "log.retention.ms": str(DAYS_7)},
                {"log.retention.hours": "168"},
            ],
            DAYS_7,
        ),
    ],
)
def test_a_reload_of_half_a_change_deletes_nothing(files, retention_ms):
    config = config_of(files[0])
    for file in files[1:]:
        held = reload(config, file)
    assert config.topic_defaults["retention.ms"] == retention_ms
    assert "log.retention.ms" in held
    assert reload(config, {**files[-1], "message.max.bytes": "1000"}) == held
    assert (config["message.max.bytes"], config.topic_defaults["retention.ms"]) == (1000, retention_ms)
    assert reload(config, files[0]) == []
    assert (
        config.settings == config_of(files[0]).settings or config.topic_defaults == config_of(files[0]).topic_defaults
    )


def test_a_time_that_did_not_count_does_not_begin_to_count():
    config = config_of({"log.cleanup.policy": "compact", "log.retention.hours": "1"})
    assert reload(config, {"log.retention.hours": "168"}) == ["log.cleanup.policy", "log.retention.hours"]
    assert config.topic_defaults["cleanup.policy"] == ("compact",)


def test_every_chain_of_synonyms_is_a_unit():
    """Those of topics' keys too. A chain that is none would be used in halves."""
    for row in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        chain = {synonym.name for synonym in row.synonyms} | ({row.name} & set(BROKER_KEYS))
        assert len(chain) < 2 or any(chain <= unit for unit in UNITS), row.name


TOGETHER = sorted({name for unit in UNITS if len(unit & set(BROKER_KEYS)) > 1 for name in unit & set(BROKER_KEYS)})
OF_TOPICS = [
    name for name in TOGETHER if any(name == synonym.name for row in TOPIC_KEYS.values() for synonym in row.synonyms)
]


def texts_of(name: str) -> list[str]:
    def allowed(text: str) -> bool:
        try:
            BROKER_KEYS[name].parse(text)
        except ConfigError:
            return False
        return True

    return [text for text in ("-1", "1", "2", "3600000", "compact", "delete", "true", "false") if allowed(text)]


FILES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.sampled_from(texts_of(name))
            for name in OF_TOPICS
            if not name.startswith("log.cleaner.m")  # a pair that is checked
        },
    ),
    min_size=2,
    max_size=4,
)


@run_with(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(FILES)
def test_after_reloads_each_default_of_topics_is_that_of_the_former_or_of_the_new_file(files):
    """Never a third value, also not one of the start. The limits of timestamps and what deletes records change together."""
    config = config_of(files[0])
    for _, file in pairwise(files):
        before, fresh = dict(config.topic_defaults), config_of(file)
        held = reload(config, file)
        now = config.topic_defaults
        assert all(now[name] in (before[name], fresh.topic_defaults[name]) for name in TOPIC_KEYS)
        assert all(config[name] == fresh[name] for name in OF_TOPICS if name not in held)
        slots = [topic_settings(values, 1) for values in (now, before, fresh.topic_defaults)]
        assert all(slots[0][name] in (slots[1][name], slots[2][name]) for name in slots[0])
        deletes = ("cleanup.policy", "retention.ms", "retention.bytes")
        assert [now[name] for name in deletes] in (
            [before[name] for name in deletes], [fresh.topic_defaults[name] for name in deletes]
        )  # fmt: skip


LISTENER = "listener.name.plaintext."


@pytest.mark.parametrize(
    ("file", "held"),
    [
        ({f"{LISTENER}sasl.enabled.mechanisms": "PLAIN", f"{LISTENER}plain.sasl.jaas.config": "x"}, 2),
        ({"sasl.enabled.mechanisms": "PLAIN", f"{LISTENER}plain.sasl.jaas.config": "x"}, 2),
        (
            {f"{LISTENER}sasl.enabled.mechanisms": "OAUTHBEARER", f"{LISTENER}sasl.oauthbearer.jwks.endpoint.url": "x"},
            2,
        ),
        ({f"{LISTENER}ssl.keystore.location": "/new", f"{LISTENER}ssl.keystore.password": "new"}, 2),
        ({f"{LISTENER}ssl.keystore.location": "/new", "ssl.keystore.password": "new"}, 2),
        ({f"{LISTENER}ssl.keystore.location": "/new", "listeners": "PLAINTEXT://:9093"}, 2),
        ({f"{LISTENER}ssl.keystore.location": "/new", "listener.name.other.ssl.keystore.password": "new"}, 1),
        ({f"{LISTENER}ssl.keystore.location": "/new", f"{LISTENER}plain.sasl.jaas.config": "x"}, 1),
        ({f"{LISTENER}ssl.keystore.location": "/new"}, 0),
    ],
)
def test_what_belongs_to_a_listener_s_security_is_used_as_a_whole(file, held):
    config = config_of({})
    at_restart = reload(config, {**file, "message.max.bytes": "1000"})
    assert len(at_restart) == held
    assert config["message.max.bytes"] == 1000
    for name in file:
        assert config.is_set(name) == (name not in at_restart)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("pipe", "it is no regular file"),
        ("", "Is a directory"),
        ("missing", "No such file or directory"),
        ("/dev/zero", "it is no regular file"),
        ("/dev/stdin", "it is a descriptor of the process that started"),
        ("/dev/fd/63", "it is a descriptor of the process that started"),
        ("/proc/self/fd/63", "it is a descriptor of the process that started"),
    ],
)
def test_a_reload_never_waits_for_what_is_no_file(tmp_path, path, reason):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=f"cannot read the configuration file .*{path}: {reason}"):
        Source(os.fspath(tmp_path / path), ()).read_again()


def test_a_start_reads_its_settings_from_a_pipe():
    ours, theirs = os.pipe()
    with open(theirs, "wb") as writer:
        writer.write(b"message.max.bytes=1000\n")
    assert load(f"/dev/fd/{ours}")["message.max.bytes"] == 1000
    os.close(ours)
