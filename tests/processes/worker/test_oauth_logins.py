"""Logins with OAUTHBEARER at a running broker: keys that change, providers that fail, sessions, and what a flood costs."""

import os
import signal
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.clients import configs, topics
from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError
from odradek.processes.coordinator.security.jwks_reader import WANTED_APART_S
from odradek.protocol.schemas import metadata, sasl_authenticate
from odradek.security.sasl.client import LoginError, TokenCredentials
from odradek.testing import Broker
from odradek.testing.broker_process import BrokerError
from tests import certificates
from tests.identity_provider import IdentityProvider, default_jwks, jwks, private_key, public_jwk, token
from tests.metrics.scraping import scrape
from tests.sasl import SaslWire, settings
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("token-logins")

URL = "sasl.oauthbearer.jwks.endpoint.url"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
METADATA = metadata.Request(topics=[], allow_auto_topic_creation=False)
REFUSED = "SASL_AUTHENTICATION_FAILED"


def config(url, *listeners, workers=2, **more):
    names = listeners or ("OA",)
    return (
        settings(*names, mechanisms="OAUTHBEARER")
        | {
            URL: url,
            "num.network.threads": str(workers),
            "metrics.listener": "127.0.0.1:0",
            "connection.failed.authentication.delay.ms": "0",
        }
        | more
    )


def log_in(broker, made, listener="OA"):
    """Log in, and send a request. Returns the lifetime of the session in ms."""
    with SaslWire.on(broker, listener) as wire:
        lifetime_ms = wire.log_in(TokenCredentials(lambda: made))
        assert wire.ask(METADATA, 3, 4).controller_id >= 0
        return lifetime_ms


def is_refused(broker, made, listener="OA"):
    with SaslWire.on(broker, listener) as wire:
        try:
            wire.log_in(TokenCredentials(lambda: made))
        except LoginError as error:
            assert "invalid_token" in str(error)
            return wire.closed_by_broker()
        return False


def document(name, kid):
    return jwks(public_jwk(private_key("RS256", name), kid=kid))


def signed(name, kid, **other):
    return token(private_key("RS256", name), "RS256", kid, **other)


@pytest.fixture
def provider():
    with IdentityProvider() as running:
        yield running


@pytest.fixture
def broker(provider, tmp_path):
    with Broker(config(provider.url()), directory=tmp_path / "data") as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A broker for tests that let it read no keys."""
    directory = tmp_path_factory.mktemp("shared")
    (directory / "jwks.json").write_bytes(default_jwks())
    with Broker(config(f"file://{directory}/jwks.json"), directory=directory / "data") as running:
        yield running


def test_a_client_logs_in_and_its_session_ends_with_the_token(shared):
    ends = int(time.time()) + 40
    lifetime_ms = log_in(shared, token(exp=ends))
    assert 0 < lifetime_ms <= 40_000
    assert all(log_in(shared, token(exp=ends, jti=str(number))) <= 40_000 for number in range(10))
    labels = {"listener": "OA", "mechanism": "OAUTHBEARER"}
    until(
        lambda: (
            scrape(shared).sum("kafka_server_socket_server_metrics_successful_authentication_total", **labels) == 11
        ),
        "the count of logins",
    )


def test_a_refusal_has_its_reason_in_the_log_and_no_token(shared):
    made = token(exp=1, iat=1)
    labels = {"listener": "OA", "mechanism": "OAUTHBEARER"}
    assert is_refused(shared, made)
    with SaslWire.on(shared, "OA") as wire:  # a client that does not confirm the refusal is counted too
        wire.handshake("OAUTHBEARER")
        assert b"invalid_token" in wire.authenticate(b"n,,\x01auth=Bearer x\x01\x01").auth_bytes
    until(
        lambda: scrape(shared).sum("kafka_server_socket_server_metrics_failed_authentication_total", **labels) == 2,
        "the count of failures",
    )
    line = "a login as 'alice' from 127.0.0.1 on listener OA failed with OAUTHBEARER: the token has expired"
    until(lambda: line in shared.log_file.read_text(), "the reason, and the user that the token claims")
    assert made[:20] not in shared.log_file.read_text() and made[-20:] not in shared.log_file.read_text()


def test_the_first_token_of_a_new_key_is_accepted_by_every_worker(broker, provider):
    """All at once: they wait for the same read of the keys."""
    old = token()
    log_in(broker, old)
    reads = provider.reads
    provider.keys = document("new", "k2")
    with ThreadPoolExecutor(8) as threads:
        for login in [threads.submit(log_in, broker, signed("new", "k2", jti=str(number))) for number in range(16)]:
            login.result()
    assert provider.reads == reads + 1
    assert all(is_refused(broker, old) for _ in range(8))  # although it is remembered: by none of the workers


def test_a_flood_of_unknown_keys_reads_the_keys_once(broker, provider):
    log_in(broker, token())
    reads, began = provider.reads, time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        refusals = [
            threads.submit(is_refused, broker, token(kid=f"unknown-{number}", jti=str(number))) for number in range(100)
        ]
        assert all(refusal.result() for refusal in refusals)
    assert 1 <= provider.reads - reads <= 1 + (time.monotonic() - began) // WANTED_APART_S
    log_in(broker, token(jti="after"))


def test_while_the_provider_is_down_the_old_keys_stay_in_use(broker, provider):
    log_in(broker, token())
    provider.answer = lambda handler: handler.reply(503, b"down")
    assert is_refused(broker, signed("new", "k2"))  # leads to a read, which fails
    log_in(broker, token(jti="1"))
    until(
        lambda: (
            scrape(broker).value("odradek_jwks_read_failures_total", listener="OA") >= 1
            and scrape(broker).value("odradek_jwks_keys", listener="OA") == 1
            and scrape(broker).value("odradek_jwks_read_timestamp_seconds", listener="OA") > time.time() - 600
        ),
        "the metrics",
    )
    assert "it responded with the status 503; the former keys stay in use; retrying in" in broker.log_file.read_text()
    provider.answer, provider.keys = None, document("new", "k2")
    until(lambda: not is_refused(broker, signed("new", "k2")), "the provider is back")


def test_a_broker_starts_without_its_provider_and_accepts_tokens_when_it_is_there(tmp_path):
    path = tmp_path / "jwks.json"
    with Broker(config(f"file://{path}"), directory=tmp_path / "data") as broker:
        assert is_refused(broker, token())
        log = broker.log_file.read_text
        until(lambda: "no client can log in with OAUTHBEARER on OA" in log(), "the ERROR line")
        until(
            lambda: (
                f"failed with OAUTHBEARER: the keys of the identity provider at file://{path} were never read: {path} cannot be"
                in log()
            ),
            "the reason of the failed login",
        )
        until(lambda: scrape(broker).value("odradek_jwks_keys", listener="OA") == 0, "the metric")
        path.write_bytes(default_jwks())
        until(lambda: not is_refused(broker, token()), "the keys are read")


def test_keys_are_read_over_verified_tls(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates.of_broker().configure_cert(context)
    certificates.write_files(tmp_path)
    with IdentityProvider(context) as provider:
        trust = f'{MODULE} ssl.truststore.location="{tmp_path}/ca.pem" ssl.truststore.type="PEM";'
        made = config(provider.url(), "OA", "OB") | {"listener.name.oa.oauthbearer.sasl.jaas.config": trust}
        with Broker(made, directory=tmp_path / "data") as broker:
            log_in(broker, token())
            assert is_refused(broker, token(), "OB")  # the certificates of this system do not contain the authority
            until(lambda: "its certificate is not accepted" in broker.log_file.read_text(), "the reason")


def test_listeners_have_settings_of_their_own(tmp_path, provider):
    with IdentityProvider() as other:
        other.keys = document("other", "k1")
        prefix = "listener.name.ob.oauthbearer"
        made = config(provider.url(), "OA", "OB") | {
            f"{prefix}.{URL}": other.url(),
            f"{prefix}.sasl.oauthbearer.expected.audience": "b",
            f"{prefix}.sasl.oauthbearer.expected.issuer": "i",
            f"{prefix}.sasl.oauthbearer.sub.claim.name": "username",
            f"{prefix}.connections.max.reauth.ms": "5000",
        }
        with Broker(made, directory=tmp_path / "data") as broker:
            theirs = {"aud": "b", "iss": "i", "username": "bob"}
            assert log_in(broker, signed("other", "k1", **theirs), "OB") == 5000
            log_in(broker, token())
            for wrong in (token(**theirs), signed("other", "k1"), signed("other", "k1", **(theirs | {"iss": "j"}))):
                assert is_refused(broker, wrong, "OB")
            assert is_refused(broker, signed("other", "k1"))


def test_a_login_that_waits_for_keys_waits_for_the_coordinators_successor(broker, provider):
    log_in(broker, token())
    coordinator = next(process["pid"] for process in broker.status()["processes"] if process["kind"] == "coordinator")
    os.kill(coordinator, signal.SIGSTOP)
    log_in(broker, token(jti="without the coordinator"))
    with ThreadPoolExecutor(1) as thread:
        provider.keys = document("new", "k2")
        login = thread.submit(log_in, broker, signed("new", "k2"))
        os.kill(coordinator, signal.SIGKILL)
        login.result()


def test_a_provider_that_hangs_delays_neither_known_keys_nor_the_coordinator(broker, provider):
    log_in(broker, token())
    held = threading.Event()
    provider.answer = lambda handler: held.wait()
    with SaslWire.on(broker, "OA") as waiting:
        waiting.handshake("OAUTHBEARER")
        message = f"n,,\x01auth=Bearer {signed('new', 'k2')}\x01\x01".encode()
        waiting.send(sasl_authenticate.Request(auth_bytes=message), sasl_authenticate.API_KEY, 2)
        until(lambda: provider.reads >= 2, "the read")
        log_in(broker, token(jti="1"))
        with Cluster(broker.bootstrap_servers) as cluster:
            assert configs.describe(cluster, configs.Resource("broker", "1"))
            topics.create(cluster, "t", 1)
        provider.answer = None
        held.set()


def test_a_session_that_ends_is_renewed_or_its_connection_is_closed(shared):
    # A token that is accepted within the clock skew: its session ends at once.
    ended = {"iat": 1, "exp": int(time.time()) - 5}
    with SaslWire.on(shared, "OA") as wire:
        assert wire.log_in(TokenCredentials(lambda: token(**ended))) == 1
        assert wire.log_in(TokenCredentials(token)) > 1
        assert wire.ask(METADATA, 3, 4).controller_id >= 0
    with SaslWire.on(shared, "OA") as wire:
        assert wire.log_in(TokenCredentials(lambda: token(**ended))) == 1
        until(lambda: _closes(wire), "the end of the session")
    with SaslWire.on(shared, "OA") as wire:
        wire.log_in(TokenCredentials(lambda: token(**ended)))
        with pytest.raises(LoginError, match="Cannot change principals during re-authentication"):
            wire.log_in(TokenCredentials(lambda: token(sub="bob")))
        assert wire.closed_by_broker()


def test_a_refused_renewal_whose_refusal_the_client_does_not_confirm_is_one_failure(tmp_path):
    (tmp_path / "jwks.json").write_bytes(default_jwks())
    made = config(f"file://{tmp_path}/jwks.json", **{"odradek.authentication.timeout.ms": "300"})
    with Broker(made, directory=tmp_path / "data") as broker, SaslWire.on(broker, "OA") as wire:
        wire.log_in(TokenCredentials(token))
        wire.handshake("OAUTHBEARER")
        assert b"invalid_token" in wire.authenticate(b"n,,\x01auth=Bearer x\x01\x01").auth_bytes
        assert wire.closed_by_broker()
        name = "kafka_server_socket_server_metrics_failed_reauthentication_total"
        until(lambda: scrape(broker).sum(name, listener="OA") > 0, "the failure")
        assert scrape(broker).sum(name, listener="OA") == 1
        assert "a login as 'alice' from 127.0.0.1 on listener OA failed with OAUTHBEARER" in broker.log_file.read_text()


def _closes(wire):
    try:
        wire.ask(METADATA, 3, 4)
    except (EOFError, ConnectionError):
        return True
    return False


def test_the_url_of_the_keys_cannot_be_changed_at_run_time_but_the_mechanism_can(tmp_path, provider):
    made = config(provider.url()) | {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    resource = configs.Resource("broker", "1")
    with Broker(made, directory=tmp_path / "data") as broker, Cluster(broker.bootstrap_servers) as cluster:
        for name in (URL, f"listener.name.oa.{URL}", f"listener.name.oa.oauthbearer.{URL}"):
            with pytest.raises(RefusedError, match="cannot be changed at run time"):
                configs.alter(cluster, resource, {name: "http://127.0.0.1:1/"})
        configs.alter(cluster, resource, {"listener.name.oa.sasl.enabled.mechanisms": "OAUTHBEARER"})
        log_in(broker, token())


def test_a_listener_without_keys_does_not_start(tmp_path):
    made = config("")
    del made[URL]
    with pytest.raises(
        BrokerError, match=f"{URL}: must be set, because listener OA offers OAUTHBEARER".replace(".", r"\.")
    ):
        Broker(made, directory=tmp_path).start()
