"""Malformed input on listeners with TLS and SASL, before a client has logged in: only its own connection ends, and no request
is executed.

`ODRADEK_FUZZED_CONNECTIONS` is the number of connections to each listener, `ODRADEK_FAULT_SEED` repeats a run.
"""

from __future__ import annotations

import base64
import os
import random
import socket
import ssl
from collections.abc import Iterator

import pytest

from odradek.clients import users
from odradek.clients.cluster import Cluster
from odradek.protocol.schemas import api_versions, produce, sasl_authenticate, sasl_handshake
from odradek.security.sasl.scram_credential import SHA_256
from odradek.testing import Broker
from odradek.testing.certificates import make_certificates
from tests.faults.hostile import QUIET, Bystander, damaged, framed
from tests.sasl import PLAIN_LINE, port_of
from tests.wire import TIMEOUT_S, Wire, produce_request, request_frame
from tests.wire import batch as batch_of

TOPIC = "guarded"
CONNECTIONS = int(os.environ.get("ODRADEK_FUZZED_CONNECTIONS", "150"))
LISTENERS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
TOKENS = {
    "PLAIN": [b"\0alice\0wrong", b"", b"\0\0", b"a\0alice\0other", b"\0" * 5, "\0älice\0ü".encode()],
    "SCRAM-SHA-256": [
        b"n,,n=alice,r=nonce",
        b"y,a=bob,n=alice,r=nonce,tokenauth=true",
        b"p=tls-unique,,n=alice,r=nonce",
        b"c=biws,r=nonce,p=" + base64.b64encode(bytes(32)),
        b"n,,n==2C=3D,r=,,,,=",
    ],
    "OAUTHBEARER": [b"n,,\1auth=Bearer a.b.c\1\1", b"n,a=x,\1auth=Bearer \1\1", b"\1"],
    "GSSAPI": [b"\x60\x82"],
}
pytestmark = [pytest.mark.xdist_group("bytes-before-login"), pytest.mark.timeout(240 + CONNECTIONS)]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory):
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, certificates) -> Iterator[Broker]:
    """At the end, no process has been restarted, nobody else was disturbed, and nothing was executed."""
    config = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", *LISTENERS)),
        "ssl.keystore.location": str(certificates.broker),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": "0",
        "num.network.threads": "2",
        "auto.create.topics.enable": "false",
        **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": PLAIN_LINE for name in LISTENERS[1:]},
    }
    with Broker(config, {TOPIC: 1, QUIET: 1}, directory=tmp_path_factory.mktemp("before-login")) as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            users.set_password(cluster, "alice", "alice-secret", [SHA_256], 4096)
        before = [(one["kind"], one["ordinal"], one["pid"]) for one in broker.processes()]
        bystander = Bystander(broker)
        yield broker
        bystander.goes_on()
        bystander.end()
        after = broker.processes()
        assert [(one["kind"], one["ordinal"], one["pid"]) for one in after] == before
        assert {one["restarts"] for one in after} == {0} and broker.status()["memory_faults"] == 0
        log = broker.log_file.read_text()
        assert "Traceback" not in log and "alice-secret" not in log


def conversation(rng: random.Random) -> bytes:
    """What a client sends that cannot log in, damaged; behind it a Produce request, which must not be executed."""
    mechanism = rng.choice([*TOKENS, "\u00fc" * 300, ""])
    raw = rng.random() < 0.3  # tokens without a header follow SaslHandshake 0
    sent = []
    if rng.random() < 0.5:
        sent.append(request_frame(api_versions.Request(), api_versions.API_KEY, rng.choice((0, 3))))
    handshake = sasl_handshake.Request(mechanism=mechanism)
    sent.append(request_frame(handshake, sasl_handshake.API_KEY, 0 if raw else 1))
    for _ in range(rng.randrange(1, 4)):
        token = rng.choice(TOKENS.get(mechanism, [b"x"]))
        if rng.random() < 0.3:
            token = rng.randbytes(rng.randrange(200))
        request = sasl_authenticate.Request(auth_bytes=token)
        sent.append(framed(token) if raw else request_frame(request, sasl_authenticate.API_KEY, rng.randrange(3)))
    for at in range(len(sent)):
        if rng.random() < 0.4 and len(sent[at]) > 4:
            sent[at] = damaged(rng, sent[at])
    sent.append(request_frame(produce_request([(TOPIC, [(0, batch_of(b"stranger"))])]), produce.API_KEY, 9))
    if rng.random() < 0.1:
        sent.insert(rng.randrange(len(sent)), rng.randbytes(rng.randrange(1, 300)))
    return b"".join(sent)


def talk(connected: socket.socket, data: bytes, cut: int) -> None:
    """Send `data` in two parts, then wait until the broker has closed the connection."""
    try:
        connected.sendall(data[:cut])
        connected.sendall(data[cut:])
        connected.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # closed at the first part
    with Wire.over(connected) as wire:
        try:
            wire.to_end()
        except (ssl.SSLError, OSError) as error:
            assert not isinstance(error, TimeoutError), f"the connection hangs: {data.hex()}"


@pytest.mark.parametrize("listener", LISTENERS)
def test_nothing_is_executed_and_only_the_own_connection_ends(broker: Broker, certificates, listener: str) -> None:
    seed = int(os.environ.get("ODRADEK_FAULT_SEED") or random.SystemRandom().randrange(1 << 32))
    rng = random.Random(seed)
    print(f"\nODRADEK_FAULT_SEED={seed}")
    context = ssl.create_default_context(cafile=str(certificates.ca))
    address = ("127.0.0.1", port_of(broker, listener))
    for _ in range(CONNECTIONS):
        data = conversation(rng) if listener != "SSL" else rng.randbytes(rng.randrange(1, 400))
        plain = socket.create_connection(address, timeout=TIMEOUT_S)
        with plain:
            if listener == "SASL_SSL" and rng.random() < 0.9:
                with context.wrap_socket(plain, server_hostname="localhost") as tls:
                    talk(tls, data, rng.randrange(len(data)))
            else:
                talk(plain, data, rng.randrange(len(data)))


def test_no_record_of_a_stranger_is_in_the_log(broker: Broker) -> None:
    with Wire.to(broker) as wire:
        assert wire.log_end(TOPIC, 0) == 0


def test_the_conversation_of_a_user_is_executed(broker: Broker, certificates) -> None:
    """What the other tests send is executed after a login: they test something."""
    sent = [
        request_frame(sasl_handshake.Request(mechanism="PLAIN"), sasl_handshake.API_KEY, 1),
        request_frame(sasl_authenticate.Request(auth_bytes=b"\0alice\0alice-secret"), sasl_authenticate.API_KEY, 2),
        request_frame(produce_request([(QUIET, [(5, batch_of(b"x"))])]), produce.API_KEY, 9),
    ]
    with Wire("127.0.0.1", port_of(broker, "SASL_PLAINTEXT")) as wire:
        wire.socket.sendall(b"".join(sent))
        assert [len(wire.raw_frame()) > 0 for _ in sent] == [True] * 3
