"""A delegation token that a KRaft broker of Kafka created is valid after the adoption of its directory, with the same key.

`tests/cluster/test_tokens_of_cluster.py` adopts one from ZooKeeper.
"""

import pytest

from odradek.testing import Broker
from tests.adopt.test_adoption import odradek
from tests.clients.kafka_peer import Peer
from tests.cluster.test_tokens_of_cluster import BOUND, PROTOCOLS, SETTINGS, Side
from tests.ports import reserved
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


def test_a_token_is_adopted_from_kraft(tmp_path):
    with reserved(2) as first:
        ports = {"PL": first, "S5": first + 1}
        addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ({"PLAINTEXT": "{port}"} | ports).items())
        kafkas = SETTINGS | {
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{{controller}}",
            "advertised.listeners": addresses,
            "listener.security.protocol.map": f"{PROTOCOLS},CONTROLLER:PLAINTEXT",
        }
        peer = Peer(tmp_path / "kafka", kafkas)
        with peer:
            kafka = Side(ports)
            token, removed = kafka.ask("create", "bob"), kafka.ask("create")
            until(lambda: set(kafka.ask("ids")) >= {token.token_id, removed.token_id}, "the tokens are described")
            assert kafka.ask("expire", removed.hmac).error_code == 0
            until(lambda: kafka.ask("ids") == [token.token_id], "the token is removed")
    done = odradek("adopt", "--yes", peer.data_dir)
    assert done.returncode == 0 and "1 delegation token" in done.stdout, done
    with Broker(SETTINGS | BOUND | {"log.dirs": str(peer.data_dir)}, directory=tmp_path / "ours") as broker:
        ours = Side.of(broker)
        assert ours.accepts(token) and not ours.accepts(removed)
        (described,) = ours.ask("describe").tokens
        assert bytes(described.hmac) == bytes(token.hmac)
        assert (described.issue_timestamp, described.expiry_timestamp, described.max_timestamp) == (
            token.issue_timestamp_ms,
            token.expiry_timestamp_ms,
            token.max_timestamp_ms,
        )
        assert ours.ask("expire", token.hmac).error_code == 0 and not ours.accepts(token)
