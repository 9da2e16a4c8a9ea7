"""What a client of a listener with TLS and SASL says about the mistakes that people make."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, HandshakeError, NoBootstrapServerError, UnknownHostError
from odradek.clients.login import remedy_of
from odradek.clients.security import ClientSecurity
from odradek.security.sasl.client import Credentials
from odradek.testing import Broker
from tests import certificates

USER = 'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="geheim";\n'
SCRAM = "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"


def written(directory: Path, text: str) -> Path:
    path = directory / "client.properties"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("security.protcol", "security.protocol"),
        ("ssl.trustore.location", "ssl.truststore.location"),
        ("sasl.mechanisms", "sasl.mechanism"),
        ("metrics.listener.tokens.file", "metrics.listener.token.file"),
    ],
)
def test_a_misspelled_key_gets_a_warning(tmp_path: Path, key: str, meant: str) -> None:
    security = ClientSecurity.from_file(written(tmp_path, f"{key}=x\n"))
    (line,) = security.warnings
    assert f"key {key} is unknown; did you mean '{meant}'?" in line


def test_a_misspelled_key_is_named_when_the_right_one_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ClientError) as caught:
        ClientSecurity.from_file(written(tmp_path, SCRAM + USER.replace("jaas.config", "jaas.confg")))
    assert "sasl.jaas.config: must be set" in str(caught.value) and "(key sasl.jaas.confg is unknown" in str(
        caught.value
    )
    assert "geheim" not in str(caught.value)


def test_other_keys_of_kafkas_clients_cause_no_warning(tmp_path: Path) -> None:
    text = "acks=all\nclient.id=x\nsecurity.providers=x\nssl.protocol=TLSv1.3\nsasl.kerberos.service.name=kafka\n"
    assert ClientSecurity.from_file(written(tmp_path, text)).warnings == ()


def test_a_warning_is_printed_once_for_each_command(tmp_path: Path) -> None:
    file = written(tmp_path, "security.protcol=SSL\n")
    result = CliRunner().invoke(main, ["topic", "list", "-b", "127.0.0.1:1", "--command-config", str(file)])
    assert result.exit_code == 1 and result.output.count("key security.protcol is unknown") == 1


def test_the_remedy_of_a_refused_login_is_that_of_its_mechanism() -> None:
    assert "odradek user list" in remedy_of(Credentials("SCRAM-SHA-512", "a", "b"))
    assert "plain.sasl.jaas.config" in remedy_of(Credentials("PLAIN", "a", "b"))
    assert "odradek token describe" in remedy_of(Credentials("SCRAM-SHA-512", "a", "b", True))


def reason(broker: Broker, directory: Path, **settings: str) -> str:
    """Why a client cannot connect to the TLS listener; it must be HandshakeError, for which no other address helps."""
    lines = "".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items())
    security = ClientSecurity.from_file(written(directory, f"security.protocol=SSL\n{lines}"))
    with pytest.raises(NoBootstrapServerError) as caught:
        Cluster(f"127.0.0.1:{broker.port}", 30.0, security=security).any_broker()
    assert caught.value.refused
    return str(caught.value)


def test_certificates_that_one_side_refuses(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    certificates.write_files(files)
    (files / "other.pem").write_text("".join(certificates.pem(certificates.of_client("eve", "another"))))
    with Broker(certificates.broker_settings(files, "required")) as broker:
        trust = str(files / "ca.pem")
        assert "requires a client certificate" in reason(broker, tmp_path, ssl_truststore_location=trust)
        assert "does not contain the authority that signed it" in reason(
            broker, tmp_path, ssl_truststore_location=trust, ssl_keystore_location=str(files / "other.pem")
        )
        assert "the trust store must contain the authority" in reason(broker, tmp_path)


def test_a_certificate_that_is_not_valid_yet(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    certificates.write_files(files)
    (files / "broker.pem").write_text("".join(certificates.pem(certificates.future_broker())))
    with Broker(certificates.broker_settings(files)) as broker:
        assert "it is not valid yet; compare the clocks" in reason(
            broker, tmp_path, ssl_truststore_location=str(files / "ca.pem")
        )
        assert "is not valid before" in broker.log_file.read_text()


def test_a_plaintext_client_configuration_is_named(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    certificates.write_files(files)
    with Broker(certificates.broker_settings(files)) as broker:
        security = ClientSecurity.from_file(written(tmp_path, "client.id=x\n"))
        with pytest.raises(NoBootstrapServerError) as caught:
            Cluster(f"127.0.0.1:{broker.port}", 30.0, security=security).any_broker()
        assert "security.protocol=PLAINTEXT; listeners with TLS need SSL or SASL_SSL" in str(caught.value)
        assert not caught.value.refused and not isinstance(caught.value, HandshakeError)


def test_an_advertised_name_without_an_address_is_called_so() -> None:
    """The listener answers, and sends clients to a name that only the broker's machine knows."""
    with (
        Broker({"advertised.listeners": "PLAINTEXT://no-such-host:9092"}) as broker,
        Cluster(broker.bootstrap_servers, 60.0) as cluster,
        pytest.raises(
            UnknownHostError, match=r"no-such-host:9092: .*; broker 1 advertises this name \(advertised.listeners\)"
        ),
    ):
        cluster.broker(1)
