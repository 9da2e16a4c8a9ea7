"""The settings with which a broker connects to other brokers, its TLS contexts, and what it logs about failures."""

import logging
import ssl
from collections.abc import Mapping

import pytest

from odradek.config.broker_config import BrokerConfig, load
from odradek.config.errors import ConfigError
from odradek.security.contexts import ListenerMaterial, handshake, server_context
from odradek.security.opening import PeerRefused
from odradek.security.peer_settings import settings_of
from odradek.security.peers import PeerSecurity, client_context, reason_of, wrong_between_brokers
from odradek.security.sasl.client import Credentials
from tests import certificates

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="secret";'
PLAIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="secret" user_b="secret";'
)
MECHANISM = "sasl.mechanism.inter.broker.protocol"


def config(protocol: str, *lines: str) -> BrokerConfig:
    """Of a broker with the listener B for brokers."""
    fixed = ["zookeeper.connect=h:2181", "broker.id=1", "listeners=B://h:9092", "inter.broker.listener.name=B"]
    return load(None, [*fixed, f"listener.security.protocol.map=B:{protocol}", *lines])


def scram(*lines: str) -> BrokerConfig:
    enabled = "sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN"
    return config(
        "SASL_SSL",
        enabled,
        f"{MECHANISM}=SCRAM-SHA-512",
        f"listener.name.b.scram-sha-512.sasl.jaas.config={SCRAM}",
        *lines,
    )


def test_the_login_is_that_of_the_listener_and_mechanism():
    found = settings_of(scram(f"listener.name.b.plain.sasl.jaas.config={PLAIN}"))
    assert (found.listener, found.protocol, found.verifies_host) == ("B", "SASL_SSL", True)
    assert found.credentials == Credentials("SCRAM-SHA-512", "broker", "secret")
    assert "secret" not in repr(found)
    plain = scram(f"listener.name.b.plain.sasl.jaas.config={PLAIN}", f"{MECHANISM}=PLAIN")
    assert settings_of(plain).credentials == Credentials("PLAIN", "b", "secret")
    assert settings_of(config("SSL")).credentials is None


def test_the_host_is_not_verified_only_if_the_key_is_empty_for_the_listener():
    assert not settings_of(scram("listener.name.b.ssl.endpoint.identification.algorithm=")).verifies_host
    assert not settings_of(config("SSL", "ssl.endpoint.identification.algorithm=")).verifies_host
    assert settings_of(config("SSL", "ssl.endpoint.identification.algorithm=HTTPS")).verifies_host


@pytest.mark.parametrize(
    "lines, name, words",
    [
        ((f"{MECHANISM}=GSSAPI",), MECHANISM, "is not supported: there is no Kerberos in this broker; must be one"),
        ((f"{MECHANISM}=NONE",), MECHANISM, "must be one of PLAIN, SCRAM"),
        (("sasl.enabled.mechanisms=PLAIN",), "sasl.enabled.mechanisms", "must contain SCRAM-SHA-512, because"),
        ((f"{MECHANISM}=PLAIN",), "listener.name.b.plain.sasl.jaas.config", "must be set: this broker logs in"),
        (
            (f"{MECHANISM}=PLAIN", f"listener.name.b.plain.sasl.jaas.config={SCRAM}"),
            "listener.name.b.plain.sasl.jaas.config",
            "must name the login module PlainLoginModule",
        ),
        (
            ("listener.name.b.scram-sha-512.sasl.jaas.config=ScramLoginModule required username=u;",),
            "listener.name.b.scram-sha-512.sasl.jaas.config",
            "must have the option password",
        ),
        (("ssl.endpoint.identification.algorithm=dns",), "ssl.endpoint.identification.algorithm", "must be https"),
    ],
)
def test_one_error_names_the_key_that_is_wrong(lines, name, words):
    with pytest.raises(ConfigError) as caught:
        settings_of(scram(*lines))
    assert caught.value.name == name and words in str(caught.value) and "secret" not in str(caught.value)


def material(client_auth: str = "none", **fields: object) -> ListenerMaterial:
    return certificates.material(client_auth)._replace(name="B", **fields)  # type: ignore[arg-type]


def test_brokers_with_the_same_stores_must_be_able_to_connect_to_each_other():
    settings = config("SSL")
    good, strange = certificates.ca_pem(), certificates.ca_pem("strange")

    def wrong(of_listener: ListenerMaterial, settings: BrokerConfig = settings) -> list[str]:
        return [str(error) for error in wrong_between_brokers(settings, {"B": of_listener})]

    assert wrong(material(trust=good)) == wrong(material("required")) == []
    (line,) = wrong(material(trust=strange))
    assert (
        line.startswith("ssl.truststore.location: must contain the authority")
        and "could not connect to each other" in line
    )
    assert wrong(material(trust=strange, ends_ms=1)) == [], "the broker of an expired certificate must be able to start"
    alone = load(None, ["listeners=B://h:9092", "listener.security.protocol.map=B:SSL"])
    assert wrong(material(trust=strange), alone) == []


class Published:
    """See `PublishedMaterial`."""

    def __init__(self, material: ListenerMaterial) -> None:
        self.version, self.material = 1, material

    def read(self) -> tuple[int, Mapping[str, ListenerMaterial]]:
        return self.version, {"B": self.material}


def test_new_key_stores_are_used_for_the_next_connection():
    published = Published(material(trust=certificates.ca_pem("strange")))
    security = PeerSecurity(config("SSL", "ssl.endpoint.identification.algorithm="), published, lambda: None)  # type: ignore[arg-type]
    server = server_context(material())
    first = security.context()
    assert first is not None and security.context() is first
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(first, server)
    published.version, published.material = 2, material(trust=certificates.ca_pem())
    second = security.context()
    assert second is not None and handshake(second, server) == "TLSv1.3"
    published.version, published.material = 3, material(key="unreadable")
    with pytest.raises(PeerRefused, match="this broker cannot use its key store"):
        security.context()


def test_a_process_without_key_stores_does_not_connect_unencrypted_where_tls_is_required():
    security = PeerSecurity(config("SSL"), None, lambda: None)
    with pytest.raises(PeerRefused, match="no key store for listener B"):
        security.context()


def test_a_changed_setting_is_used_and_a_wrong_one_keeps_the_former(caplog):
    settings = scram()
    security = PeerSecurity(settings, None, lambda: None)
    key = "listener.name.b.ssl.endpoint.identification.algorithm"
    for value, verifies in (("", False), ("dns", False), ("https", True)):
        assert not settings.run_with({}, {key: value})
        security.refresh()
        assert security.settings.verifies_host is verifies
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert "keep their former settings" in line and "=dns: must be https" in line


def test_a_wrong_setting_that_was_stored_while_the_broker_ran_is_ignored_at_its_next_start(caplog):
    settings = scram()
    assert not settings.run_with({}, {MECHANISM: "GSSAPI"})
    assert PeerSecurity(settings, None, lambda: None).credentials() == Credentials("SCRAM-SHA-512", "broker", "secret")
    assert "GSSAPI: is not supported: there is no Kerberos" in caplog.text


def test_failures_are_logged_once_a_minute_for_each_address_and_all_are_counted(caplog):
    now, counted = [0.0], []
    security = PeerSecurity(scram(), None, lambda: counted.append(1), lambda: now[0])
    for port in (1, 1, 2):
        security.failed("broker 2", ("h", port), "reason")
    now[0] = 61.0
    security.failed("broker 2", ("h", 1), "reason")
    security.succeeded(("h", 2))
    security.failed("broker 2", ("h", 2), "another reason")
    lines = [record.getMessage() for record in caplog.records]
    assert len(counted) == 5 and len(lines) == 4
    assert lines[0].startswith(
        "cannot authenticate a connection to broker 2 at h:1 (listener B, SASL_SSL): reason; retrying"
    )
    for port in range(1000):
        security.failed("broker 2", ("h", port), "reason")
    assert len(security._failing) <= 256


def test_the_reason_of_a_failed_handshake_says_what_to_mend():
    def failure(client: ListenerMaterial, server: ListenerMaterial) -> str | None:
        with pytest.raises(ssl.SSLError) as caught:
            handshake(client_context(client, False), server_context(server))
        return reason_of(caught.value, "h")

    good, strange = certificates.ca_pem(), certificates.ca_pem("strange")
    found = failure(material(trust=strange), material())
    assert found is not None and "no authority in ssl.truststore.location of this broker has signed" in found
    old = failure(material(trust=good, versions=("TLSv1.2", "TLSv1.2")), material(versions=("TLSv1.3", "TLSv1.3")))
    assert old is not None and "TLS" in old
    assert reason_of(ssl.SSLEOFError(), "h") is None and reason_of(ConnectionResetError(), "h") is None
