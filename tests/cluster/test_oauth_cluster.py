"""Brokers that log in to each other with OAUTHBEARER: tokens of an identity provider, its failures, and tokens that end."""

import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from odradek.security.sasl.shared_token import SAME_ERROR_EVERY_S
from odradek.testing.broker_process import Broker
from tests import certificates
from tests.cli.command import Command
from tests.cluster.secure import LISTENER, servers, settings, started, until_joined, whole_log, write_stores
from tests.cluster.test_odradek_cluster import RECORDS, consume, produce
from tests.cluster.test_secure_cluster import FAILED, LOGINS, create, load, metric, until_in_sync
from tests.identity_provider import CLIENT, SECRET, IdentityProvider, token
from tests.waiting import until
from tests.zookeeper import chroot

pytestmark = pytest.mark.timeout(300)
PREFIX = f"listener.name.{LISTENER.lower()}.oauthbearer."
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
URL = "sasl.oauthbearer.token.endpoint.url"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as running:
        running.claims = {"sub": "broker"}
        yield running


def oauth(keys: str, tokens: str, options: str = "", protocol: str = "SASL_PLAINTEXT", stores: Path | None = None):
    """The settings of a broker. :param keys, tokens: URLs."""
    client = f'clientId="{CLIENT}" clientSecret="{SECRET}"' if tokens.startswith("http") else ""
    return settings(protocol, stores, "OAUTHBEARER") | {
        f"{PREFIX}sasl.jaas.config": f"{MODULE} {client} {options};",
        f"{PREFIX}sasl.oauthbearer.jwks.endpoint.url": keys,
        f"{PREFIX}{URL}": tokens,
        f"{PREFIX}sasl.login.callback.handler.class": HANDLER,
        "sasl.login.retry.backoff.max.ms": 200,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:ANONYMOUS",
        "metrics.listener": "127.0.0.1:0",
    }


def replicates(brokers: Mapping[int, Broker]) -> None:
    create(brokers, "t", {0: [1, 2], 1: [2, 1]})
    until_in_sync(brokers, "t", {0: 1, 1: 2})
    for partition in (0, 1):
        produce(servers(brokers), "t", partition)
        assert consume(servers(brokers), "t", partition, RECORDS) == list(range(RECORDS))


def test_brokers_replicate_over_tls_with_a_provider_that_uses_https(tmp_path: Path) -> None:
    stores = write_stores(tmp_path / "stores")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates.of_broker().configure_cert(context)
    trusting = f'ssl.truststore.location="{stores}/ca.pem" ssl.truststore.type="PEM"'
    with IdentityProvider(context) as provider:
        provider.claims, provider.lifetime_s = {"sub": "broker"}, 3600
        found = oauth(provider.url(), provider.url("token"), trusting, "SASL_SSL", stores)
        with started(tmp_path, chroot(), lambda _: found) as brokers:
            replicates(brokers)
            assert all(metric(broker, FAILED) == 0 for broker in brokers.values())
            assert len(provider.forms) == 2 * len(brokers), "each process that connects to brokers has one token"
            admin = Command(brokers[1].bootstrap_servers)
            for key in (f"{PREFIX}{URL}", URL):
                admin.refused(
                    "config", "set", "--broker", "1", f"{key}=https://127.0.0.1:1/", words=["cannot be changed"]
                )
        for broker in brokers.values():
            log = whole_log(broker)
            assert " ERROR " not in log and "have no effect" not in log, log
            assert SECRET not in log and "eyJ" not in log


def test_a_provider_that_is_down_at_the_start_is_reported_once_and_the_brokers_join_when_it_answers(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    provider.down = True
    found = oauth(provider.url(), provider.url("token"))
    began = time.monotonic()
    with started(tmp_path, chroot(), lambda _: found, joined=False) as brokers:
        for broker in brokers.values():
            until(lambda broker=broker: metric(broker, FAILED) >= 6, "failures are counted")
        provider.down = False
        until_joined(brokers)
        replicates(brokers)
        for broker in brokers.values():
            lines = [line for line in whole_log(broker).splitlines() if "cannot get a token" in line]
            minutes = 1 + (time.monotonic() - began) // SAME_ERROR_EVERY_S
            assert 1 <= len(lines) <= 2 * minutes, "the coordinator and the replicator each log it"
            assert all(" ERROR " in line and "it responded with the status 503" in line for line in lines)
            assert f"as client {CLIENT}" in lines[0]
            others = [line for line in whole_log(broker).splitlines() if "cannot authenticate a connection" in line]
            assert all("token" not in line for line in others), others


def test_tokens_that_end_are_replaced_without_a_loss(provider: IdentityProvider, tmp_path: Path) -> None:
    provider.lifetime_s = 4
    found = oauth(provider.url(), provider.url("token")) | {"replica.lag.time.max.ms": 30_000}
    with started(tmp_path, chroot(), lambda _: found) as brokers:
        create(brokers, "t", {0: [1, 2]})
        until_in_sync(brokers, "t")
        with load(brokers, "t") as running:
            before, asked = metric(brokers[1], LOGINS), len(provider.forms)
            until(lambda: metric(brokers[1], LOGINS) >= before + 3, "followers log in again")
            assert len(provider.forms) > asked
            running.until_more()
            provider.down = True  # for less than the rest of a lifetime
            until(lambda: provider.refused, "an attempt fails")
            provider.down = False
            running.until_more()
        until_in_sync(brokers, "t")
        for broker in brokers.values():
            assert metric(broker, "kafka_server_replicamanager_isrshrinks_total") == 0


def test_a_token_of_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    """One that has ended is reported by both ends, and replaced by another program."""
    path = tmp_path / "token"
    path.write_text(token(sub="broker", iat=1, exp=2))
    with IdentityProvider() as provider:
        found = oauth(provider.url(), f"file://{path}")
        with started(tmp_path, chroot(), lambda _: found, joined=False) as brokers:
            for broker in brokers.values():
                until(lambda broker=broker: "failed with OAUTHBEARER" in whole_log(broker), "a refusal is in the log")
                assert "the token has expired" in whole_log(broker)
            path.with_suffix(".new").write_text(token(sub="broker", exp=4_000_000_000))
            path.with_suffix(".new").rename(path)
            until_joined(brokers)
            replicates(brokers)
