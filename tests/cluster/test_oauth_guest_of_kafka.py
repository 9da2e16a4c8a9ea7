"""A Kafka 3.9.1 broker (id 1) and an Odradek broker (id 2) replicate from each other, and log in with OAUTHBEARER."""

from pathlib import Path

import pytest

from odradek.testing.broker_process import Broker
from tests.cluster.peer_processes import Peers
from tests.cluster.secure import LISTENER, config_of
from tests.cluster.test_guest_of_kafka import Cluster, closing_admin
from tests.cluster.test_oauth_cluster import PREFIX, oauth
from tests.cluster.test_secure_cluster import metric
from tests.cluster.test_secure_guest_of_kafka import KAFKA, OURS, RENEWED, replicate_both_ways, until_in_sync
from tests.identity_provider import IdentityProvider

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
LIFETIME_S = 6
pytestmark = [pytest.mark.xdist_group("secure-guest-of-kafka"), pytest.mark.timeout(300)]


def test_they_replicate_in_both_directions_longer_than_a_token_lives(tmp_path: Path) -> None:
    with IdentityProvider() as provider, Peers(tmp_path) as peers:
        provider.claims, provider.lifetime_s = {"sub": "broker", "scope": "kafka"}, LIFETIME_S
        found = oauth(provider.url(), provider.url("token"), protocol="SASL_PLAINTEXT")
        shared = {key: value for key, value in found.items() if key.startswith(("sasl.", "listener.name.", "inter."))}
        kafka = peers.start_kafka(
            KAFKA,
            shared
            | {
                "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_PLAINTEXT",
                f"{PREFIX}sasl.server.callback.handler.class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
            },
            LISTENER,
        )
        with (
            Broker(config_of(OURS, peers.connect, found), directory=tmp_path / "odradek") as ours,
            closing_admin(f"127.0.0.1:{kafka.port}") as admin,
        ):
            cluster = Cluster(peers, ours, admin)
            cluster.create("t", {0: [KAFKA, OURS], 1: [OURS, KAFKA]})
            until_in_sync(cluster, "t", {0: KAFKA, 1: OURS})
            asked = len(provider.forms)
            replicate_both_ways(cluster, lambda: metric(ours, RENEWED) >= 2 and len(provider.forms) >= asked + 4)
