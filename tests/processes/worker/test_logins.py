"""Logins at a running broker: gates, failures, limits, renewals, and changes of credentials."""

import os
import signal
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from odradek.clients import configs, users
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, RefusedError
from odradek.clients.login import log_in
from odradek.clients.wire import Connection
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import metadata, sasl_authenticate, sasl_handshake
from odradek.security.sasl.client import Credentials, LoginError
from odradek.security.sasl.scram_credential import SHA_256, SHA_512
from odradek.testing import Broker
from tests.metrics.scraping import scrape
from tests.sasl import ALICE, BAD, GOOD, SaslWire, port_of, settings
from tests.waiting import until, which_readable
from tests.wire import fetch_request

pytestmark = pytest.mark.xdist_group("logins")

DELAY_MS = 50
METADATA = metadata.Request(topics=[], allow_auto_topic_creation=False)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    config = settings("SASL_PLAINTEXT", "SHORT", "LONG") | {
        "num.network.threads": "2",
        "metrics.listener": "127.0.0.1:0",
        "connection.failed.authentication.delay.ms": str(DELAY_MS),
        "listener.name.short.connections.max.reauth.ms": "300",
        "listener.name.long.plain.connections.max.reauth.ms": "3600000",
        "sasl.server.max.receive.size": "2000",
    }
    with Broker(config, {"t": 1}, directory=tmp_path_factory.mktemp("logins")) as running:
        yield running


@pytest.fixture
def plain(broker):
    with Cluster(f"127.0.0.1:{port_of(broker, 'PLAINTEXT')}") as cluster:
        yield cluster


@pytest.fixture
def wire(broker):
    with SaslWire.on(broker) as one:
        yield one


def serves(wire):
    """Whether a request on the connection is executed."""
    return wire.ask(METADATA, 3, 4).controller_id >= 0


# -- before the login ------------------------------------------------------------------------------------------------


def test_each_mechanism_and_form_of_tokens_opens_the_connection(broker, plain):
    users.set_password(plain, "bob", "bob-secret", [SHA_256, SHA_512], 4096)
    for credentials in (ALICE, *(Credentials(one.name, "bob", "bob-secret") for one in (SHA_256, SHA_512))):
        with SaslWire.on(broker) as one:
            assert one.log_in(credentials) == 0 and serves(one)
    with SaslWire.on(broker) as one:
        assert one.handshake(version=0).error_code == 0
        one.socket.sendall(struct.pack(">i", len(GOOD)) + GOOD)
        assert one.raw_frame() == b"" and serves(one)


def test_frames_that_follow_the_last_token_in_one_packet_are_executed_in_order(wire):
    frames = [
        wire.frame(sasl_handshake.Request(mechanism="PLAIN"), 17, 1),
        wire.frame(sasl_authenticate.Request(auth_bytes=GOOD), 36, 2),
        wire.frame(METADATA, 3, 4),
        wire.frame(METADATA, 3, 4),
    ]
    wire.socket.sendall(b"".join(frames))
    assert [wire.receive().error_code for _ in range(2)] == [0, 0]
    assert [wire.receive().controller_id for _ in range(2)] == [1, 1]


def test_frames_that_come_byte_by_byte_are_a_login_too(wire):
    wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for data in (
        wire.frame(sasl_handshake.Request(mechanism="PLAIN"), 17, 1),
        wire.frame(sasl_authenticate.Request(auth_bytes=GOOD), 36, 2),
        wire.frame(METADATA, 3, 4),
    ):
        for byte in data:
            wire.socket.sendall(bytes([byte]))
        wire.receive()


@pytest.mark.parametrize("behind", [b"", b"\0\0\0\x01x"])
def test_other_requests_close_the_connection_unanswered_and_are_not_executed(broker, wire, behind):
    topics = [metadata.Request.MetadataRequestTopic(name="never")]
    request = wire.frame(metadata.Request(topics=topics, allow_auto_topic_creation=True), 3, 4)
    wire.socket.sendall(request + behind)
    assert wire.closed_by_broker()
    with SaslWire.on(broker) as one:
        one.log_in()
        assert "never" not in [topic.name for topic in one.ask(metadata.Request(topics=None), 3, 4).topics]


@pytest.mark.parametrize("size", [0, 1, 7, 2000])
def test_a_token_may_be_as_short_as_no_request_is(broker, size):
    with SaslWire.on(broker) as one:
        one.handshake(version=0)
        one.socket.sendall(struct.pack(">i", size) + b"x" * size)
        assert one.closed_by_broker()  # not for its size, but because it is wrong: after the delay


@pytest.mark.parametrize("size", [2001, 1 << 30, -1])
def test_a_frame_larger_than_the_limit_before_a_login_closes_the_connection_at_once(broker, wire, size):
    wire.socket.sendall(struct.pack(">i", size))
    assert wire.closed_by_broker()
    with SaslWire.on(broker) as one:
        one.log_in()
        topics = [metadata.Request.MetadataRequestTopic(name="x" * 200) for _ in range(20)]
        assert len(one.ask(metadata.Request(topics=topics, allow_auto_topic_creation=False), 3, 4).topics) > 0


def test_http_and_tls_get_the_usual_line_in_the_log(broker):
    for data, words in (
        (b"GET / HTTP/1.1\r\n\r\n", "speaks HTTP"),
        (b"\x16\x03\x01\x02\x00" + b"x" * 40, "speaks TLS"),
    ):
        with SaslWire.on(broker) as one:
            one.socket.sendall(data)
            assert one.closed_by_broker()
        until(lambda words=words: words in broker.log_file.read_text(), words)


def test_on_a_listener_without_sasl_the_requests_are_refused(broker):
    with SaslWire.on(broker, "PLAINTEXT") as one:
        assert one.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert one.authenticate().error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert serves(one)


def test_the_client_says_which_setting_does_not_fit_the_listener(broker):
    plain = Connection("127.0.0.1", port_of(broker, "PLAINTEXT"), 30)
    with closing(plain), pytest.raises(ClientError, match=r"the listener has no SASL .*set security\.protocol"):
        log_in(plain, ALICE)
    refused = Connection("127.0.0.1", port_of(broker, "SASL_PLAINTEXT"), 30)
    wrong = Credentials("PLAIN", "alice", "wrong-secret")
    with closing(refused), pytest.raises(ClientError, match=r"check sasl\.mechanism and sasl\.jaas\.config") as caught:
        log_in(refused, wrong)
    assert "wrong-secret" not in str(caught.value)
    without = Connection("127.0.0.1", port_of(broker, "SASL_PLAINTEXT"), 30)
    with closing(without), pytest.raises(ClientError, match=r"if the listener requires a login, set .*sasl\.mechanism"):
        without.ask(metadata.SCHEMA, metadata.Request(topics=[]))


def test_after_a_login_without_an_end_the_requests_are_refused_and_the_connection_lives(wire):
    wire.log_in()
    assert wire.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.authenticate(BAD).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert serves(wire)


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_failure_is_answered_after_the_delay_and_closes_the_connection(broker, wire):
    wire.handshake()
    began = time.monotonic()
    wire.send(sasl_authenticate.Request(auth_bytes=BAD), 36, 2)
    wire.send(METADATA, 3, 4)
    response = wire.receive()
    assert time.monotonic() - began >= (DELAY_MS - 5) / 1000  # the timers of the event loop count milliseconds
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert wire.closed_by_broker()


def test_failures_of_an_address_are_one_line_in_the_log_without_secrets(broker):
    for _ in range(5):
        with SaslWire.on(broker) as one, pytest.raises(LoginError):
            one.log_in(Credentials("PLAIN", "alice", "a-wrong-password"))
    log = broker.log_file.read_text()
    line = "failed with PLAIN: Authentication failed: Invalid username or password"
    assert 1 <= log.count(line) <= 2  # one of each worker
    assert "a-wrong-password" not in log and "alice-secret" not in log and "admin-secret" not in log


def test_logins_are_counted_by_listener_and_mechanism(broker):
    def count(name, **labels):
        return scrape(broker).sum(f"kafka_server_socket_server_metrics_{name}", **labels)

    labels = {"listener": "LONG", "mechanism": "PLAIN"}
    before = [count(f"{outcome}_authentication_total", **labels) for outcome in ("successful", "failed")]
    for password, outcome in (("alice-secret", None), ("wrong", LoginError), ("wrong", LoginError)):
        with SaslWire.on(broker, "LONG") as one:
            try:
                one.log_in(Credentials("PLAIN", "alice", password))
            except LoginError:
                assert outcome is LoginError
    after = [count(f"{outcome}_authentication_total", **labels) for outcome in ("successful", "failed")]
    assert [new - old for new, old in zip(after, before, strict=True)] == [1, 2]


def test_the_usage_names_the_principal(broker):
    with SaslWire.on(broker) as one:
        one.client_id = "of-alice"
        one.log_in()
        assert serves(one)
        labels = {"principal": "User:alice", "client_id": "of-alice"}
        until(lambda: scrape(broker).sum("odradek_usage_bytes_in_total", **labels) > 0, "usage")


# -- limits ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    config = settings() | {
        "num.network.threads": "1",
        "odradek.authentication.timeout.ms": "1500",
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(config, directory=tmp_path_factory.mktemp("limited")) as running:
        yield running


def test_a_client_that_does_not_log_in_in_time_is_disconnected_and_others_are_not(limited):
    with SaslWire.on(limited) as idle, SaslWire.on(limited) as good, SaslWire.on(limited) as half:
        good.log_in()
        half.handshake()
        assert idle.closed_by_broker() and half.closed_by_broker()
        assert serves(good)


def test_of_too_many_connections_without_a_login_one_is_closed(tmp_path):
    config = settings() | {
        "num.network.threads": "1",
        "odradek.authentication.timeout.ms": "600000",
        "odradek.unauthenticated.max.connections": "3",
    }
    with Broker(config, directory=tmp_path) as broker, SaslWire.on(broker) as good:
        good.log_in()
        waiting = [SaslWire.on(broker) for _ in range(4)]
        try:
            (ended,) = which_readable([one.socket for one in waiting], 60)
            assert ended.recv(1) == b""
            for one in waiting:
                if one.socket is not ended:
                    one.log_in()
                    assert serves(one)
        finally:
            for one in waiting:
                one.socket.close()
        assert serves(good)


# -- renewals --------------------------------------------------------------------------------------------------------


def until_closed(wire):
    """Send requests until the broker closes the connection; returns how many were answered."""
    answered = 0
    try:
        while True:
            assert serves(wire)
            answered += 1
    except (EOFError, ConnectionError):
        return answered


def test_a_connection_that_outlives_its_session_is_closed_at_its_next_request(broker):
    with SaslWire.on(broker, "SHORT") as one:
        assert one.log_in() == 300
        assert until_closed(one) >= 0
    until(lambda: "expired_connections_killed_total{" in scrape(broker).text, "the count")


def test_a_renewed_session_goes_on(broker):
    with SaslWire.on(broker, "SHORT") as one:
        one.log_in()
        assert one.log_in() == 300  # the first renewal may come at once
        renewed = time.monotonic()  # the next one only a second after it: without a request until then
        until(lambda: time.monotonic() > renewed + 1.05, "a second has passed")
        assert one.log_in() == 300
        assert serves(one)


def test_a_second_renewal_within_a_second_is_refused(broker):
    with SaslWire.on(broker, "LONG") as one:
        assert one.log_in() == 3_600_000
        assert one.log_in() == 3_600_000
        assert one.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert serves(one)


def test_a_renewal_waits_for_the_requests_before_it(broker):
    with SaslWire.on(broker, "LONG") as one:
        one.log_in()
        one.send(fetch_request([("t", 0, 0)], wait_ms=300), 1, 11)  # parked: the topic is empty
        one.send(sasl_handshake.Request(mechanism="PLAIN"), 17, 1)
        one.send(sasl_authenticate.Request(auth_bytes=GOOD), 36, 2)
        one.send(METADATA, 3, 4)
        assert one.receive().responses[0].partitions[0].error_code == 0
        assert one.receive().error_code == 0
        assert one.receive().session_lifetime_ms == 3_600_000
        assert one.receive().controller_id == 1


@pytest.mark.parametrize("token", [b"\0admin\0admin-secret", BAD])
def test_another_user_or_a_wrong_password_cannot_renew(broker, token):
    with SaslWire.on(broker, "LONG") as one:
        one.log_in()
        one.handshake()
        assert one.authenticate(token).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert one.closed_by_broker()


def test_during_a_renewal_no_other_request_is_executed(broker):
    with SaslWire.on(broker, "LONG") as one:
        one.log_in()
        one.handshake()
        one.send(METADATA, 3, 4)
        assert one.closed_by_broker()


def test_a_mechanism_that_is_not_enabled_cannot_renew(broker):
    with SaslWire.on(broker, "LONG") as one:
        one.log_in()
        assert one.handshake("GSSAPI").error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert one.closed_by_broker()


# -- credentials -----------------------------------------------------------------------------------------------------


def outcome(broker, password, user="carol"):
    with SaslWire.on(broker) as one:
        try:
            one.log_in(Credentials("SCRAM-SHA-256", user, password))
        except LoginError:
            return "refused"
        return "logged in"


def test_after_the_response_to_a_change_no_worker_accepts_the_old_password(broker, plain):
    for number in range(15):
        users.set_password(plain, "carol", f"password {number}", [SHA_256], 4096)
        with ThreadPoolExecutor(4) as pool:
            new = list(pool.map(lambda _: outcome(broker, f"password {number}"), range(4)))  # noqa: B023 - used at once
        old = outcome(broker, f"password {number - 1}")
        assert (new, old) == (["logged in"] * 4, "refused")
    users.remove(plain, "carol", [SHA_256])
    assert outcome(broker, "password 14") == "refused"
    with pytest.raises(RefusedError, match="no SCRAM credential"):
        users.describe(plain, ["carol"])


def test_a_login_under_way_does_not_outlive_the_password(broker, plain):
    for change, expected in (("new", ErrorCode.SASL_AUTHENTICATION_FAILED), ("of another user", 0)):
        users.set_password(plain, "dave", "old", [SHA_256], 4096)
        with SaslWire.on(broker) as one:
            steps = one.steps(Credentials("SCRAM-SHA-256", "dave", "old"))
            next(steps)
            next(steps)  # the handshake and the first message are answered
            if change == "new":
                users.set_password(plain, "dave", "new", [SHA_256], 4096)
            else:
                users.set_password(plain, "erin", "x", [SHA_256], 4096)
            assert next(steps).error_code == expected


def test_a_login_waits_for_the_coordinators_successor(broker, plain):
    users.set_password(plain, "frank", "frank-secret", [SHA_256], 4096)
    with SaslWire.on(broker) as one:
        coordinator = next(
            process["pid"] for process in broker.status()["processes"] if process["kind"] == "coordinator"
        )
        os.kill(coordinator, signal.SIGSTOP)
        os.kill(coordinator, signal.SIGKILL)
        one.log_in(Credentials("SCRAM-SHA-256", "frank", "frank-secret"))
        assert serves(one)


def test_credentials_and_quotas_of_a_user_share_a_node(broker, plain):
    from odradek.protocol.schemas import alter_client_quotas, describe_client_quotas

    def quotas(value=None, remove=False):
        make = alter_client_quotas.Request
        entity = [make.EntityData(entity_type="user", entity_name="gina")]
        op = make.OpData(key="producer_byte_rate", value=value or 0.0, remove=remove)
        request = make(entries=[make.EntryData(entity=entity, ops=[op])], validate_only=False)
        assert plain.ask(alter_client_quotas.SCHEMA, request).entries[0].error_code == 0

    def described():
        make = describe_client_quotas.Request
        component = make.ComponentData(entity_type="user", match_type=0, match="gina")
        response = plain.ask(describe_client_quotas.SCHEMA, make(components=[component], strict=True))
        return [value.value for entry in response.entries for value in entry.values]

    users.set_password(plain, "gina", "gina-secret", [SHA_256], 8192)
    quotas(5.0)
    assert [one.iterations for one in users.describe(plain, ["gina"])] == [8192] and described() == [5.0]
    users.set_password(plain, "gina", "new", [SHA_256], 4096)
    assert described() == [5.0] and outcome(broker, "new", "gina") == "logged in"
    quotas(remove=True)
    assert described() == [] and outcome(broker, "new", "gina") == "logged in"
    users.remove(plain, "gina", [SHA_256])
    assert outcome(broker, "new", "gina") == "refused"


def test_our_own_client_logs_in(broker, plain):
    users.set_password(plain, "hugo", "hugo-secret", [SHA_256, SHA_512], 4096)
    port = port_of(broker, "SASL_PLAINTEXT")
    for credentials in (ALICE, *(Credentials(one.name, "hugo", "hugo-secret") for one in (SHA_256, SHA_512))):
        with closing(Connection("127.0.0.1", port, 30)) as connection:
            assert log_in(connection, credentials) == 0
            assert connection.ask(metadata.SCHEMA, METADATA).controller_id >= 0
    wrong = Credentials("SCRAM-SHA-256", "hugo", "wrong")
    words = r"as hugo: the broker refused the login .*invalid credentials"
    with closing(Connection("127.0.0.1", port, 30)) as connection, pytest.raises(ClientError, match=words):
        log_in(connection, wrong)


# -- settings --------------------------------------------------------------------------------------------------------


def test_secrets_are_not_described(broker, plain):
    entries = configs.describe(plain, configs.Resource("broker", "1"))
    secret = entries["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert secret.sensitive and secret.value is None
    assert "alice-secret" not in str(entries)


def test_mechanisms_change_at_run_time_and_wrong_ones_are_refused(broker, plain):
    key = "listener.name.sasl_plaintext.sasl.enabled.mechanisms"
    resource = configs.Resource("broker", "1")
    for wrong in ("GSSAPI", "SCRAM-SHA-1", ""):
        with pytest.raises(RefusedError, match="must contain"):
            configs.alter(plain, resource, {key: wrong})
    configs.alter(plain, resource, {key: "SCRAM-SHA-512"})
    with SaslWire.on(broker) as one:
        assert one.handshake().mechanisms == ["SCRAM-SHA-512"]
    configs.alter(plain, resource, {}, [key])
    with SaslWire.on(broker) as one:
        assert one.handshake().mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
