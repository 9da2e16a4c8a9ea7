"""SCRAM credentials in the metadata store, with Kafka's error codes."""

import logging

import pytest

from odradek.controller import scram
from odradek.controller.scram import Deletion, Upsertion
from odradek.metadata import znodes
from odradek.metadata.store import StoreUnavailable
from odradek.protocol.errors import ErrorCode
from odradek.security.sasl.scram_credential import SHA_256, SHA_512, salted_password
from odradek.stepwise import Stepwise

SALT = b"salt of sixteen."


def upsertion(user="alice", mechanism=SHA_256.number, iterations=4096, salt=SALT, password=b"secret"):
    salted = salted_password(SHA_256, password, SALT, 4096) if password else b""
    return Upsertion(user, mechanism, iterations, salt, salted)


def alter(cluster, deletions=(), upsertions=()):
    job = Stepwise(
        scram.alter(
            cluster.store,
            cluster.controller.write_settings,
            list(deletions),
            list(upsertions),
            lambda error: scram.AlterationError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)),
        )
    )
    while job.step():
        pass
    return [(user, None if error is None else error.code) for user, error in job.result]


def described(cluster, users=None):
    job = Stepwise(scram.described(cluster.store, users))
    steps = 1
    while job.step():
        steps += 1
    return job.result, steps


def test_a_credential_is_set_found_and_deleted_in_the_node_of_kafka(cluster):
    assert alter(cluster, upsertions=[upsertion("a/b c"), upsertion("a/b c", SHA_512.number)]) == [("a/b c", None)] * 2
    data, _ = cluster.store.get("/config/users/a%2Fb%20c")
    assert set(znodes.decode_config("", data)) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert scram.find(cluster.store, SHA_256, "a/b c").iterations == 4096
    assert described(cluster)[0] == {"a/b c": {SHA_256: 4096, SHA_512: 4096}}
    assert alter(cluster, [Deletion("a/b c", 1)]) == [("a/b c", None)]
    assert described(cluster, ["a/b c", "x", "", ".", "..", "\0", "/"])[0] == {"a/b c": {SHA_512: 4096}}
    assert alter(cluster, [Deletion("a/b c", 2)]) == [("a/b c", None)]
    assert cluster.store.children(znodes.USER_CONFIGS) == []


@pytest.mark.parametrize(
    ("deletions", "upsertions", "codes"),
    [
        ([], [upsertion("")], [("", ErrorCode.UNACCEPTABLE_CREDENTIAL)]),
        ([], [upsertion(iterations=4095)], [("alice", ErrorCode.UNACCEPTABLE_CREDENTIAL)]),
        ([], [upsertion(iterations=16385)], [("alice", ErrorCode.UNACCEPTABLE_CREDENTIAL)]),
        ([], [upsertion(salt=b"")], [("alice", ErrorCode.UNACCEPTABLE_CREDENTIAL)]),
        ([], [upsertion(password=b"")], [("alice", ErrorCode.UNACCEPTABLE_CREDENTIAL)]),
        ([], [upsertion(mechanism=0)], [("alice", ErrorCode.UNSUPPORTED_SASL_MECHANISM)]),
        ([Deletion("alice", 3)], [], [("alice", ErrorCode.UNSUPPORTED_SASL_MECHANISM)]),
        ([Deletion("alice", 1)], [], [("alice", ErrorCode.RESOURCE_NOT_FOUND)]),
        ([], [upsertion(), upsertion()], [("alice", ErrorCode.DUPLICATE_RESOURCE)]),
        ([Deletion("alice", 1)], [upsertion()], [("alice", ErrorCode.DUPLICATE_RESOURCE)]),
        ([Deletion("alice", 2)], [upsertion()], [("alice", ErrorCode.RESOURCE_NOT_FOUND)]),
        ([Deletion("x", 1)], [upsertion("bob")], [("bob", None), ("x", ErrorCode.RESOURCE_NOT_FOUND)]),
    ],
)
def test_a_user_with_an_error_keeps_all_credentials(cluster, deletions, upsertions, codes):
    assert alter(cluster, deletions, upsertions) == codes
    assert set(described(cluster)[0]) == {user for user, code in codes if code is None}


def test_other_settings_of_the_user_are_kept(cluster):
    path = scram.path_of("alice")
    cluster.controller.write_settings(path, {"producer_byte_rate": "5"})
    alter(cluster, upsertions=[upsertion()])
    alter(cluster, [Deletion("alice", 1)])
    assert znodes.decode_config(path, cluster.store.get(path)[0]) == {"producer_byte_rate": "5"}


def test_a_failure_of_the_store_is_the_error_of_its_user(cluster, monkeypatch):
    def write_settings(path, settings, keep_empty=True):
        if "bob" in path:
            raise StoreUnavailable("disk full")
        real(path, settings, keep_empty)

    real = cluster.controller.write_settings
    monkeypatch.setattr(cluster.controller, "write_settings", write_settings)
    changed = alter(cluster, upsertions=[upsertion("alice"), upsertion("bob"), upsertion("carol")])
    assert changed == [("alice", None), ("carol", None), ("bob", ErrorCode.KAFKA_STORAGE_ERROR)]


def test_a_credential_that_cannot_be_read_is_no_credential_and_is_logged_without_it(cluster, caplog):
    cluster.controller.write_settings(scram.path_of("alice"), {"SCRAM-SHA-256": "salt=hidden"})
    with caplog.at_level(logging.ERROR):
        assert scram.find(cluster.store, SHA_256, "alice") is None
    assert "alice" in caplog.text and "hidden" not in caplog.text


def test_all_brokers_make_up_the_same_credential(cluster):
    first = scram.found_or_made_up(cluster.store, SHA_256, "nobody")
    assert first == scram.found_or_made_up(cluster.store, SHA_256, "nobody") and not first.known
    assert len(cluster.store.get(znodes.LOGIN_SECRET)[0]) == scram.SECRET_BYTES
    alter(cluster, upsertions=[upsertion("nobody")])
    assert scram.found_or_made_up(cluster.store, SHA_256, "nobody").known


def test_users_are_described_in_steps(cluster):
    data = znodes.encode_config({"SCRAM-SHA-256": "x"})
    cluster.store.fill((scram.path_of(f"user-{number}"), data, 0) for number in range(2 * scram.STEP + 1))
    assert described(cluster) == ({}, 3)
