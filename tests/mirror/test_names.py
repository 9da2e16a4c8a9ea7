"""Names of copies, what is never mirrored, and cycles."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.mirror.names import Edge, Patterns, ReplicationPolicy, cycle, illegal_name

DEFAULT, IDENTITY = ReplicationPolicy(), ReplicationPolicy(identity=True)
ANY = Patterns((".*",))
ALIASES = st.sampled_from(["a", "b", "c", "eu-1"])
NAMES = st.from_regex(r"[a-z0-9_-]{1,12}", fullmatch=True)


@given(st.lists(ALIASES, max_size=4), NAMES, st.sampled_from([".", "_-_"]))
def test_a_name_shows_the_clusters_through_which_the_topic_came(way, name, separator):
    policy = ReplicationPolicy(separator=separator)
    topic = name
    for alias in way:
        topic = policy.remote(alias, topic)
    assert policy.original(topic) == name or separator in name
    for alias in way:
        assert policy.came_from(topic, alias)
    if way:
        assert policy.source_of(topic) == way[-1]
        assert policy.upstream(topic) == topic[len(way[-1]) + len(separator) :]


def test_identity_keeps_every_name_but_that_of_heartbeats():
    assert IDENTITY.remote("a", "orders") == "orders"
    assert IDENTITY.remote("a", "heartbeats") == "a.heartbeats"
    assert IDENTITY.remote("b", "a.heartbeats") == "b.a.heartbeats"
    assert IDENTITY.is_heartbeats("b.a.heartbeats") and not IDENTITY.is_heartbeats("orders")
    assert not IDENTITY.came_from("a.orders", "a")
    assert IDENTITY.came_from("a.heartbeats", "a")


@pytest.mark.parametrize(
    "topic",
    [
        "__consumer_offsets",
        "mm2-offset-syncs.b.internal",
        "a.checkpoints.internal",
        "mm2-configs.b.internal",
        ".hidden",
        "x-internal",
    ],
)
def test_internal_topics_are_recognised(topic):
    assert DEFAULT.is_internal(topic)
    assert IDENTITY.is_internal(topic)


def test_ordinary_topics_are_not_internal():
    assert not any(
        DEFAULT.is_internal(topic) for topic in ("orders", "a.orders", "heartbeats", "internal", "a.internals")
    )


def test_internal_topics_with_another_separator_are_recognised():
    policy = ReplicationPolicy(separator="_", internal_separator="_")
    assert policy.is_internal("mm2-offset-syncs_b_internal")
    assert policy.is_internal("a_checkpoints_internal")


def test_patterns_match_whole_names_and_the_exclusion_wins():
    patterns = Patterns(("orders", "pay.*"), ("pay-test.*",))
    assert patterns.selects("orders") and patterns.selects("pay-1")
    assert not patterns.selects("orders2") and not patterns.selects("pay-test-1") and not patterns.selects("xorders")
    assert Patterns(("a|b",)).selects("b") and not Patterns(("a|b", "c")).selects("bc")
    assert not Patterns(()).selects("orders")
    assert Patterns(("orders.eu", "pay.*", "x-1")).literal == ("orders.eu", "x-1")
    with pytest.raises(re.error):
        Patterns(("ok", "("))


def edges(*pairs, policy=IDENTITY, topics=ANY):
    return [Edge(source, target, policy, topics) for source, target in pairs]


def test_a_pair_of_flows_that_keep_names_is_a_cycle():
    both = edges(("a", "b"), ("b", "a"))
    assert cycle("orders", both[0], both) == ["a", "b", "a"]
    assert cycle("orders", both[0], both[:1]) is None


def test_a_ring_is_found_and_the_shortest_way_is_named():
    ring = edges(("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("c", "a"))
    assert cycle("orders", ring[0], ring) == ["a", "b", "c", "a"]


def test_a_tree_and_a_ring_elsewhere_are_no_cycles_of_the_flow():
    flows = edges(("a", "b"), ("b", "c"), ("c", "b"), ("x", "a"))
    assert cycle("orders", flows[0], flows) is None


def test_flows_of_different_topics_and_flows_that_rename_are_no_cycle():
    there = Edge("a", "b", IDENTITY, Patterns(("orders",)))
    back = Edge("b", "a", IDENTITY, Patterns(("invoices",)))
    assert cycle("orders", there, [there, back]) is None
    renamed = Edge("b", "a", DEFAULT, ANY)
    assert cycle("orders", there, [there, renamed]) is None
    assert cycle("orders", renamed, [there, renamed]) is None


def test_names_that_a_topic_cannot_have_are_explained():
    assert illegal_name("orders") is None
    assert "250 characters" in illegal_name("x" * 250)
    assert "characters other than" in illegal_name("a->b")
