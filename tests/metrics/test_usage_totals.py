"""Sums of usage, rates from two samples, and the document of /usage."""

import json

import pytest

from odradek.metrics.pages import NO_API, OTHER, RETIRED, UNKNOWN_API, UsageRow
from odradek.metrics.usage import BadQuery, document, entries_of
from odradek.metrics.usage_totals import VALUES, Filter, UsageKey, grouped, growth, top, totals

NAMES = {0: "Produce", 1: "Fetch", 3: "Metadata"}
ABOUT = {"odradek": "1", "at": 9000, "clock": 5, "boot": "ab", "began": 1, "spool": None}
STATE = [
    {"kind": "topic", "topic": "orders", "partitions": 2},
    {"kind": "topic", "topic": "other-orders", "partitions": 1},
    {"kind": "group", "group": "g", "topic": "orders", "lag": 4},
    {"kind": "group", "group": "h", "topic": "else", "lag": 5},
    {"kind": "reader", "principal": "User:a", "client": "c", "topic": "orders", "lag": 6},
]


def row(
    client, topic, api, *, page=1, principal="User:a", since=10, last=20, req=1, err=0, size=100, out=0, n=0, read=0
):
    return UsageRow(page, principal, client, topic, api, since, last, req, err, size, out, n, read, 0, 0)


ROWS = [
    row("c", "orders", 0, size=1000, n=10, req=4),
    row("c", None, 0, size=80, req=4, err=1),
    row("c", "orders", 0, page=2, since=5, last=90, size=500, n=5, req=2),
    row("c", None, 0, page=2, size=40, req=2),
    row("d", "orders", 1, out=700, size=0, read=7, req=3),
    row("d", None, 1, size=60, req=3),
    row("d", None, NO_API, size=0, req=0),
    row("e", "päge", 1, principal="User:b", size=0, out=5, read=1),
    row(RETIRED, None, NO_API, principal=OTHER, size=12, req=2),
]


def ask(rows=ROWS, **query):
    lists = {
        name: [str(one) for one in (value if isinstance(value, list) else [value])] for name, value in query.items()
    }
    return json.loads(json.dumps(document(lists, rows, NAMES, STATE, ABOUT)))


def values(**some):
    return [some.get(name, 0) for name in VALUES]


def test_entries_of_all_pages_add_up_and_keep_the_earliest_beginning():
    sums = totals(entries_of(ask()))
    found = sums[UsageKey("User:a", "c", "orders", "Produce")]
    assert found.values == [1500, 0, 15, 0, 6, 0, 0, 0]
    assert (found.since_ms, found.last_ms) == (5, 90)


@pytest.mark.parametrize("by", [(), ("client",), ("principal",), ("topic",), ("api",), ("client", "topic", "api")])
def test_groups_of_any_kind_add_up_to_the_total(by):
    groups = grouped(totals(entries_of(ask())), by)
    whole = grouped(totals(entries_of(ask())), ())[()]
    for name, field in (("in", "bytes_in"), ("out", "bytes_out"), ("rin", "records_in"), ("rout", "records_out")):
        true = sum(getattr(one, field) for one in ROWS)
        assert sum(one.get(name) for one in groups.values()) == whole.get(name) == true


def test_requests_are_those_without_topic_unless_grouped_by_topic():
    sums = totals(entries_of(ask()))
    assert grouped(sums, ())[()].get("requests") == 4 + 2 + 3 + 2
    assert grouped(sums, ("client",))[("c",)].get("requests") == 6
    assert grouped(sums, ("topic",))[("orders",)].get("requests") == 4 + 2 + 3
    assert grouped(sums, ("topic",))[(None,)].get("requests") == 4 + 2 + 3 + 2
    assert grouped(sums, ("client",))[("c",)].get("errors") == 1


def test_requests_of_one_topic_are_those_that_named_it_however_they_are_grouped():
    of_orders = {key: counts for key, counts in totals(entries_of(ask())).items() if key.topic == "orders"}
    assert grouped(of_orders, ("client",))[("c",)].get("requests") == 4 + 2
    assert grouped(of_orders, ())[()].get("requests") == 4 + 2 + 3


def test_the_largest_come_first_and_equal_ones_by_name():
    groups = grouped(
        totals(entries_of(ask([row(name, None, 3, size=5) for name in "bca"] + [row("z", None, 3, size=9)]))),
        ("client",),
    )
    assert [key[0] for key, _ in top(groups, "in")] == ["z", "a", "b", "c"]
    assert [key[0] for key, _ in top(groups, "in", 2)] == ["z", "a"]


def test_growth_is_between_entries_of_one_beginning():
    before = entries_of(ask([row("c", None, 3, size=100), row("d", None, 3, size=50), row("gone", None, 3, size=7)]))
    after = entries_of(
        ask(
            [
                row("c", None, 3, size=130),
                row("d", None, 3, size=20, since=11),  # retired, and back
                row("new", None, 3, size=3, since=15),
                row(RETIRED, None, NO_API, principal=OTHER, size=57),
            ]
        )
    )
    grown = {key.client: counts.get("in") for key, counts in growth(before, after).items()}
    assert grown == {"c": 30, "d": 20, "new": 3}
    assert growth(after, after) == {}


def test_the_same_client_on_two_pages_is_two_entries_of_growth():
    before = entries_of(ask([row("c", None, 3, size=100), row("c", None, 3, page=2, size=10)]))
    after = entries_of(ask([row("c", None, 3, size=101), row("c", None, 3, page=2, size=40)]))
    (counts,) = growth(before, after).values()
    assert counts.get("in") == 31


def test_the_document_contains_the_matching_entries():
    assert {one["client"] for one in entries_of(ask(client=["c", "x*"]))} == {"c"}
    assert {one["client"] for one in entries_of(ask(topic="p?ge"))} == {"e"}
    assert {one["api"] for one in entries_of(ask(api="Fetch", client="d"))} == {"Fetch"}
    assert {one["principal"] for one in entries_of(ask(principal="User:b"))} == {"User:b"}
    assert [one["last"] for one in entries_of(ask(used=90))] == [90]
    assert all(one["topic"] is None for one in entries_of(ask(topic="")))


def test_the_document_contains_sums_if_requested():
    answer = ask(by="client,topic", sort="out", top=2)
    assert [(one["client"], one["topic"], one["out"]) for one in answer["sums"]] == [
        ("d", "orders", 700),
        ("e", "päge", 5),
    ]
    assert "entries" not in answer and answer["boot"] == "ab"


def test_a_topic_is_returned_with_its_groups_and_readers():
    answer = ask(name="orders")
    assert answer["topic"]["partitions"] == 2
    assert [one["group"] for one in answer["groups"]] == ["g"] and [one["lag"] for one in answer["readers"]] == [6]
    missing = ask(name="order")
    assert missing["topic"] is None and missing["close"] == ["orders"]


def test_an_unknown_api_and_no_api_have_names():
    found = [
        one["api"]
        for one in entries_of(ask([row("c", None, 999), row("c", None, UNKNOWN_API), row("c", None, NO_API)]))
    ]
    assert found == ["unknown", "unknown", ""]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"clients": "x"}, ["'clients'", "principal, client, topic, api"]),
        ({"by": "client,host"}, ["by=host", "principal"]),
        ({"sort": "bytes"}, ["sort=bytes", "in, out"]),
        ({"top": "-1"}, ["top=-1", "whole number"]),
        ({"used": "yesterday"}, ["used=yesterday", "whole number"]),
        ({"client": ["x"] * 60, "topic": ["y"] * 41}, ["101 values", "at most 100"]),
        ({"by": "client," * 5 + "client"}, ["6 names", "at most once"]),
        ({"name": "t" * 250}, ["250 characters", "at most 249"]),
    ],
)
def test_an_invalid_query_is_refused_with_the_expected_values(query, words):
    with pytest.raises(BadQuery) as refused:
        ask(**query)
    for word in words:
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_work_for_a_client_that_has_gone_ends_early():
    looked = []

    def look_for_client():
        looked.append(1)
        if len(looked) == 3:
            raise ConnectionResetError

    rows = iter(range(10_000))
    with pytest.raises(ConnectionResetError):
        document({}, (row("c", None, 1) for _ in rows), NAMES, STATE, ABOUT, look_for_client)
    assert next(rows) < 1_000


def test_patterns_are_of_whole_names():
    wanted = Filter(client=("a?", "b"))
    fits = [
        name
        for name in ("a", "ab", "abc", "b", "bb")
        if wanted.fits({"principal": "", "client": name, "topic": None, "api": ""})
    ]
    assert fits == ["ab", "b"]
