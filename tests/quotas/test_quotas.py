"""Which quota applies to a client: the first of eight levels that has the key, and who shares it."""

import itertools

import pytest

from odradek.quotas.quotas import DEFAULT, FETCH, LEVELS, PRODUCE, REQUEST, Quotas, entity_of, user_of

USER, CLIENT = "alice", "app"
# In Kafka's order: entity, and the names of the sensor in which the client counts.
ORDER = [
    ((USER, CLIENT), (USER, CLIENT)),
    ((USER, DEFAULT), (USER, CLIENT)),
    ((USER, None), (USER, None)),
    ((DEFAULT, CLIENT), (USER, CLIENT)),
    ((DEFAULT, DEFAULT), (USER, CLIENT)),
    ((DEFAULT, None), (USER, None)),
    ((None, CLIENT), (None, CLIENT)),
    ((None, DEFAULT), (None, CLIENT)),
]


def test_the_levels_are_all_that_an_entity_can_have():
    assert sorted(map(str, LEVELS)) == sorted(
        map(str, set(itertools.product((True, False, None), repeat=2)) - {(None, None)})
    )


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_first_level_applies(first):
    values = [
        ((*entity, None), {PRODUCE: 100.0 + number}) for number, (entity, _) in enumerate(ORDER) if number >= first
    ]
    limit = Quotas(reversed(values)).limit(PRODUCE, USER, CLIENT)
    assert (limit.rate, limit.user, limit.client_id) == (100.0 + first, *ORDER[first][1])


def test_a_level_without_the_key_does_not_count():
    quotas = Quotas([((USER, CLIENT, None), {FETCH: 1.0}), ((None, DEFAULT, None), {PRODUCE: 2.0})])
    assert quotas.limit(PRODUCE, USER, CLIENT).rate == 2.0
    assert quotas.limit(FETCH, USER, CLIENT).rate == 1.0
    assert quotas.limit(REQUEST, USER, CLIENT) is None


def test_quotas_of_others_do_not_apply():
    quotas = Quotas(
        [
            (("bob", CLIENT, None), {PRODUCE: 1.0}),
            ((USER, "other", None), {PRODUCE: 1.0}),
            ((None, "other", None), {PRODUCE: 1.0}),
        ]
    )
    assert quotas.limit(PRODUCE, USER, CLIENT) is None
    assert quotas.resolve(f"User:{USER}", CLIENT.encode()) == [None, None, None]


def test_what_workers_receive():
    quotas = Quotas([((USER, None, None), {PRODUCE: 5.0, REQUEST: 12.5}), ((None, DEFAULT, None), {FETCH: 7.0})])
    assert quotas.resolve("User:alice", b"app\xff") == [
        (5.0, b"alice", None),
        (7.0, None, b"app\xff"),
        (125_000.0, b"alice", None),
    ]
    assert quotas.resolve("User:ANONYMOUS", b"") == [None, (7.0, None, b""), None]
    assert (
        quotas.of_requests and not Quotas([((None, None, "10.0.0.1"), {"connection_creation_rate": 1.0})]).of_requests
    )


def test_the_rate_of_connections_is_that_of_the_address_or_the_default():
    quotas = Quotas(
        [
            ((None, None, "10.0.0.1"), {"connection_creation_rate": 5.0}),
            ((None, None, DEFAULT), {"connection_creation_rate": 9.0}),
        ]
    )
    assert (quotas.connection_rate("10.0.0.1"), quotas.connection_rate("10.0.0.2")) == (5.0, 9.0)
    assert Quotas().connection_rate("10.0.0.1") is None


def test_no_name_is_the_default():
    assert entity_of({"user": None, "client-id": "<default>"}) == (DEFAULT, "<default>", None)
    assert Quotas([((None, DEFAULT, None), {PRODUCE: 1.0})]).limit(PRODUCE, "u", "<default>").client_id == "<default>"
    assert user_of("User:CN=a,O=b") == "CN=a,O=b"
