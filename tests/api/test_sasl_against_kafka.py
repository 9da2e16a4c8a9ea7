"""The same logins at this broker and at a real Kafka: the responses must be equal, byte for byte.

Recorded differences:

- Kafka lists the enabled mechanisms in the order of a Java hash set; Odradek in the order of the configuration. Each listener
  here has one mechanism.
- A request other than SaslAuthenticate after the handshake: Kafka answers it with its error, Odradek only SaslHandshake and
  ApiVersions, and closes the connection.
- A renewal with a mechanism that is not enabled: Kafka closes the connection without a response.
- Two mechanisms of one user in one AlterUserScramCredentials: Kafka refuses the user, Odradek changes both in one transaction.
- SCRAM with a user or a delegation token that does not exist: Kafka fails at the first message, Odradek at the last one, as
  with a wrong password.
"""

import socket
import struct

import pytest

from odradek.protocol.schemas import (
    alter_user_scram_credentials,
    describe_user_scram_credentials,
    metadata,
)
from odradek.security.sasl.client import Credentials, LoginError
from odradek.security.sasl.scram_credential import SHA_256, salted_password
from tests.sasl import GOOD, PLAIN_LINE, SaslWire, frame
from tests.sasl import authenticate_frame as authenticate
from tests.sasl import handshake_frame as handshake
from tests.sasl import versions_frame as versions
from tests.sasl_pair import both_brokers
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("sasl-against-kafka"), pytest.mark.timeout(900), pytest.mark.java]

SCRAM_LINE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
LISTENERS = {"PL": "PLAIN", "RE": "PLAIN", "SC": "SCRAM-SHA-256"}


METADATA = frame(metadata.Request(topics=[], allow_auto_topic_creation=False), 3, 4)
FUTURE_VERSIONS = struct.pack(">hhih", 18, 99, 7, 2) + b"me\0"
CONVERSATIONS = {
    "versions 1 and 2": ("PL", [handshake(), authenticate()]),
    "versions 1 and 1": ("PL", [handshake(), authenticate(version=1)]),
    "versions 1 and 0": ("PL", [handshake(), authenticate(version=0)]),
    "tokens alone": ("PL", [handshake(version=0), GOOD]),
    "tokens alone, wrong": ("PL", [handshake(version=0), b"\0alice\0wrong"]),
    "one byte": ("PL", [handshake(version=0), b"x"]),
    "no byte": ("PL", [handshake(version=0), b""]),
    "no byte of scram": ("SC", [handshake("SCRAM-SHA-256", 0), b""]),
    "another mechanism": ("PL", [handshake("GSSAPI")]),
    "another mechanism, version 0": ("PL", [handshake("nope", 0)]),
    "lower case": ("PL", [handshake("plain")]),
    "metadata first": ("PL", [METADATA]),
    "authenticate first": ("PL", [authenticate()]),
    "metadata after versions": ("PL", [versions(), METADATA]),
    "two handshakes": ("PL", [handshake(), handshake()]),
    "versions after the handshake": ("PL", [handshake(), versions()]),
    "two versions": ("PL", [versions(), versions()]),
    "future versions": ("PL", [FUTURE_VERSIONS, handshake(), authenticate()]),
    "versions with a wrong name": ("PL", [versions(3, "!"), handshake(), authenticate()]),
    "versions, then a login": ("PL", [versions(3), handshake(), authenticate()]),
    "handshake after the login": (
        "PL",
        [handshake(), authenticate(), handshake(), handshake(version=0)],
    ),
    "authenticate after the login": (
        "PL",
        [handshake(), authenticate(), authenticate(), authenticate(version=0)],
    ),
    "future handshake": ("PL", [struct.pack(">hhih", 17, 2, 7, 2) + b"me\0\5PLAIN"]),
    "future authenticate": ("PL", [handshake(), struct.pack(">hhih", 36, 3, 7, 2) + b"me\0\0\0"]),
    "garbage": ("PL", [b"\xff" * 12]),
    "short garbage": ("PL", [b"\0\x12"]),
    "an unknown api": ("PL", [struct.pack(">hhih", 999, 0, 7, 2) + b"me"]),
    "trailing bytes": ("PL", [handshake() + b"xx", authenticate()]),
    "renewal": (
        "RE",
        [handshake(), authenticate(), handshake(), authenticate(), handshake()],
    ),
    "renewal with a wrong password": (
        "RE",
        [handshake(), authenticate(), handshake(), authenticate(b"\0alice\0wrong")],
    ),
    "renewal as another user": (
        "RE",
        [handshake(), authenticate(), handshake(), authenticate(b"\0admin\0admin-secret")],
    ),
    "handshake without a login": ("PLAINTEXT", [handshake(), authenticate()]),
    **{
        f"plain token {token!r}": ("PL", [handshake(), authenticate(token)])
        for token in (
            b"\0alice\0wrong",
            b"\0nobody\0x",
            b"\0\0x",
            b"\0alice\0",
            b"",
            b"a\0b",
            b"a\0b\0c\0d",
            b"bob\0alice\0alice-secret",
            b"alice\0alice\0alice-secret",
            b"\xff\0alice\0alice-secret",
        )
    },
    **{
        f"scram token {token!r}": ("SC", [handshake("SCRAM-SHA-256"), authenticate(token)])
        for token in (
            b"p=tls-unique,,n=alice,r=abc",
            b"n,,n=,r=abc",
            b"n,,n=alice,r=",
            b"n,,n=al=ice,r=abc",
            b"nonsense",
            b"n,,n=alice,r=abc,x",
            b"n,,r=abc,n=alice",
        )
    },
}


class Side:
    """One of the two brokers, and the ports of its listeners."""

    def __init__(self, ports):
        self._ports = ports

    def wire(self, listener):
        return SaslWire("127.0.0.1", self._ports[listener])

    def said(self, listener, frames):
        """The responses to frames, each sent after the response to the one before; "closed" at the end of the connection."""
        responses = []
        with self.wire(listener) as wire:
            for data in frames:
                try:
                    wire.socket.sendall(struct.pack(">i", len(data)) + data)
                    response = wire.raw_frame()
                except (EOFError, ConnectionError):
                    return [*responses, "closed"]
                responses.append(response[:6] if data[:2] == b"\0\x12" else response)
            wire.socket.shutdown(socket.SHUT_WR)
            return [*responses, wire.to_end()]


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    sasl = {f"listener.name.{name.lower()}.sasl.enabled.mechanisms": mechanism for name, mechanism in LISTENERS.items()}
    sasl |= {f"listener.name.{name}.plain.sasl.jaas.config": PLAIN_LINE for name in ("pl", "re")}
    sasl |= {"listener.name.sc.scram-sha-256.sasl.jaas.config": SCRAM_LINE}
    sasl |= {"listener.name.re.connections.max.reauth.ms": "3600000", "connection.failed.authentication.delay.ms": "0"}
    with both_brokers(tmp_path_factory, [*LISTENERS], sasl) as (ours, theirs):
        yield Side(ours), Side(theirs)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_login_is_answered_as_by_kafka(sides, name):
    ours, theirs = (side.said(*CONVERSATIONS[name]) for side in sides)
    assert ours == theirs


def upsertion(user, mechanism=1, iterations=4096):
    make = alter_user_scram_credentials.Request.ScramCredentialUpsertion
    salted = salted_password(SHA_256, b"secret", b"salt of sixteen.", iterations if iterations < 20000 else 1)
    return make(name=user, mechanism=mechanism, iterations=iterations, salt=b"salt of sixteen.", salted_password=salted)


def deletion(user, mechanism=1):
    return alter_user_scram_credentials.Request.ScramCredentialDeletion(name=user, mechanism=mechanism)


CHANGES = [
    ([], [upsertion("alice"), upsertion("bob", 2, 8192)]),
    ([], [upsertion("")]),
    ([], [upsertion("x", 0)]),
    ([deletion("x", 9)], []),
    ([], [upsertion("x", 1, 4095)]),
    ([], [upsertion("x", 1, 16385)]),
    ([deletion("nobody")], []),
    ([deletion("")], []),
    ([deletion("alice", 2)], [upsertion("carol")]),
    ([deletion("alice", 1)], [upsertion("alice", 1)]),
    ([], [upsertion("dave"), upsertion("dave")]),
    ([deletion("nobody")], [upsertion("nobody", 2)]),
    ([], []),
]
DESCRIBED = [None, [], ["alice"], ["alice", "nobody"], ["alice", "alice"], [""]]


def altered(wire, deletions, upsertions):
    """The result of a change of credentials, by user."""
    response = wire.ask(alter_user_scram_credentials.Request(deletions=deletions, upsertions=upsertions), 51, 0)
    return sorted((result.user, result.error_code, result.error_message) for result in response.results)


def described(wire, users):
    """The credentials of users; None: of all."""
    make = describe_user_scram_credentials.Request
    named = None if users is None else [make.UserName(name=user) for user in users]
    response = wire.ask(make(users=named), 50, 0)
    results = sorted(
        (
            result.user,
            result.error_code,
            result.error_message,
            sorted((info.mechanism, info.iterations) for info in result.credential_infos),
        )
        for result in response.results
    )
    return response.error_code, response.error_message, results


def test_credentials_are_changed_and_described_as_by_kafka(sides):
    """Kafka's broker describes a change only after it has read it from the metadata log, some time after its response."""
    ours, theirs = sides
    with ours.wire("PLAINTEXT") as here, theirs.wire("PLAINTEXT") as there:
        for deletions, upsertions in CHANGES:
            assert altered(here, deletions, upsertions) == altered(there, deletions, upsertions)
            for users in DESCRIBED:
                expected = described(here, users)
                until(
                    lambda users=users, expected=expected: described(there, users) == expected,
                    lambda users=users, expected=expected: f"{users}: {expected} here, {described(there, users)} there",
                )


def test_a_user_of_scram_logs_in_as_at_kafka(sides):
    texts = []
    for side in sides:
        with side.wire("PLAINTEXT") as wire:
            altered(wire, [], [upsertion("erin")])
            until(lambda wire=wire: described(wire, ["erin"])[2][0][3], "the credential can be used")
        with side.wire("SC") as wire:
            assert wire.log_in(Credentials("SCRAM-SHA-256", "erin", "secret")) == 0
            assert wire.ask(metadata.Request(topics=[]), 3, 1).controller_id >= 0
        with side.wire("SC") as wire, pytest.raises(LoginError) as caught:
            wire.log_in(Credentials("SCRAM-SHA-256", "erin", "wrong"))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
