"""Changed passwords of PLAIN users: what docs/operate/sasl.md says about them, and of configuration providers."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import incremental_alter_configs
from odradek.security.sasl.client import Credentials, LoginError
from odradek.testing import Broker
from tests.sasl import SaslWire, settings
from tests.wire import Wire

KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
BROKER, SET = 4, 0


def line(password: str) -> str:
    return f'{MODULE} required user_alice="{password}";'


def accepts(broker: Broker, password: str) -> bool:
    """Whether alice can log in with the password."""
    with SaslWire.on(broker) as wire:
        try:
            wire.log_in(Credentials("PLAIN", "alice", password))
        except LoginError:
            return False
    return True


def alter(broker: Broker, key: str, value: str) -> tuple[int, str]:
    """IncrementalAlterConfigs of the broker; the error code and its message."""
    make = incremental_alter_configs.Request
    config = make.AlterableConfig(name=key, config_operation=SET, value=value)
    resource = make.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    with Wire(broker.host, broker.port) as wire:
        (result,) = wire.ask(make(resources=[resource]), incremental_alter_configs.API_KEY, 1).responses
    return result.error_code, str(result.error_message)


def test_a_changed_password_takes_effect_at_the_next_start(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"

    def set_password(password: str) -> None:
        secrets.write_text(f"jaas={line(password)}\n")

    set_password("first-secret")
    config = settings(mechanisms="PLAIN") | {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        KEY: f"${{file:{secrets}:jaas}}",
    }
    with Broker(config, directory=tmp_path / "broker") as broker:
        with SaslWire.on(broker) as connected:
            connected.log_in(Credentials("PLAIN", "alice", "first-secret"))
            set_password("second-secret")
            assert accepts(broker, "first-secret") and not accepts(broker, "second-secret")
            code, message = alter(broker, KEY, line("third-secret"))
            assert code == ErrorCode.INVALID_REQUEST and "restart it" in message and "third-secret" not in message
            assert accepts(broker, "first-secret") and not accepts(broker, "third-secret")
        broker.restart()
        assert accepts(broker, "second-secret")
        assert not accepts(broker, "first-secret") and not accepts(broker, "third-secret")
        assert "secret" not in broker.log_file.read_text().replace("secrets.properties", "")


@pytest.mark.parametrize("key", ["sasl.jaas.config", "listener.name.sasl_plaintext.sasl.jaas.config"])
def test_a_line_without_the_names_of_listener_and_mechanism_is_not_used(key: str, tmp_path: Path) -> None:
    config = settings(mechanisms="PLAIN") | {key: line("other-secret")}
    with Broker(config, directory=tmp_path) as broker:
        assert accepts(broker, "alice-secret") and not accepts(broker, "other-secret")
