"""Environment variables of the usual images of Kafka become settings of the broker; what would protect less is refused."""

from pathlib import Path

import pytest

from odradek.cli.container import variables
from odradek.cli.container.variables import PUBLISHED, data_volume, environment_of, key_of, shares_network
from odradek.config.broker_config import load
from odradek.config.errors import ConfigError
from odradek.config.table import BROKER_KEYS


def settings(given: dict[str, str], **options: Path) -> dict[str, str]:
    return {key: text for key, text, _ in environment_of(given, **options).entries}


@pytest.mark.parametrize("prefix", ["KAFKA_", "KAFKA_CFG_"])
def test_every_key_can_be_set_by_a_variable(prefix: str) -> None:
    for key in BROKER_KEYS:
        variable = prefix + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
        assert key_of(variable) == key


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___512_SASL_JAAS_CONFIG",
         "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"),
        ("KAFKA_CFG_LISTENER_NAME_SASL_PLAINTEXT_PLAIN_SASL_JAAS_CONFIG",
         "listener.name.sasl_plaintext.plain.sasl.jaas.config"),
        ("KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET", "zookeeper.clientCnxnSocket"),
        ("ODRADEK_PUBLISHED_ADDRESS", "odradek.published.address"),
        ("ODRADEK_METRICS_LISTENER", "metrics.listener"),
        ("ODRADEK_NO_SUCH_KEY", "odradek.no.such.key"),
        ("KAFKA_ODRADEK_PUBLISHED_ADDRESS", "odradek.published.address"),
    ],
)  # fmt: skip
def test_names_with_underscores_hyphens_and_capitals(variable: str, key: str) -> None:
    assert key_of(variable) == key


def test_bitnamis_names_precede_and_own_names_precede_all() -> None:
    given = {"KAFKA_LOG_RETENTION_MS": "1", "KAFKA_CFG_LOG_RETENTION_MS": "2", "KAFKA_METRICS_LISTENER": ":1",
             "ODRADEK_METRICS_LISTENER": ":2"}  # fmt: skip
    assert settings(given) == {"log.retention.ms": "2", "metrics.listener": ":2"}
    assert settings(dict(reversed(given.items()))) == settings(given)


def test_the_file_gives_way_to_variables_and_these_to_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=1\nlog.segment.bytes=1000000\nodradek.published.address=from.file\n")
    environment = environment_of({"KAFKA_LOG_RETENTION_MS": "2", "KAFKA_LOG_SEGMENT_BYTES": "2000000"})
    environment = environment._replace(defaults=((PUBLISHED, "localhost", "the image"),))
    config = load(file, ["log.segment.bytes=3000000"], environment=environment)
    assert (config["log.retention.ms"], config["log.segment.bytes"]) == (2, 3_000_000)
    assert config.published_address == ("from.file", None)
    assert config.where("log.retention.ms") == "environment variable KAFKA_LOG_RETENTION_MS"
    file.write_text("log.retention.ms=9\n")
    again = config.source.read_again() if config.source else None  # SIGHUP
    assert again is not None
    assert again["log.retention.ms"] == 2
    assert again.published_address == ("localhost", None)


def test_a_wrong_value_names_its_variable() -> None:
    with pytest.raises(ConfigError) as failed:
        load(None, environment=environment_of({"KAFKA_NUM_PARTITIONS": "many"}))
    assert "num.partitions=many" in str(failed.value)
    assert "(environment variable KAFKA_NUM_PARTITIONS)" in str(failed.value)


def test_an_unknown_key_causes_a_warning_with_the_variable_and_a_hint() -> None:
    config = load(None, environment=environment_of({"KAFKA_LOG_RETENTION_HOUR": "1", "ODRADEK_PUBLISHD_ADDRESS": "x"}))
    first, second = sorted(config.unknown_key_warnings)
    assert first.startswith(
        "ignoring unknown key log.retention.hour (environment variable KAFKA_LOG_RETENTION_HOUR); did you mean"
    )
    assert "odradek.publishd.address (environment variable ODRADEK_PUBLISHD_ADDRESS); did you mean" in second


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"KAFKA_NUM_PARTITIONS": ""}, {}),
        ({"KAFKA_ADVERTISED_LISTENERS": ""}, {}),
        ({"KAFKA_METRIC_REPORTERS": ""}, {}),
        ({"KAFKA_LOG_RETENTION_MS": "5", "KAFKA_CFG_LOG_RETENTION_MS": ""}, {"log.retention.ms": "5"}),
        ({"KAFKA_LOG_RETENTION_MS": "", "KAFKA_CFG_LOG_RETENTION_MS": "5"}, {"log.retention.ms": "5"}),
        ({"KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": ""}, {"ssl.endpoint.identification.algorithm": ""}),
    ],
)
def test_an_empty_variable_is_unset_unless_empty_is_a_value(given: dict[str, str], expected: dict[str, str]) -> None:
    assert settings(given) == expected


def test_listeners_follow_from_the_advertised_ones_as_in_the_images_of_apache_and_confluent() -> None:
    advertised = "PLAINTEXT://broker:29092,HOST://localhost:9092,SIX://[::1]:9093"
    assert settings({"KAFKA_ADVERTISED_LISTENERS": advertised})["listeners"] == (
        "PLAINTEXT://0.0.0.0:29092,HOST://0.0.0.0:9092,SIX://0.0.0.0:9093"
    )
    assert "listeners" not in settings({"KAFKA_CFG_ADVERTISED_LISTENERS": advertised})
    both = {"KAFKA_ADVERTISED_LISTENERS": advertised, "KAFKA_LISTENERS": "PLAINTEXT://:1"}
    assert settings(both)["listeners"] == "PLAINTEXT://:1"


def test_the_addresses_of_old_images() -> None:
    assert settings({"KAFKA_ADVERTISED_HOST_NAME": "localhost"}) == {
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "listeners": "PLAINTEXT://0.0.0.0:9092",
    }
    given = {"KAFKA_ADVERTISED_HOST_NAME": "h", "KAFKA_ADVERTISED_PORT": "19092", "KAFKA_PORT": "9093"}
    assert settings(given) == {"advertised.listeners": "PLAINTEXT://h:19092", "listeners": "PLAINTEXT://:9093"}
    newer = {"KAFKA_ADVERTISED_HOST_NAME": "h", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://x:1"}
    assert settings(newer)["advertised.listeners"] == "PLAINTEXT://x:1"


def test_variables_of_services_of_kubernetes_are_no_settings() -> None:
    given = {
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
        "KAFKA_SERVICE_HOST": "10.0.0.1",
        "KAFKA_SERVICE_PORT": "9092",
        "KAFKA_SERVICE_PORT_CLIENTS": "9092",
        "KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
        "KAFKA_UI_SERVICE_HOST": "10.0.0.2",
        "ODRADEK_PORT": "tcp://10.0.0.1:9092",
    }
    assert environment_of(given | {"KUBERNETES_SERVICE_HOST": "10.0.0.9"}) == ((), (), ())


def test_variables_of_images_and_jvms_are_named_in_one_line() -> None:
    given = {"KAFKA_HEAP_OPTS": "-Xmx1G", "CLUSTER_ID": "x", "KAFKA_JMX_PORT": "1", "ALLOW_PLAINTEXT_LISTENER": "yes",
             "KAFKA_OPTS": "-Dx", "KAFKA_CREATE_TOPICS": "a:1:1", "HOME": "/"}  # fmt: skip
    environment = environment_of(given)
    assert environment.notes == (
        "these environment variables have no effect: ALLOW_PLAINTEXT_LISTENER, CLUSTER_ID, KAFKA_HEAP_OPTS, KAFKA_JMX_PORT, "
        "KAFKA_OPTS",
    )
    assert environment.entries == ()
    assert load(None, environment=environment).notes == list(environment.notes)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("KAFKA_CLIENT_USERS", "is not supported: set the keys of Kafka instead"),
        ("KAFKA_CLIENT_PASSWORDS", "is not supported"),
        ("KAFKA_INTER_BROKER_PASSWORD", "is not supported"),
        ("KAFKA_CERTIFICATE_PASSWORD", "is not supported"),
        ("KAFKA_ZOOKEEPER_PASSWORD", "is not supported"),
        ("KAFKA_ADVERTISED_PROTOCOL_NAME", "is not supported: set KAFKA_LISTENERS and KAFKA_ADVERTISED_LISTENERS"),
        ("BROKER_ID_COMMAND", "needs a shell, which this image does not have; set KAFKA_BROKER_ID"),
        ("CUSTOM_INIT_SCRIPT", "needs a shell, which this image does not have"),
    ],
)
def test_what_must_not_be_ignored_is_refused_without_its_value(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as failed:
        environment_of({name: "s3cret"})
    assert f"{name}: {text}" in str(failed.value)
    assert "s3cret" not in str(failed.value)


def test_a_command_in_an_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a shell: this image has none"):
        environment_of({"KAFKA_ADVERTISED_LISTENERS": "OUTSIDE://_{HOSTNAME_COMMAND}:9094"})


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as failed:
        environment_of({"KAFKA_CLIENT_USERS": "a", "BROKER_ID_COMMAND": "b"})
    assert [error.name for error in failed.value.errors] == ["BROKER_ID_COMMAND", "KAFKA_CLIENT_USERS"]


def test_a_secret_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("pass word\n")
    assert settings({"KAFKA_SSL_KEYSTORE_PASSWORD_FILE": str(file)}) == {"ssl.keystore.password": "pass word"}
    assert settings({"KAFKA_CFG_SSL_KEY_PASSWORD_FILE": str(file)}) == {"ssl.key.password": "pass word"}
    of_key = {"KAFKA_METRICS_LISTENER_PASSWORD_FILE": str(file)}  # the key itself names a file
    assert settings(of_key) == {"metrics.listener.password.file": str(file)}
    of_another_program = {"KAFKA_EXPORTER_PASSWORD_FILE": "/absent"}  # no key, with or without _FILE: read by nobody
    assert settings(of_another_program) == {"exporter.password.file": "/absent"}


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "cannot be read: No such file"), (b"\xff", "is not UTF-8 text"), (b"x" * (1 << 20) + b"x", "is larger")],
)
def test_a_secret_that_cannot_be_read_stops_the_start(content: bytes | None, text: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=text) as failed:
        environment_of({"KAFKA_SSL_KEYSTORE_PASSWORD_FILE": str(file)})
    assert failed.value.name == "KAFKA_SSL_KEYSTORE_PASSWORD_FILE"


def test_a_secret_and_its_file_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must not be set together with KAFKA_SSL_KEY_PASSWORD"):
        environment_of({"KAFKA_SSL_KEY_PASSWORD": "x", "KAFKA_SSL_KEY_PASSWORD_FILE": str(tmp_path / "f")})


def test_key_stores_and_credentials_below_the_directory_of_secrets(tmp_path: Path) -> None:
    (tmp_path / "creds").write_text("changeit\n")
    given = {"KAFKA_SSL_KEYSTORE_FILENAME": "broker.jks", "KAFKA_SSL_TRUSTSTORE_FILENAME": "trust.jks"}
    given |= {f"KAFKA_SSL_{name}_CREDENTIALS": "creds" for name in ("KEYSTORE", "KEY", "TRUSTSTORE")}
    assert settings(given, secrets=tmp_path) == {
        "ssl.keystore.location": f"{tmp_path}/broker.jks",
        "ssl.truststore.location": f"{tmp_path}/trust.jks",
        "ssl.keystore.password": "changeit",
        "ssl.key.password": "changeit",
        "ssl.truststore.password": "changeit",
    }
    assert settings(given | {"KAFKA_SSL_KEY_PASSWORD": "own"}, secrets=tmp_path)["ssl.key.password"] == "own"


JAAS = """
// a comment
KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin"
    password="a;{d//min}-secret"
    user_admin="admin-secret";
  org.apache.kafka.common.security.scram.ScramLoginModule required;
};
other.KafkaServer { org.apache.kafka.common.security.scram.ScramLoginModule required username="o"; };
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="z"; };
"""


def test_logins_come_from_the_jaas_file_of_the_jvm(tmp_path: Path) -> None:
    (tmp_path / "jaas.conf").write_text(JAAS)
    given = {
        "KAFKA_OPTS": f"-Xmx1G -Djava.security.auth.login.config={tmp_path}/jaas.conf",
        "KAFKA_LISTENERS": "INSIDE://:1,OTHER://:2,OPEN://:3",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:SASL_PLAINTEXT,OTHER:SASL_SSL,OPEN:PLAINTEXT",
    }
    found = {key: text for key, text in settings(given).items() if key.startswith("listener.name.")}
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    assert found == {
        "listener.name.inside.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="a;{d//min}-secret" user_admin="admin-secret";',
        "listener.name.inside.scram-sha-256.sasl.jaas.config": f"{scram};",
        "listener.name.inside.scram-sha-512.sasl.jaas.config": f"{scram};",
        "listener.name.other.scram-sha-256.sasl.jaas.config": f'{scram} username="o";',
        "listener.name.other.scram-sha-512.sasl.jaas.config": f'{scram} username="o";',
    }
    assert environment_of(given).notes == ()
    own = given | {"KAFKA_LISTENER_NAME_INSIDE_PLAIN_SASL_JAAS_CONFIG": "mine"}
    assert settings(own)["listener.name.inside.plain.sasl.jaas.config"] == "mine"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Client { x.Y required; };", "has no section KafkaServer"),
        (
            'KafkaServer { x.Krb5LoginModule required keyTab="s3cret"; };',
            "the login module Krb5LoginModule is not supported",
        ),
        ('KafkaServer { x.PlainLoginModule perhaps password="s3cret"; };', "KafkaServer: "),
        (None, "cannot read the file of java.security.auth.login.config"),
    ],
)
def test_a_jaas_file_that_cannot_be_used_stops_the_start(text: str | None, reason: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "jaas.conf").write_text(text)
    given = {
        "KAFKA_OPTS": f"-Djava.security.auth.login.config={tmp_path}/jaas.conf",
        "KAFKA_LISTENERS": "SASL_PLAINTEXT://:1",
    }
    with pytest.raises(ConfigError, match=reason) as failed:
        environment_of(given)
    assert "s3cret" not in str(failed.value)
    assert environment_of(given | {"KAFKA_LISTENERS": "PLAINTEXT://:1"}).entries  # no listener needs logins


def test_the_level_of_the_log_of_other_images() -> None:
    assert settings({"KAFKA_LOG4J_ROOT_LOGLEVEL": "DEBUG"}) == {"log.level": "DEBUG"}
    assert settings({"KAFKA_LOG4J_ROOT_LOGLEVEL": "DEBUG", "KAFKA_LOG_LEVEL": "WARN"}) == {"log.level": "WARN"}


def test_the_published_address_is_a_default_of_containers_with_a_network_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lo").mkdir()
    (tmp_path / "eth0").mkdir()
    assert not shares_network(tmp_path)
    monkeypatch.setattr(variables, "shares_network", lambda _: False)
    assert environment_of({}).defaults == ((PUBLISHED, "localhost", "the image"),)
    assert environment_of({"ODRADEK_PUBLISHED_ADDRESS": "h:1"}).entries == (
        (PUBLISHED, "h:1", "environment variable ODRADEK_PUBLISHED_ADDRESS"),
    )
    assert environment_of({"ODRADEK_PUBLISHED_ADDRESS": ""}) == ((), (), ())
    assert environment_of({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).defaults == ()
    monkeypatch.undo()
    (tmp_path / "eth0/device").mkdir()  # a network card: the network of the host
    assert shares_network(tmp_path)
    assert not shares_network(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("mounted", "expected"),
    [
        ("/bitnami/kafka", "/bitnami/kafka"),
        ("/bitnami", "/bitnami/kafka"),
        ("/var/lib/kafka/data", "/var/lib/kafka/data"),
        ("/kafka", "/kafka"),
        ("/var/lib/odradek", None),
    ],
)
def test_the_volume_of_another_image_is_used(mounted: str, expected: str | None, tmp_path: Path) -> None:
    line = "36 35 98:0 /mnt1 {} rw,noatime shared:1 - ext4 /dev/root rw,errors=continue\n"
    (tmp_path / "mountinfo").write_text(line.format("/") + line.format(mounted))
    assert data_volume(tmp_path / "mountinfo") == expected
    assert data_volume() is None
