"""The configuration of a broker from files and overrides."""

import re
import subprocess
import sys

import pytest

from odradek.config.broker_config import load
from odradek.config.errors import ConfigError, ConfigErrors
from odradek.config.key import DOUBLE, INT, LONG, SHORT
from odradek.config.table import BROKER_KEYS

ZOOKEEPER_FILE = """\
broker.id=3
listeners=PLAINTEXT://:9092
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/tmp/kafka-logs
num.partitions=1
log.retention.hours=168
#log.retention.bytes=1073741824
log.message.format.version=2.8
zookeeper.connect=zk1:2181,zk2:2181/kafka
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
KRAFT_FILE = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
log.dirs=/tmp/kraft-combined-logs
share.coordinator.state.topic.replication.factor=1
log.segment.bytes=1073741824
"""


def refused(*overrides):
    with pytest.raises(ConfigError) as caught:
        load(None, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_are_a_whole_configuration():
    config = load(None)
    assert config["log.segment.bytes"] == 1 << 30
    assert config["num.network.threads"] >= 1
    assert config["metadata.store"] == "embedded"
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert config.node_id == config["node.id"] == config["broker.id"] == 1 and not config.node_id_is_configured
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092"]
    assert not config.warnings and not config.unknown


def test_a_file_of_the_zookeeper_era_is_accepted(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(ZOOKEEPER_FILE)
    config = load(path)
    assert config.node_id == 3 and config.node_id_is_configured
    assert config["metadata.store"] == "zookeeper"
    assert config["zookeeper.connect"] == "zk1:2181,zk2:2181/kafka"
    assert not config.unknown
    assert config.where("num.partitions") == f"{path}:6"
    assert "log.message.format.version" in config.without_effect


def test_a_kraft_file_is_accepted_and_its_controller_listener_left_out(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(KRAFT_FILE)
    config = load(path)
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092"]
    assert [str(listener) for listener in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert config.inter_broker_listener.name == "PLAINTEXT"
    assert not config.warnings and "controller.listener.names" in config.without_effect
    assert not config.unknown


def test_a_broker_of_a_cluster_with_kraft_controllers_does_not_start(tmp_path):
    with pytest.raises(ConfigError, match=r"^process\.roles=broker: .*Set metadata.store=embedded .*adopt"):
        load(None, ["process.roles=broker"]).check_metadata_store()
    load(None, ["process.roles=broker", "metadata.store=embedded"]).check_metadata_store()
    path = tmp_path / "server.properties"
    path.write_text(KRAFT_FILE)
    load(path).check_metadata_store()


def test_zookeeper_connect_selects_the_metadata_store_unless_another_is_set(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(ZOOKEEPER_FILE)
    assert load(path, to_start=True).clustered
    assert not load(path, ["metadata.store=embedded"], to_start=True).clustered
    with pytest.raises(ConfigError, match=r"^metadata\.store=zookeeper") as caught:
        load(None, ["metadata.store=zookeeper"]).check_metadata_store()
    assert len(caught.value.errors) == 1 and "\n" not in str(caught.value)


def test_groups_of_a_cluster_use_the_newer_protocol_only_if_it_is_set():
    name = "group.coordinator.rebalance.protocols"
    cluster = "zookeeper.connect=zk1"
    assert "consumer" in load(None, [])[name]
    assert load(None, [cluster])[name] == ("classic",)
    assert load(None, [cluster, f"{name}=classic,consumer"])[name] == ("classic", "consumer")


def test_overrides_win_over_the_file_and_the_last_setting_over_earlier_ones(tmp_path):
    path = tmp_path / "f.properties"
    path.write_text("num.partitions=2\nnum.partitions=3\nlog.segment.bytes=100000")
    config = load(path, ["num.partitions=4", "num.partitions=5"])
    assert config["num.partitions"] == 5 and config.where("num.partitions") == "--set"
    assert config["log.segment.bytes"] == 100_000 and config.where("log.segment.bytes") == f"{path}:3"


def test_unknown_keys_are_reported_with_their_place(tmp_path):
    path = tmp_path / "f.properties"
    path.write_text("\nlog.segmnet.bytes=5\n")
    config = load(path, ["my.key=1", "rlmm.config.x=1"])
    assert len(config.unknown_key_warnings) == len(config.unknown)
    assert [(key.name, key.where) for key in config.unknown] == [
        ("log.segmnet.bytes", f"{path}:2"),
        ("my.key", "--set"),
    ]
    assert len(config.warnings) == 2


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ("log.segment.bytes=13", "an integer from 14 to 2147483647"),
        ("log.segment.bytes=1_000", "an integer"),
        ("log.segment.bytes=2147483648", "an integer"),
        ("log.segment.bytes=", "an integer"),
        ("num.partitions=0", "from 1"),
        ("num.partitions=１", "an integer"),  # noqa: RUF001 - a digit, but not one of Java's
        ("log.cleaner.min.cleanable.ratio=1.5", "from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio=nan", "a number"),
        ("log.cleaner.io.max.bytes.per.second=many", "a number of at least 0"),
        ("log.cleaner.io.max.bytes.per.second=1e999", "its absolute value at most 1.7976931348623157E308"),
        ("sasl.login.refresh.window.jitter=-1e999", "its absolute value at most 1.7976931348623157E308"),
        ("transaction.max.timeout.ms=abc", "an integer from 1 to 2147483647"),
        ("transaction.max.timeout.ms=2147483648", "an integer from 1 to 2147483647"),
        ("auto.create.topics.enable=yes", "true or false"),
        ("compression.type=brotli", "one of uncompressed, zstd"),
        ("log.cleanup.policy=delete,purge", "compact, delete"),
        ("offsets.topic.replication.factor=40000", "from 1 to 32767"),
        ("authorizer.class.name=kafka.security.Acl", "StandardAuthorizer"),
        ("super.users=User:a,b;alice", "separated by semicolons"),
        ("remote.log.storage.system.enable=true", "false"),
        ("zookeeper.connect=a b", "host:port"),
        ("log.retention.ms=0", "or -1"),
        ("group.coordinator.rebalance.protocols=consumer", "must contain classic"),
    ],
)
def test_a_value_that_is_not_allowed_is_reported_in_one_line(override, allowed):
    message = refused(override)
    assert message.startswith(override.partition("=")[0] + "=")
    assert allowed in message and "(--set)" in message


@pytest.mark.parametrize(
    ("users", "doubtful"),
    [("User:a;User:CN=b,O=c", []), ("a,User:b", ["a,User:b"]), ("User:a,User:b;User:c", ["User:a,User:b"])],
)
def test_super_users_that_are_no_principal_of_a_client_are_a_warning(users, doubtful):
    warnings = load(None, [f"super.users={users}"]).warnings
    assert len(warnings) == len(doubtful)
    assert all(repr(user) in warning for user, warning in zip(doubtful, warnings, strict=True))


NUMBERS = [key for key in BROKER_KEYS.values() if key.type in (INT, SHORT, LONG, DOUBLE)]


@pytest.mark.parametrize("wrong", ["abc", "", "1.5.5", pytest.param("9" * 400, id="too-large")])
def test_a_wrong_number_names_its_key_and_what_would_be_right(wrong):
    assert len(NUMBERS) > 100
    for key in NUMBERS:
        message = refused(f"{key.name}={wrong}")
        assert message.startswith(f"{key.name}={wrong}: must be ") and "(--set)" in message
        if key.type != DOUBLE:
            assert re.search(r": must be an integer from -?\d+ to \d+( or -?\d+)?[ ,]", message), message
        else:
            assert f": must be a number{'' if key.allowed is None else f' {key.allowed}'}" in message


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("transaction.max.timeouts.ms", "transaction.max.timeout.ms"),
        ("TRANSACTION.MAX.TIMEOUT.MS", "transaction.max.timeout.ms"),
        ("zookeeper.clientcnxnsocket", "zookeeper.clientCnxnSocket"),
        ("listener.name.internal.max.conections", "listener.name.internal.max.connections"),
        ("listener.name.internal.plain.sasl.jaas.confg", "listener.name.internal.plain.sasl.jaas.config"),
        ("listener.name.internal.no.such.key.at.all", None),
        ("my.key", None),
    ],
)
def test_the_warning_about_an_unknown_key_suggests_a_key_that_is_close(tmp_path, unknown, meant):
    path = tmp_path / "f.properties"
    path.write_text(f"{unknown}=1\n")
    for config, where in ((load(None, [f"{unknown}=1"]), "--set"), (load(path), f"{path}:1")):
        (warning,) = config.unknown_key_warnings
        hint = "" if meant is None else f" did you mean '{meant}'?"
        assert (
            warning == f"ignoring unknown key {unknown} ({where});{hint} docs/reference/configuration.md lists all keys"
        )


SECURED_FILE = """\
broker.id=0
listeners=PLAINTEXT://:9092,SASL_PLAINTEXT://:9093,SSL://:9094
advertised.listeners=PLAINTEXT://h:9092,SASL_PLAINTEXT://h:9093,SSL://h:9094
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
num.partitions=many
log.dirs=/a,/a
ssl.keystore.password=secret
ssl.client.auth=yes
replica.fetch.wait.max.ms=40000
zookeeper.connect=localhost:2181
"""


def test_all_errors_of_the_file_of_a_secured_kafka_broker_are_reported_at_once(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(SECURED_FILE)
    with pytest.raises(ConfigError) as caught:
        load(path, to_start=True)
    lines = [str(error) for error in caught.value.errors]
    assert [(error.name, error.value) for error in caught.value.errors] == [
        ("num.partitions", "many"),
        ("log.dirs", "/a,/a"),
        ("ssl.client.auth", "yes"),
        ("replica.fetch.wait.max.ms", "40000"),  # of replica.socket.timeout.ms,
        ("replica.fetch.wait.max.ms", "40000"),  # and of replica.lag.time.max.ms
    ]
    for line in lines:
        place = SECURED_FILE.splitlines().index(
            next(setting for setting in SECURED_FILE.splitlines() if setting.startswith(line.split("=")[0] + "="))
        )
        assert line.endswith(f"({path}:{place + 1})") and "\n" not in line
    assert str(caught.value) == "; ".join(lines)


def test_a_wrong_value_causes_no_error_of_another_key():
    for wrong, name in (
        (["group.max.session.timeout.ms=x", "group.min.session.timeout.ms=9000000"], "group.max.session.timeout.ms"),
        (["metadata.store=zookeeper", "zookeeper.connect=a b"], "zookeeper.connect"),
        (["listener.security.protocol.map=IN:TLS", "listeners=IN://:9092"], "listener.security.protocol.map"),
        (["listeners=OTHER://:9092", "inter.broker.listener.name=PLAINTEXT"], "listeners"),
    ):
        with pytest.raises(ConfigError) as caught:
            load(None, wrong)
        assert [error.name for error in caught.value.errors] == [name]


def test_only_the_last_value_of_a_key_must_be_right(tmp_path):
    path = tmp_path / "f.properties"
    path.write_text("authorizer.class.name=kafka.security.Acl\nnum.partitions=many\nnum.partitions=4\n")
    assert load(path, ["authorizer.class.name="])["num.partitions"] == 4


def test_more_in_sync_replicas_than_a_partition_can_have_are_a_warning():
    assert not load(None, ["min.insync.replicas=1"]).warnings
    (line,) = load(None, ["min.insync.replicas=2"]).warnings
    assert line.startswith("min.insync.replicas=2 (--set)") and line.endswith("acks=all waits for this broker only")


def test_more_in_sync_replicas_than_replicas_are_reported_in_a_cluster():
    cluster = ["zookeeper.connect=zk:2181", "broker.id=1", "min.insync.replicas=2"]
    assert not load(None, [*cluster, "default.replication.factor=2"]).warnings
    (line,) = load(None, cluster).warnings
    assert line.endswith("they have 1 replicas (default.replication.factor), and acks=all waits for these only")


def test_all_bad_settings_of_a_topic_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        load(None).topic_config({"segment.bytes": "x", "retention.ms": "1", "no.such.key": "1"})
    assert [error.name for error in caught.value.errors] == ["segment.bytes", "no.such.key"]


def test_a_bad_value_in_a_file_names_the_line(tmp_path):
    path = tmp_path / "f.properties"
    path.write_text("# one\nnum.partitions=many\n")
    with pytest.raises(ConfigError, match=rf"^num.partitions=many: must be an integer .* \({path}:2\)$"):
        load(path)


def test_a_password_is_never_shown():
    message = refused("delegation.token.secret.key=s3cret", "log.dirs=")
    assert "s3cret" not in message


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "absent")
    with pytest.raises(ConfigError, match="directory"):
        load(tmp_path)


def test_an_override_without_value_is_refused():
    assert "key=value" in refused("num.partitions")


def test_ids_must_agree():
    assert "node.id=1" in refused("node.id=1", "broker.id=2")
    assert load(None, ["broker.id=7"])["node.id"] == 7


def test_a_controller_alone_is_refused():
    assert "must contain broker" in refused("process.roles=controller")


def test_log_dirs_win_over_log_dir(tmp_path):
    config = load(None, [f"log.dir={tmp_path}/a", f"log.dirs={tmp_path}/b , {tmp_path}/c"])
    assert config.log_dirs == (f"{tmp_path}/b", f"{tmp_path}/c")
    assert load(None, [f"log.dir={tmp_path}/a"]).log_dirs == (f"{tmp_path}/a",)


@pytest.mark.parametrize("dirs", ["/a,,/b", "/a,/a", "/a,/b/../a", ","])
def test_invalid_log_dirs_are_refused(dirs):
    assert refused(f"log.dirs={dirs}").startswith("log.dirs=")


@pytest.mark.parametrize(
    ("lesser", "greater"),
    [("group.min.session.timeout.ms=9", "group.max.session.timeout.ms=8"), ("replica.fetch.wait.max.ms=40000", "")],
)
def test_pairs_that_contradict_each_other_are_refused(lesser, greater):
    assert "must be at" in refused(*filter(None, (lesser, greater)))


def test_keys_of_one_listener_are_checked_as_the_key_itself():
    config = load(None, ["listener.name.internal.max.connections=5"])
    assert config["listener.name.internal.max.connections"] == 5
    assert refused("listener.name.internal.max.connections=x").startswith("listener.name.internal.max.connections=x")
    assert load(None, ["listener.name.i.plain.sasl.jaas.config=secret"]).unknown == ()
    assert len(load(None, ["listener.name.i.no.such=1"]).unknown) == 1


def test_a_topic_takes_the_broker_s_settings_by_their_precedence():
    def retention(*overrides):
        return load(None, overrides).topic_defaults["retention.ms"]

    assert retention() == 168 * 3_600_000
    assert retention("log.retention.hours=2") == 7_200_000
    assert retention("log.retention.hours=2", "log.retention.minutes=5") == 300_000
    assert retention("log.retention.minutes=5", "log.retention.ms=7") == 7
    assert retention("log.retention.hours=-1") == -1


def test_a_topic_s_own_settings_win():
    config = load(None, ["log.segment.bytes=2000000", "log.roll.hours=1"])
    effective = config.topic_config({"segment.bytes": "3000000", "cleanup.policy": "compact,delete"})
    assert effective["segment.bytes"] == 3_000_000
    assert effective["segment.ms"] == 3_600_000
    assert effective["cleanup.policy"] == ("compact", "delete")
    assert config.topic_config({})["segment.bytes"] == 2_000_000


@pytest.mark.parametrize(
    ("name", "value"),
    [("segment.bytes", "x"), ("no.such.key", "1"), ("cleanup.policy", "x"), ("remote.storage.enable", "true")],
)
def test_a_bad_topic_setting_is_refused(name, value):
    with pytest.raises(ConfigError, match=f"^{name}"):
        load(None).topic_config({name: value})


def test_topic_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms=5"):
        load(None).topic_config({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_importing_it_pulls_in_nothing_heavy():
    code = "import sys; before = set(sys.modules); import odradek.config; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"asyncio", "socket", "dataclasses", "inspect", "json", "logging", "click", "ssl", "subprocess"}
    assert not heavy.intersection(loaded)


def test_an_unknown_key_that_is_a_topics_key_names_the_brokers_key():
    (warning,) = load(None, ["max.message.bytes=1"]).warnings
    assert warning == (
        "ignoring unknown key max.message.bytes (--set); it is a key of topics, whose default is the broker's"
        " message.max.bytes; docs/reference/configuration.md lists all keys"
    )


@pytest.mark.parametrize("refused", [["num.partitions=x"], ["num.partitions=x", "broker.id=y"], ["log.dirs=,"]])
def test_an_error_has_the_warnings_about_unknown_keys(refused):
    with pytest.raises(ConfigError) as raised:
        load(None, [*refused, "no.such=1"])
    assert raised.value.warnings == [
        "ignoring unknown key no.such (--set); docs/reference/configuration.md lists all keys"
    ]
    assert len(raised.value.errors) == len(refused)


def test_an_error_hides_the_login_in_a_url():
    error = ConfigError("a.url", "https://user:a@secret@host/x,http://other:1/", "is wrong")
    assert str(error) == "a.url=https://[hidden]@host/x,http://other:1/: is wrong"
    assert str(ConfigErrors([error.at("--set"), error])).count("[hidden]") == 2
    assert error.value is not None and "secret" not in error.value
