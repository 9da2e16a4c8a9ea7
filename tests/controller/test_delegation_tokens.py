"""Delegation tokens in the metadata store: nodes, rules, limits, changes of two brokers at once, and ends in the middle."""

import json

import pytest

from odradek.controller.delegation_tokens import (
    MOST_BYTES,
    MOST_RENEWERS,
    SWEPT_AT_ONCE,
    DelegationTokens,
    TokenSettings,
)
from odradek.controller.topics import Refusal
from odradek.metadata import token_nodes
from odradek.metadata.store import StoreUnavailable
from odradek.protocol.errors import ErrorCode
from odradek.security.delegation_token import Token, hmac_of, is_id, new_id
from odradek.stepwise import Stepwise

ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
KEY = b"key"
NOW_MS = 1_700_000_000_000


class Clock:
    """The wall clock."""

    def __init__(self):
        self.now = NOW_MS

    def __call__(self):
        return self.now


class Fixture:
    """The tokens of brokers that share a store."""

    def __init__(self, store):
        self.store = store
        self.clock = Clock()
        self.announced = 0

    def tokens(self, *, notifies=False, most=100, most_of_principal=50):
        tokens = DelegationTokens(
            self.store, TokenSettings(KEY, 1000, 100, 10, most, most_of_principal), notifies, self.clock
        )
        tokens.load()
        tokens.announce = self.announce
        return tokens

    def announce(self):
        self.announced += 1


@pytest.fixture
def shared(cluster):
    return Fixture(cluster.store)


def all_of(tokens, principal=ALICE, owners=None, permitted=lambda token: True):
    job = Stepwise(tokens.described(principal, owners, permitted))
    while job.step():
        pass
    return job.result


def refused(code, call, *arguments):
    with pytest.raises(Refusal) as caught:
        call(*arguments)
    assert caught.value.code == code


def test_the_node_is_that_of_kafka_3_9(shared):
    token = shared.tokens(notifies=True).create("User:a b,c", ALICE, [BOB], -1)
    data = json.loads(shared.store.get(f"/delegation_token/tokens/{token.token_id}")[0])
    assert data == {
        "version": 3,
        "owner": "User%3Aa%20b%2Cc",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Abob"],
        "issueTimestamp": NOW_MS,
        "maxTimestamp": NOW_MS + 1000,
        "expiryTimestamp": NOW_MS + 100,
        "tokenId": token.token_id,
    }
    (change,) = shared.store.children("/delegation_token/token_changes")
    assert change.startswith("token_change_00000")
    assert shared.store.get(f"/delegation_token/token_changes/{change}")[0] == token.token_id.encode()
    assert len(token.token_id) == 22 and shared.tokens().hmac(token) == hmac_of(KEY, token.token_id)


def test_a_successor_has_the_tokens_and_their_counts(shared):
    first = shared.tokens(most_of_principal=2)
    made = [first.create(ALICE, ALICE, [], -1) for _ in range(2)]
    second = shared.tokens(most_of_principal=2)
    assert all_of(second) == sorted(made, key=lambda token: token.token_id)
    refused(ErrorCode.POLICY_VIOLATION, second.create, ALICE, ALICE, [], -1)
    assert second.renew(ALICE, first.hmac(made[0]), -1) == NOW_MS + 100


@pytest.mark.parametrize("text", ["version", "owner", "name", "json", "time"])
def test_a_token_that_cannot_be_decoded_is_left_out(shared, caplog, text):
    token = shared.tokens().create(ALICE, ALICE, [], -1)
    path = token_nodes.path_of(token.token_id)
    node = json.loads(shared.store.get(path)[0])
    node |= {
        "version": {"version": 4},
        "owner": {"owner": "x"},
        "name": {"tokenId": "y"},
        "time": {"maxTimestamp": []},
    }.get(text, {})
    shared.store.set(path, b"x" if text == "json" else json.dumps(node).encode())
    tokens = shared.tokens()
    assert all_of(tokens) == [] and tokens.usable(token.token_id) is None
    assert "nobody can log in with it" in caplog.text


def test_nodes_of_older_versions_are_read(shared):
    tokens = shared.tokens()
    token = tokens.create(ALICE, ALICE, [BOB], -1)
    path = token_nodes.path_of(token.token_id)
    node = json.loads(shared.store.get(path)[0]) | {"version": 1}
    del node["tokenRequester"]
    shared.store.set(path, json.dumps(node).encode())
    assert all_of(shared.tokens()) == [token]


@pytest.mark.parametrize("token_id", ["", "..", ".", "a/b", "x" * 65, "a\0b", "ä", "a b"])
def test_a_text_that_is_no_id_is_no_token(shared, token_id):
    assert not is_id(token_id) and shared.tokens().usable(token_id) is None


def test_ids_are_names_and_no_options():
    assert all(is_id(one) and not one.startswith("-") for one in (new_id() for _ in range(500)))


def test_a_token_can_be_used_until_it_expires(shared):
    tokens = shared.tokens()
    token = tokens.create(ALICE, ALICE, [], 70)
    assert (token.max_ms, token.expires_ms) == (NOW_MS + 70, NOW_MS + 70)
    shared.clock.now += 70
    assert tokens.usable(token.token_id) == token
    shared.clock.now += 1
    assert tokens.usable(token.token_id) is None
    refused(ErrorCode.DELEGATION_TOKEN_EXPIRED, tokens.renew, ALICE, tokens.hmac(token), -1)
    assert all_of(tokens) == [token]  # as in Kafka, until it is removed


def test_only_a_change_that_ends_a_token_earlier_is_announced(shared):
    tokens = shared.tokens()
    token = tokens.create(ALICE, ALICE, [BOB], -1)
    digest = tokens.hmac(token)
    shared.clock.now += 10
    assert tokens.renew(BOB, digest, -1) == NOW_MS + 110 and shared.announced == 0
    assert tokens.renew(BOB, digest, 5) == NOW_MS + 15 and shared.announced == 1
    assert tokens.expire(BOB, digest, 50) == NOW_MS + 60 and shared.announced == 1
    assert tokens.expire(BOB, digest, 20) == NOW_MS + 30 and shared.announced == 2
    refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, tokens.expire, CAROL, digest, -1)
    assert tokens.expire(BOB, digest, -1) == NOW_MS + 10 and shared.announced == 3
    refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, tokens.expire, BOB, digest, -1)
    assert shared.store.children(token_nodes.TOKENS) == [] and len(tokens) == 0


def test_a_change_is_announced_even_if_its_outcome_is_unknown(shared, monkeypatch):
    tokens = shared.tokens()
    token = tokens.create(ALICE, ALICE, [], -1)

    def fails():
        raise StoreUnavailable("away")

    monkeypatch.setattr(shared.store, "transaction", fails)
    with pytest.raises(StoreUnavailable):
        tokens.expire(ALICE, tokens.hmac(token), -1)
    assert shared.announced == 1


def test_a_renewal_does_not_bring_back_what_another_broker_has_removed(shared):
    here, there = shared.tokens(), shared.tokens()
    token = here.create(ALICE, ALICE, [], -1)
    there.reload([token.token_id])
    there.expire(ALICE, there.hmac(token), -1)
    refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, here.renew, ALICE, here.hmac(token), -1)
    assert here.usable(token.token_id) is None and all_of(here) == []


def test_two_brokers_that_change_a_token_at_once_lose_nothing(shared, monkeypatch):
    here, there = shared.tokens(), shared.tokens()
    token = here.create(ALICE, ALICE, [], -1)
    there.reload([token.token_id])
    read = here._read

    def read_and_be_overtaken(token_id):
        found = read(token_id)
        monkeypatch.setattr(here, "_read", read)
        there.expire(ALICE, there.hmac(token), -1)
        return found

    monkeypatch.setattr(here, "_read", read_and_be_overtaken)
    refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, here.renew, ALICE, here.hmac(token), -1)
    assert shared.store.children(token_nodes.TOKENS) == []


def test_changes_of_other_brokers_are_read(shared):
    here, there = shared.tokens(), shared.tokens()
    token = here.create(ALICE, ALICE, [], -1)
    refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, there.renew, ALICE, there.hmac(token), -1)
    there.reload([token.token_id, "..", "gone"])
    assert there.renew(ALICE, there.hmac(token), -1) == NOW_MS + 100
    here.expire(ALICE, here.hmac(token), -1)
    there.reload([token.token_id])
    assert all_of(there) == []


def test_expired_tokens_are_swept_some_at_a_time(shared):
    tokens = shared.tokens(most=1000, most_of_principal=1000)
    for number in range(SWEPT_AT_ONCE + 5):
        tokens.create(ALICE, ALICE, [], 10 if number else -1)
    shared.clock.now += 20
    assert tokens.sweep() and not tokens.sweep()
    assert len(tokens) == 1 and len(shared.store.children(token_nodes.TOKENS)) == 1 and shared.announced == 0


def test_a_token_that_another_broker_renewed_is_not_swept(shared):
    here, there = shared.tokens(), shared.tokens()
    token = here.create(ALICE, ALICE, [], -1)
    there.reload([token.token_id])
    shared.clock.now += 90
    there.renew(ALICE, there.hmac(token), -1)
    shared.clock.now += 90
    assert not here.sweep() and here.usable(token.token_id) is not None


def test_a_renewer_without_a_name_does_not_make_a_token_that_cannot_be_read(shared):
    tokens = shared.tokens()
    token = tokens.create(ALICE, ALICE, ["User:"], -1)
    assert tokens.usable(token.token_id) == token and shared.tokens().usable(token.token_id) == token
    assert tokens.expire(ALICE, tokens.hmac(token), -1) == NOW_MS and len(tokens) == 0


def test_a_token_that_cannot_be_decoded_does_not_keep_others_from_being_swept(shared, caplog):
    tokens = shared.tokens(most=2)
    bad = tokens.create(ALICE, ALICE, [], -1)
    tokens.create(BOB, BOB, [], -1)
    shared.store.set(token_nodes.path_of(bad.token_id), b"x")
    shared.clock.now += 101
    tokens.create(CAROL, CAROL, [], -1)  # sweeps, because there are two
    assert len(tokens) == 1 and "nobody can log in with it" in caplog.text


def test_tokens_are_limited_in_all_and_for_each_principal(shared, caplog):
    tokens = shared.tokens(most=3, most_of_principal=2)
    tokens.create(ALICE, ALICE, [], -1)
    tokens.create(BOB, ALICE, [], -1)
    refused(ErrorCode.POLICY_VIOLATION, tokens.create, CAROL, ALICE, [], -1)  # alice has requested two
    refused(ErrorCode.POLICY_VIOLATION, tokens.create, ALICE, CAROL, [], -1)
    tokens.create(CAROL, CAROL, [], -1)
    refused(ErrorCode.POLICY_VIOLATION, tokens.create, "User:d\nx", "User:d\nx", [], -1)
    assert caplog.text.count("refused to create") == 1
    shared.clock.now += 101  # expired tokens do not count
    tokens.create(CAROL, ALICE, [], -1)
    assert len(tokens) == 1


def test_renewers_and_the_size_of_a_token_are_limited(shared):
    tokens = shared.tokens()
    tokens.create(ALICE, ALICE, [f"User:{number}" for number in range(MOST_RENEWERS)], -1)
    for renewers in ([BOB] * (MOST_RENEWERS + 1), ["User:" + "x" * MOST_BYTES]):
        refused(ErrorCode.INVALID_REQUEST, tokens.create, ALICE, ALICE, renewers, -1)
    assert len(tokens) == 1


def test_times_do_not_overflow(shared):
    tokens = DelegationTokens(shared.store, TokenSettings(KEY, 2**63 - 1, 2**63 - 1, 10, 10, 10), False, shared.clock)
    tokens.load()
    token = tokens.create(ALICE, ALICE, [], 2**63 - 1)
    assert (token.max_ms, token.expires_ms) == (2**63 - 1, 2**63 - 1)
    assert tokens.renew(ALICE, tokens.hmac(token), 2**63 - 1) == 2**63 - 1


def test_the_settings_show_no_key():
    assert "key" not in repr(TokenSettings(KEY, 1, 1, 1, 1, 1))
    assert Token("id", ALICE, ALICE, (), 1, 2, 3).principals == (ALICE, ALICE)
