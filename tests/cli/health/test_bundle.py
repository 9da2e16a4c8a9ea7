"""`odradek doctor --bundle`: the archive has what a report needs, and no secret of the configuration, whatever its key."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from odradek.cli.container import __main__ as container
from odradek.cli.health import bundle
from odradek.cli.health.redaction import (
    HIDDEN,
    SHORTEST_SECRET,
    is_secret,
    scrubbed,
    secrets_of_environment,
    without_secrets,
)
from odradek.config.key import PASSWORD
from odradek.config.table import BROKER_KEYS, TOPIC_KEYS
from odradek.testing import Broker

MEMBERS = {
    "README.txt",
    "broker-settings.json",
    "configuration.properties",
    "doctor.json",
    "log.txt",
    "metrics.txt",
    "processes.txt",
    "shared-memory.txt",
    "status.json",
    "versions.json",
}
JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="{}" user_admin="{}";'
)


def marked(number: int) -> str:
    return f"marker-{number:04}-of-a-secret"


def rows_of_secrets() -> list[tuple[str, str]]:
    """A setting for each key that holds a secret, in all its forms, each with a text of its own."""
    names = [name for name, row in {**BROKER_KEYS, **TOPIC_KEYS}.items() if row.type == PASSWORD]
    names += [f"listener.name.clients.{name}" for name in names]
    names += ["listener.name.clients.scram-sha-256.sasl.jaas.config", "config.providers.vault.param.token", "my.own.password",
              "unknown.key", "ssl.keystor.password", "CLIENT_SECRET", "api-key"]  # fmt: skip
    return [(name, marked(number)) for number, name in enumerate(names)]


def test_no_row_of_the_table_lets_a_secret_through() -> None:
    settings = rows_of_secrets()
    assert len(settings) > 30
    found = without_secrets(settings)
    assert {text for _, text in found.shown} == {HIDDEN}
    assert found.secrets == {text for _, text in settings}
    text = "\n".join(f"{name} is {secret}, and {secret}" for name, secret in settings)
    assert "marker-" not in scrubbed(text, found.secrets)


def test_the_settings_that_are_no_secrets_are_shown() -> None:
    shown = [
        (name, f"value-{number}")
        for number, (name, row) in enumerate({**TOPIC_KEYS, **BROKER_KEYS}.items())
        if row.type != PASSWORD
    ]
    assert len(shown) > 300
    assert without_secrets(shown) == (shown, frozenset())


@pytest.mark.parametrize("name", ["sasl.jaas.config", "sasl.enabled.mechanisms", "log.dirs"])
def test_a_jaas_line_is_hidden_in_every_key_and_its_options_in_every_text(name: str) -> None:
    found = without_secrets([(name, JAAS.format("first-secret", "second-secret"))])
    assert found.shown == [(name, HIDDEN)]
    assert {"first-secret", "second-secret"} <= found.secrets
    assert scrubbed("login with first-secret or second-secret", found.secrets) == f"login with {HIDDEN} or {HIDDEN}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user:pass@idp.example/keys", f"https://{HIDDEN}@idp.example/keys"),
        ("password=abc def", f"password={HIDDEN} def"),
        ('"ssl.key.password": "a b"', f'"ssl.key.password": "{HIDDEN}"'),
        ('"tokens": 5, "secret": null', '"tokens": 5, "secret": null'),
        ("client_secret: xyz", f"client_secret: {HIDDEN}"),
        ("sasl.jaas.config=org.x", f"sasl.jaas.config={HIDDEN}"),
        ("access_token=eyJ.a.b, next", f"access_token={HIDDEN}, next"),
        ("log.dirs=/var/lib", "log.dirs=/var/lib"),
        ("https://user:p@ss@idp.example/keys", f"https://{HIDDEN}@idp.example/keys"),
        ("https://user:p/ss@idp.example/keys", f"https://{HIDDEN}@idp.example/keys"),
        ("PLAINTEXT://a:9092,SSL://b:9093, mail@example", "PLAINTEXT://a:9092,SSL://b:9093, mail@example"),
        ("password: 'a b'", f"password: {HIDDEN}"),
        ("Authorization: Basic dXNlcjpwYXNz", f"Authorization: Basic {HIDDEN}"),
        ('user_alice="a secret"', f'user_alice="{HIDDEN}"'),
        (r'{"message": "\"password\": \"a b\", x"}', r'{"message": "\"password\": \"' + HIDDEN + r'\", x"}'),
    ],
)
def test_texts_lose_logins_and_what_follows_the_names_of_secrets(text: str, expected: str) -> None:
    assert scrubbed(text, ()) == expected


def test_ordinary_values_of_unknown_keys_are_hidden_but_not_searched_for() -> None:
    given = [
        ("my.flag", "true"),
        ("my.port", "9092"),
        ("my.pin.password", "73519"),
        ("sasl.jaas.config", JAAS.format("2468", "true")),
    ]
    found = without_secrets(given)
    assert {text for _, text in found.shown} == {HIDDEN}
    text = json.dumps({"ok": True, "port": 9092, "pins": ["73519", "2468"], "name": "admin"})
    assert json.loads(scrubbed(text, found.secrets)) == {
        "ok": True, "port": 9092, "pins": [HIDDEN, HIDDEN], "name": "admin"
    }  # fmt: skip


def test_a_secret_is_found_in_json_as_well() -> None:
    secret = 'p\u00e4"ss\\w'
    document = {"a": f"x {secret} y"}
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False)):
        assert json.loads(scrubbed(text, {secret})) == {"a": f"x {HIDDEN} y"}


def test_secrets_of_environment_variables_are_found() -> None:
    jaas = JAAS.format("second-secret", "third-secret")
    variables = [("KAFKA_SSL_KEY_PASSWORD", "first-secret"), ("OTHER", jaas), ("HOME", "/root"), ("VAULT_TOKEN", "abc")]
    found = secrets_of_environment(variables)
    assert {"first-secret", "second-secret", "third-secret"} < found
    assert not {"/root", "abc"} & found


def test_a_login_in_a_setting_is_hidden() -> None:
    name = "sasl.oauthbearer.jwks.endpoint.url"
    assert not is_secret(name, "")
    assert without_secrets([(name, "https://u:p@h/x")]).shown == [(name, f"https://{HIDDEN}@h/x")]


def test_short_texts_are_not_searched_for() -> None:
    assert without_secrets([("ssl.key.password", "x" * (SHORTEST_SECRET - 1))]).secrets == frozenset()


def doctor(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "odradek.cli", "doctor", *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def members(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        return {
            name.rpartition("/")[2]: opened.extractfile(name).read().decode()  # type: ignore[union-attr]
            for name in opened.getnames()
        }


@pytest.fixture
def broker(tmp_path: Path):
    secret = "hunter2-of-the-broker"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS.format(secret, secret),
        "ssl.keystore.password": "keystore-of-the-broker",
        "ssl.truststore.pasword": "misspelled-of-the-broker",
        "num.partitions": 7,
        "metrics.listener": "127.0.0.1:0",
    }
    variables = {"KAFKA_NUM_PARTITIONS": "7", "STORE_PASSWORD": "variable-of-the-broker"}
    settings["ssl.truststore.password"] = "${env:STORE_PASSWORD}"
    settings |= {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    with Broker(settings, directory=tmp_path / "broker", environment=variables) as running:
        yield running


def test_the_archive_of_a_broker(broker: Broker, tmp_path: Path) -> None:
    archive = tmp_path / "report.tar.gz"
    done = doctor("--data-dir", str(broker.data_dir), "--bundle", str(archive), "--json")
    assert f"wrote {archive} (" in done.stderr, done.stderr
    assert archive.stat().st_mode & 0o777 == 0o600
    found = members(archive)
    assert set(found) == MEMBERS
    assert [name for name, text in found.items() if text.startswith("not collected: ")] == []
    assert [name for name, text in found.items() if "of-the-broker" in text] == []
    lines = found["configuration.properties"].splitlines()
    assert "num.partitions=7" in lines
    assert "# environment variable KAFKA_NUM_PARTITIONS" in lines
    assert f"listener.name.sasl_plaintext.plain.sasl.jaas.config={HIDDEN}" in lines
    assert f"ssl.truststore.pasword={HIDDEN}" in lines
    assert json.loads(found["doctor.json"]) == json.loads(done.stdout)
    assert json.loads(found["status.json"])["state"] == "serving"
    assert json.loads(found["versions.json"])["packages"]["uvloop"]
    (settings,) = json.loads(found["broker-settings.json"]).values()
    assert settings["num.partitions"] == {"value": "7", "source": "broker's file"}
    assert settings["ssl.keystore.password"]["value"] in (None, HIDDEN)
    assert "odradek_purgatory_size" in found["metrics.txt"]
    kinds = [row["kind"] for row in json.loads(found["status.json"])["processes"]]
    assert len(found["processes.txt"].splitlines()) == len(kinds) + 1
    assert found["shared-memory.txt"].count("memfd:") >= len(kinds)
    assert "ready after" in found["log.txt"]


def test_an_archive_is_not_overwritten(broker: Broker, tmp_path: Path) -> None:
    archive = tmp_path / "report.tar.gz"
    archive.write_text("mine")
    done = doctor("--data-dir", str(broker.data_dir), "--bundle", str(archive))
    assert (done.returncode, done.stderr) == (1, f"odradek: cannot write {archive}: File exists\n")
    assert archive.read_text() == "mine"


def test_an_archive_without_a_broker_has_the_reasons(tmp_path: Path) -> None:
    archive = tmp_path / "report.tar.gz"
    done = doctor("-b", "127.0.0.1:1", "--data-dir", str(tmp_path), "--bundle", str(archive))
    assert done.returncode == 1
    found = members(archive)
    assert set(found) == MEMBERS
    assert "no broker runs on" in found["status.json"]
    assert found["broker-settings.json"].startswith("not collected: ")
    assert json.loads(found["doctor.json"])["healthy"] is False
    assert json.loads(found["versions.json"])["odradek"]


def test_both_forms_of_options_of_the_supervisor_are_read() -> None:
    words = ["odradek", "start", "--config=/a", "--set", "k=v", "--set=x=y", "--config"]
    assert list(bundle._options(words)) == [("--config", "/a"), ("--set", "k=v"), ("--set", "x=y")]


def test_the_file_of_the_image_is_read_unless_another_one_is_named() -> None:
    words = ["python", "-m", container.__package__]
    assert list(bundle._options([*words, "--set", "k=v"])) == [("--config", container.CONFIG_FILE), ("--set", "k=v")]
    assert list(bundle._options([*words, "--config=/a"])) == [("--config", "/a")]
