"""The same requests for delegation tokens to this broker and to a real Kafka: the responses must be equal, but for ids,
HMACs and times.

Recorded differences:

- Owners of another type than User: Kafka creates the token, with which a client logs in as the user of that name. Odradek
  refuses it with INVALID_PRINCIPAL_TYPE.
- A login with an unknown token fails in Kafka at the first message, here at the last one, as with a wrong HMAC.
- A login with an expired token that Kafka has not removed yet succeeds there, and the next request closes the connection; here
  the login fails.
- Kafka 4.3 does not serve version 0 of the four APIs; Odradek does, as Kafka 3.9.
"""

import base64

import pytest

from odradek.protocol.schemas import metadata
from odradek.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.delegation_token import hmac_of
from odradek.security.sasl.client import LoginError
from tests.sasl_pair import both_brokers
from tests.security.over_wire import AUTHORIZER, Client
from tests.tokens import PLAIN_USERS, TokenWire, login_of, user
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("tokens-against-kafka"), pytest.mark.timeout(900), pytest.mark.java]

KEY = "the secret of all brokers"
LISTENERS = {"PL": "PLAIN", "S2": "SCRAM-SHA-256", "S5": "SCRAM-SHA-512"}
MINUTE_MS = 60_000
EXPIRY_MS, LIFETIME_MS = 60 * MINUTE_MS, 600 * MINUTE_MS
SETTINGS = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:admin;User:ANONYMOUS",
    "delegation.token.secret.key": KEY,
    "delegation.token.expiry.time.ms": EXPIRY_MS,
    "delegation.token.max.lifetime.ms": LIFETIME_MS,
    "connection.failed.authentication.delay.ms": "0",
    "listener.name.pl.plain.sasl.jaas.config": PLAIN_USERS,
    "listener.name.s2.connections.max.reauth.ms": str(MINUTE_MS),
    **{f"listener.name.{name.lower()}.sasl.enabled.mechanisms": one for name, one in LISTENERS.items()},
    **{
        f"listener.name.{name.lower()}.{one.lower()}.sasl.jaas.config": "org.apache.kafka.common.security.scram."
        "ScramLoginModule required;"
        for name, one in LISTENERS.items()
        if one != "PLAIN"
    },
}


class At:
    """A listener, for `Client`."""

    def __init__(self, port):
        self.host, self.port = "127.0.0.1", port


class Side:
    """One of the two brokers, and the ports of its listeners."""

    def __init__(self, ports):
        self._ports = ports

    def wire(self, name=None, listener="PL"):
        """A connection, on which a user has logged in."""
        wire = TokenWire("127.0.0.1", self._ports[listener])
        if name is not None:
            wire.log_in(user(name))
        return wire

    def by_token(self, token, mechanism="SCRAM-SHA-512", listener="S5"):
        """A connection on which a client has logged in with a token, and the lifetime of the session."""
        wire = TokenWire("127.0.0.1", self._ports[listener])
        return wire, wire.log_in(login_of(token, mechanism))

    def allow(self, name, operation, kind, resource):
        """Create an ACL, and wait until it is in force."""
        acl = Acl(kind, PatternType.LITERAL, resource, f"User:{name}", "*", operation, Permission.ALLOW)
        with Client(At(self._ports["PLAINTEXT"]), "127.0.0.1") as admin:
            assert admin.create_acls([acl]) == [0]
            until(lambda: acl in admin.acls(), "the ACL is in force")

    def made(self, name, *renewers, **fields):
        """Create a token, and wait until it is known."""
        with self.wire(name) as wire:
            token = wire.create(*renewers, **fields)
            assert token.error_code == 0
        with self.wire("admin") as wire:
            until(lambda: token.token_id in wire.ids(), "the token is described")
        return token


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    with both_brokers(tmp_path_factory, [*LISTENERS], SETTINGS) as (ours, theirs):
        yield Side(ours), Side(theirs)


def minutes(ms):
    """A difference of times, in whole minutes: the brokers' clocks tick between two requests."""
    return round(ms / MINUTE_MS)


def created(response):
    """A response to CreateDelegationToken, to be compared."""
    owner = response.principal_type, response.principal_name
    requester = response.token_requester_principal_type, response.token_requester_principal_name
    if response.error_code:
        times = response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms
        return response.error_code, owner, requester, times, response.token_id, bytes(response.hmac)
    assert bytes(response.hmac) == hmac_of(KEY.encode(), response.token_id)
    issued = response.issue_timestamp_ms
    times = minutes(response.expiry_timestamp_ms - issued), minutes(response.max_timestamp_ms - issued)
    return 0, owner, requester, times, len(response.token_id), response.throttle_time_ms


def changed(response, token=None):
    """A response to RenewDelegationToken or ExpireDelegationToken, to be compared."""
    expiry = response.expiry_timestamp_ms
    return response.error_code, expiry if response.error_code else minutes(expiry - token.issue_timestamp_ms)


def described(response, known):
    """A response to DescribeDelegationToken; the tokens by their names in `known`."""
    names = {token.token_id: name for name, token in known.items()}
    tokens = [
        (
            names[token.token_id],
            (token.principal_type, token.principal_name),
            (token.token_requester_principal_type, token.token_requester_principal_name),
            minutes(token.expiry_timestamp - token.issue_timestamp),
            minutes(token.max_timestamp - token.issue_timestamp),
            sorted((one.principal_type, one.principal_name) for one in token.renewers),
            bytes(token.hmac) == bytes(known[names[token.token_id]].hmac),
        )
        for token in response.tokens
        if token.token_id in names
    ]
    return response.error_code, sorted(tokens)


def same(sides, ask):
    """Ask both brokers, and compare. Returns the answer."""
    ours, theirs = (ask(side) for side in sides)
    assert ours == theirs
    return ours


FOR_ITSELF = [
    ((), {}),
    (("bob",), {}),
    (("bob", "bob", "carol"), {"lifetime": 5 * MINUTE_MS}),
    ((), {"lifetime": 0}),
    ((), {"lifetime": 10**12}),
    (("bob",), {"kind": "Group"}),
]
FOR_OTHERS = [((), {"owner": "User:alice"}), ((), {"owner": "User:bob"}), ((), {"owner": "User:"})]


@pytest.mark.parametrize(
    ("version", "renewers", "fields"),
    [*((version, *one) for version in (1, 2, 3) for one in FOR_ITSELF), *((3, *one) for one in FOR_OTHERS)],
)
def test_tokens_are_created_as_by_kafka(sides, version, renewers, fields):
    def ask(side):
        with side.wire("alice") as wire:
            return created(wire.create(*renewers, version=version, **fields))

    same(sides, ask)


def test_a_token_for_another_owner_needs_create_tokens(sides):
    def ask(side):
        side.allow("carol", Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")
        with side.wire("carol") as wire:
            until(lambda: wire.create(owner="User:bob").error_code == 0, "the right is in force")
            return created(wire.create(owner="User:bob")), created(wire.create(owner="User:alice"))

    assert same(sides, ask)[1][0] == 65


def test_an_owner_of_another_type_is_refused(sides):
    """Different from Kafka, where a client with the token of Group:admin logs in as User:admin."""
    codes = []
    for side in sides:
        with side.wire("admin") as wire:
            codes.append(wire.create(owner="Group:bob").error_code)
    assert codes == [67, 0]


def test_without_a_login_no_api_of_tokens_can_be_used(sides):
    def ask(side):
        with side.wire(listener="PLAINTEXT") as wire:
            hmac = bytes(64)
            return (
                [created(wire.create(version=version)) for version in (1, 2, 3)],
                [changed(wire.renew(hmac, version=version)) for version in (1, 2)],
                [changed(wire.expire(hmac, version=version)) for version in (1, 2)],
                [described(wire.describe(version=version), {}) for version in (1, 2, 3)],
            )

    same(sides, ask)


@pytest.mark.parametrize("version", [1, 2])
def test_tokens_are_renewed_and_expired_as_by_kafka(sides, version):
    def ask(side):
        token = side.made("alice", "bob", lifetime=100 * MINUTE_MS)
        answers = []
        for name, method, period in (
            ("alice", "renew", -1),
            ("alice", "renew", 0),
            ("bob", "renew", 10 * MINUTE_MS),
            ("carol", "renew", 1),
            ("admin", "renew", 1),
            ("alice", "renew", 10**12),
            ("alice", "expire", 20 * MINUTE_MS),
            ("carol", "expire", -1),
            ("bob", "expire", 10**12),
            ("bob", "renew", 2**63 - 1),
            ("bob", "expire", 2**63 - 1),
            ("bob", "expire", -1),
        ):
            with side.wire(name) as wire:
                answers.append(changed(getattr(wire, method)(token.hmac, period, version), token))
        with side.wire("alice") as wire:
            until(lambda: token.token_id not in wire.ids(), "the token is removed")
            answers += [changed(wire.renew(token.hmac, -1, version)), changed(wire.expire(token.hmac, -1, version))]
            answers += [changed(wire.renew(hmac, -1, version)) for hmac in (b"", b"x", bytes(64), b"x" * 5000)]
        return answers

    same(sides, ask)


def test_an_expired_token_is_refused_as_by_kafka(sides):
    def ask(side):
        token = side.made("alice", "bob")
        with side.wire("alice") as wire:
            until(lambda: wire.expire(token.hmac, 0).error_code == 66, "the token has expired")
            answers = [changed(wire.expire(token.hmac, 5))]
        for name in ("carol", "bob"):
            with side.wire(name) as wire:
                answers += [changed(wire.renew(token.hmac, -1)), changed(wire.expire(token.hmac, 5))]
        with side.wire("bob") as wire:
            answers.append(changed(wire.expire(token.hmac, -1), token))
        return answers

    same(sides, ask)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_who_sees_which_tokens_is_as_at_kafka(sides, version):
    asked = [
        {},
        {"every": False},
        {"owners": ["User:alice"]},
        {"owners": ["User:bob"]},
        {"owners": ["User:alice", "User:carol", "Group:alice"]},
        {"owners": ["User:nobody"]},
    ]

    def ask(side):
        known = {
            "alice's": side.made("alice"),
            "alice's, renewed by bob": side.made("alice", "bob"),
            "carol's, made by admin": side.made("admin", owner="User:carol"),
        }
        if version == 3:
            side.allow("bob", Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:carol")
            side.allow("bob", Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, known["alice's"].token_id)
            with side.wire("bob") as wire:
                until(lambda: {one.token_id for one in known.values()} <= set(wire.ids()), "the rights are in force")
        answers = {}
        for name in ("admin", "alice", "bob", "carol"):
            with side.wire(name) as wire:
                for number, fields in enumerate(asked):
                    response = wire.describe(
                        *fields.get("owners", ()), every=fields.get("every", True), version=version
                    )
                    answers[name, number] = described(response, known)
        return answers

    same(sides, ask)


def test_a_client_with_a_token_is_the_owner_and_manages_no_tokens(sides):
    def ask(side):
        token = side.made("alice", "bob")
        answers = []
        for mechanism, listener in (("SCRAM-SHA-512", "S5"), ("SCRAM-SHA-256", "S2")):
            wire, lifetime = side.by_token(token, mechanism, listener)
            with wire:
                answers += [minutes(lifetime), wire.ask(metadata.Request(topics=[]), 3, 1).controller_id >= 0]
                answers += [created(wire.create()), changed(wire.renew(token.hmac)), changed(wire.expire(token.hmac))]
                answers += [described(wire.describe(), {})]
        return answers

    answers = same(sides, ask)
    assert (answers[0], answers[6]) == (minutes(EXPIRY_MS), 1)


@pytest.mark.parametrize("wrong", ["id", "hmac", "without tokenauth", "removed"])
def test_a_login_with_a_wrong_token_fails_as_at_kafka(sides, wrong):
    def ask(side):
        token = side.made("alice")
        credentials = login_of(token, "SCRAM-SHA-512")
        if wrong == "id":
            credentials = credentials._replace(user="another")
        elif wrong == "hmac":
            credentials = credentials._replace(password=base64.b64encode(bytes(64)).decode())
        elif wrong == "without tokenauth":
            credentials = credentials._replace(by_token=False)
        else:
            with side.wire("alice") as wire:
                assert wire.expire(token.hmac).error_code == 0
                until(lambda: token.token_id not in wire.ids(), "the token is removed")
        with side.wire(listener="S5") as wire, pytest.raises(LoginError) as caught:
            wire.log_in(credentials)
        return str(caught.value)

    same(sides, ask)
