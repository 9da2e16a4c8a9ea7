"""`config.providers` in a file for `--command-config`: passwords that are kept elsewhere."""

from pathlib import Path

import pytest

from odradek.clients.errors import ClientError
from odradek.clients.security import ClientSecurity

PROVIDERS = """\
config.providers=secrets,env
config.providers.secrets.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.env.param.allowlist.pattern=ODRADEK_.*
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
"""
JAAS = "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"


def written(directory: Path, lines: str) -> Path:
    path = directory / "client.properties"
    path.write_text(PROVIDERS + lines)
    return path


def test_a_password_comes_from_a_file_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("a secret")
    monkeypatch.setenv("ODRADEK_USER", "alice")
    line = f'{JAAS} username="${{env:ODRADEK_USER}}" password="${{secrets:{tmp_path}:password}}";\n'
    security = ClientSecurity.from_file(written(tmp_path, line))
    settings = security.librdkafka()
    assert (settings["sasl.username"], settings["sasl.password"]) == ("alice", "a secret")
    assert security.warnings == ()
    assert "a secret" not in repr(security)


def test_a_value_that_cannot_be_found_is_an_error_that_names_its_place(tmp_path: Path) -> None:
    file = written(tmp_path, f'{JAAS} username="alice" password="${{secrets:{tmp_path}:passwort}}";\n')
    with pytest.raises(ClientError) as caught:
        ClientSecurity.from_file(file)
    assert f"sasl.jaas.config: cannot replace ${{secrets:{tmp_path}:passwort}}" in str(caught.value)
    assert f"{file}:7" in str(caught.value)


def test_a_file_without_providers_keeps_its_texts(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(
        f'security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n{JAAS} username="alice" password="${{a:b}}";\n'
    )
    assert ClientSecurity.from_file(tmp_path / "client.properties").librdkafka()["sasl.password"] == "${a:b}"
