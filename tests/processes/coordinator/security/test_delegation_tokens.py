"""Delegation tokens at a running broker: revocation in all workers, expiry, renewals, restarts, and ends of the coordinator."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.clients import users
from odradek.clients.cluster import Cluster
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import expire_delegation_token, metadata
from odradek.security.sasl.client import Credentials, LoginError
from odradek.security.sasl.scram_credential import SHA_256, SHA_512
from odradek.testing import Broker
from tests.sasl import port_of, settings
from tests.tokens import PLAIN_USERS, TokenWire, login_of, user
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("token-logins")

METADATA = metadata.Request(topics=[], allow_auto_topic_creation=False)
CONFIG = settings("SASL_PLAINTEXT", "LONG") | {
    "listener.name.long.connections.max.reauth.ms": "3600000",
    "num.network.threads": "3",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    "delegation.token.secret.key": "the secret of all brokers",
    "delegation.token.expiry.check.interval.ms": "100",
    "connection.failed.authentication.delay.ms": "0",
    "odradek.delegation.tokens.max.per.principal": "5",
}
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("token-logins")) as running:
        yield running


@pytest.fixture
def alice(broker):
    with TokenWire.on(broker) as wire:
        wire.log_in(user("alice"))
        yield wire
        for token in wire.describe().tokens:
            wire.expire(token.hmac)


def serves(wire):
    """Whether a request on the connection is executed."""
    return wire.ask(METADATA, 3, 4).controller_id >= 0


def outcome(broker, credentials):
    with TokenWire.on(broker) as wire:
        try:
            wire.log_in(credentials)
        except LoginError:
            return "refused"
        return "logged in" if serves(wire) else "not served"


def coordinator_of(broker):
    return next(process["pid"] for process in broker.status()["processes"] if process["kind"] == "coordinator")


def test_the_log_says_whether_the_password_is_wrong_or_the_user_does_not_exist(tmp_path):
    """Of an address, a worker logs one line for each reason, and five about further users, so this broker has one worker."""
    with Broker(CONFIG | {"num.network.threads": "1"}, directory=tmp_path) as broker:
        with Cluster(f"127.0.0.1:{port_of(broker, 'PLAINTEXT')}") as cluster:
            users.set_password(cluster, "carol", "carol-secret", [SHA_256, SHA_512], 4096)
        with TokenWire.on(broker) as wire:
            wire.log_in(user("alice"))
            token_id = wire.create().token_id
        wrong = "the password is wrong"
        tried = [
            *((mechanism, "carol", False, wrong) for mechanism in MECHANISMS),
            ("PLAIN", "alice", False, wrong),
            *((mechanism, "nobody", False, "there is no such user for this mechanism") for mechanism in MECHANISMS),
            ("PLAIN", "nobody", False, "there is no such user for this mechanism"),
            ("SCRAM-SHA-256", token_id, True, "the password of the token is wrong"),
            ("SCRAM-SHA-512", "a\x1b[2K\nb", True, "there is no such token, or it has expired"),
        ]
        for mechanism, name, by_token, _ in tried:
            assert outcome(broker, Credentials(mechanism, name, "wrong", by_token=by_token)) == "refused"
        lines = [line for line in broker.log_file.read_text().splitlines() if " odradek.security: a login as " in line]
    assert len(lines) == len(tried)
    for line, (mechanism, name, by_token, detail) in zip(lines, tried, strict=True):
        named = (
            (f"delegation token {name}" if by_token else name).encode("unicode_escape").decode().replace("\\", "\\\\")
        )
        assert f"a login as '{named}' from 127.0.0.1" in line and f" failed with {mechanism}: " in line
        assert f" ({detail}); " in line and line.isprintable()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_after_the_response_to_an_expiry_no_worker_accepts_the_token(broker, alice, mechanism):
    for _ in range(4):
        token = alice.create()
        credentials = login_of(token, mechanism)
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(lambda _: outcome(broker, credentials), range(6))) == ["logged in"] * 6  # noqa: B023
        assert alice.expire(token.hmac).error_code == 0
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(lambda _: outcome(broker, credentials), range(6))) == ["refused"] * 6  # noqa: B023


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_under_way_does_not_outlive_the_token(broker, alice, mechanism):
    for change in ("remove", "shorten", "renew", "another"):
        token, other = alice.create(), alice.create()
        with TokenWire.on(broker) as wire:
            steps = wire.steps(login_of(token, mechanism))
            next(steps)
            next(steps)  # the handshake and the first message are answered
            if change == "remove":
                alice.expire(token.hmac)
            elif change == "shorten":
                alice.expire(token.hmac, 60_000)
            elif change == "renew":
                alice.renew(token.hmac)
            else:
                alice.expire(other.hmac)
            last = next(steps)
            assert last.error_code == (ErrorCode.SASL_AUTHENTICATION_FAILED if change == "remove" else 0)
            if change != "remove":
                assert serves(wire)
                assert (last.session_lifetime_ms <= 60_000) == (change == "shorten")
        alice.expire(token.hmac), alice.expire(other.hmac)


def test_a_connection_ends_with_the_session_of_its_token(broker, alice):
    token = alice.create(lifetime=1500)
    with TokenWire.on(broker) as wire:
        lifetime = wire.log_in(login_of(token))
        assert 0 < lifetime <= 1500 and serves(wire)

        def ended():
            try:
                return not serves(wire)
            except (EOFError, ConnectionError):
                return True

        until(ended, "the session ends")
    assert outcome(broker, login_of(token)) == "refused"
    until(lambda: alice.ids() == [], "the expired token is removed")
    assert alice.renew(token.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_renewed_token_has_longer_sessions_in_all_workers(broker, alice):
    token = alice.create()
    alice.expire(token.hmac, 60_000)
    for period, least, most in ((-1, 86_000_000, 86_400_000), (30_000, 1, 30_000), (600_000, 500_000, 600_000)):
        assert alice.renew(token.hmac, period).error_code == 0
        for _ in range(6):
            with TokenWire.on(broker) as wire:
                assert least <= wire.log_in(login_of(token)) <= most


def test_a_renewal_of_a_login_decides_whether_the_connection_is_that_of_a_token(broker, alice):
    """The user of a password may manage tokens, the same user with a token may not; the connection may change between both."""
    with Cluster(broker.bootstrap_servers) as cluster:
        users.set_password(cluster, "alice", "scram-secret", [SHA_256, SHA_512], 4096)
    token = alice.create()
    password = Credentials("SCRAM-SHA-256", "alice", "scram-secret")
    with TokenWire.on(broker) as wire:
        wire.log_in(login_of(token))
        assert wire.create().error_code == wire.describe().error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        wire.log_in(password)
        assert wire.describe().error_code == 0
    with TokenWire.on(broker) as wire:
        wire.log_in(login_of(token))
        with Cluster(broker.bootstrap_servers) as cluster:
            users.set_password(cluster, "bob", "bob-secret", [SHA_256], 4096)
        with pytest.raises(LoginError, match="Cannot change principals"):
            wire.log_in(user("bob")._replace(mechanism="SCRAM-SHA-256"))
    with TokenWire.on(broker, "LONG") as wire:
        wire.log_in(password._replace(mechanism="SCRAM-SHA-512"))
        assert wire.describe().error_code == 0
        wire.log_in(login_of(token, "SCRAM-SHA-512"))
        assert wire.describe().error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_wrong_tokens_are_refused(broker, alice):
    token = alice.create()
    good = login_of(token)
    for wrong in (
        good._replace(user="nothing"),
        good._replace(user="../x"),
        good._replace(user="x" * 1000),
        good._replace(password="wrong"),
        good._replace(by_token=False),
        Credentials("SCRAM-SHA-256", "alice", "scram-secret", by_token=True),
    ):
        assert outcome(broker, wrong) == "refused", wrong
    assert outcome(broker, good) == "logged in"


def test_the_tokens_of_a_principal_are_limited(broker, alice):
    made = [alice.create() for _ in range(6)]
    assert [token.error_code for token in made] == [0] * 5 + [ErrorCode.POLICY_VIOLATION]
    with TokenWire.on(broker) as bob:
        bob.log_in(user("bob"))
        token = bob.create()
        assert token.error_code == 0
        assert bob.create(*["x"] * 101).error_code == ErrorCode.INVALID_REQUEST
        assert bob.expire(token.hmac).error_code == 0


def test_too_many_renewers_close_the_connection(broker):
    with TokenWire.on(broker) as wire:
        wire.log_in(user("bob"))
        with pytest.raises((EOFError, ConnectionError)):
            wire.create(*["x"] * 201)


def test_tokens_and_their_hmacs_outlive_the_coordinator(broker, alice):
    token = alice.create()
    with TokenWire.on(broker) as wire:
        pid = coordinator_of(broker)
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        wire.log_in(login_of(token))  # waits for the successor
        assert serves(wire)
    assert alice.renew(token.hmac).error_code == 0


def test_a_login_under_way_while_the_coordinator_ends_succeeds(broker):
    """A request that was sent to a coordinator that ended closes its connection, so each attempt to reach the successor
    uses a new connection."""

    def answered(ask):
        try:
            with TokenWire.on(broker) as wire:
                wire.log_in(user("carol"))
                return ask(wire)
        except (EOFError, ConnectionError):
            return None

    token = answered(lambda wire: wire.create())
    with TokenWire.on(broker) as wire:
        steps = wire.steps(login_of(token))
        next(steps)
        next(steps)
        os.kill(coordinator_of(broker), signal.SIGKILL)
        until(lambda: answered(lambda one: one.ids()) == [token.token_id], "the successor serves")
        assert next(steps).error_code == 0 and serves(wire)
    assert answered(lambda wire: wire.expire(token.hmac).error_code) == 0


def test_no_login_that_begins_after_an_expiry_succeeds_although_the_coordinator_is_killed(broker):
    """The coordinator is killed between the request and its response: perhaps before the change, perhaps between the change
    and its announcement. The client repeats the request; after the response, nobody may log in."""

    def expired(token):
        try:
            with TokenWire.on(broker) as wire:
                wire.log_in(user("carol"))
                return wire.expire(token.hmac).error_code in (0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        except (EOFError, ConnectionError):
            return False

    def attempts(token, ended):
        """Log in again and again; the outcomes of the logins that began after `ended`."""
        after = []
        while len(after) < 2:
            has_ended = ended.is_set()
            try:
                found = outcome(broker, login_of(token))
            except (EOFError, ConnectionError):
                found = "closed"
            if has_ended:
                after.append(found)
        return after

    for _ in range(3):
        with TokenWire.on(broker) as wire:
            wire.log_in(user("carol"))
            token = wire.create()
            ended = threading.Event()
            with ThreadPoolExecutor(4) as pool:
                found = [pool.submit(attempts, token, ended) for _ in range(4)]
                try:
                    wire.socket.sendall(
                        wire.frame(expire_delegation_token.Request(hmac=token.hmac, expiry_time_period_ms=-1), 40, 2)
                    )
                    os.kill(coordinator_of(broker), signal.SIGKILL)
                    until(lambda: expired(token), "the token is expired")  # noqa: B023 - used at once
                finally:
                    ended.set()
                assert all(set(one.result()) <= {"refused", "closed"} for one in found)


def test_tokens_outlive_a_restart_and_are_void_with_another_key(tmp_path):
    with Broker(CONFIG, directory=tmp_path) as broker, TokenWire.on(broker) as wire:
        wire.log_in(user("alice"))
        token = wire.create()
        assert outcome(broker, login_of(token)) == "logged in"
    with Broker(CONFIG, directory=tmp_path) as broker:
        assert outcome(broker, login_of(token)) == "logged in"
    other = {key: value for key, value in CONFIG.items() if key != "delegation.token.secret.key"}
    with Broker(other | {"delegation.token.master.key": "another"}, directory=tmp_path) as broker:
        assert outcome(broker, login_of(token)) == "refused"
        with TokenWire.on(broker) as wire:
            wire.log_in(user("alice"))
            (same,) = wire.describe().tokens
            assert same.token_id == token.token_id and bytes(same.hmac) != bytes(token.hmac)
            assert outcome(broker, login_of(same)) == "logged in"
    with Broker(other, directory=tmp_path) as broker, TokenWire.on(broker) as wire:
        assert outcome(broker, login_of(same)) == "refused"
        wire.log_in(user("alice"))
        codes = (
            wire.create().error_code,
            wire.renew(same.hmac).error_code,
            wire.expire(same.hmac).error_code,
            wire.describe().error_code,
        )
        assert codes == (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,) * 4
        log = broker.log_file.read_text()
    assert "another" not in log and "the secret of all" not in log


@pytest.mark.parametrize("version", range(4))
def test_all_versions_are_served(broker, version):
    with TokenWire.on(broker) as wire:
        wire.log_in(user("carol"))
        token = wire.create("bob", version=version)
        assert token.error_code == 0
        assert [one.token_id for one in wire.describe(version=version).tokens] == [token.token_id]
        assert wire.renew(token.hmac, version=min(version, 2)).error_code == 0
        assert wire.expire(token.hmac, version=min(version, 2)).error_code == 0
    with TokenWire("127.0.0.1", port_of(broker, "PLAINTEXT")) as wire:
        codes = (
            wire.create(version=version).error_code,
            wire.describe(version=version).error_code,
            wire.renew(b"", version=min(version, 2)).error_code,
            wire.expire(b"", version=min(version, 2)).error_code,
        )
        assert codes == (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,) * 4
