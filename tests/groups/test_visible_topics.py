"""Members that subscribe by a pattern get only topics that they may see."""

from odradek.groups.visible_topics import NOTHING, Visible
from tests.groups.test_consumer_group import Room


def seeing(*names: str) -> Visible:
    return Visible(frozenset(names), version=1)


def topics_of(room: Room, answer) -> set[str]:
    return {room.topics.name_of(topic) for topic, _ in answer.assignment}


def test_a_member_gets_only_what_it_may_see():
    room = Room()
    joined = room.beat("a", 0, topics=(), pattern="o.*", visible=seeing("orders"))
    assert topics_of(room, joined) == {"orders"}
    more = room.beat("a", joined.member_epoch, visible=seeing("orders", "other"))
    assert topics_of(room, more) == {"orders", "other"}
    less = room.beat("a", more.member_epoch, owned=frozenset(), visible=seeing("other"))
    assert topics_of(room, less) == {"other"}
    everything = room.beat("a", room.group.epoch, visible=None)
    assert topics_of(room, everything) == {"orders", "orders-old", "other"}


def test_topics_that_it_names_and_what_does_not_match_are_not_affected():
    room = Room()
    joined = room.beat("a", 0, topics=("orders-old",), pattern="orders", visible=seeing("orders", "other"))
    assert topics_of(room, joined) == {"orders-old", "orders"}


def test_a_new_topic_is_hidden_until_somebody_decided():
    room = Room()
    before = seeing("orders")
    epoch = room.beat("a", 0, topics=(), pattern="orders.*", visible=before).member_epoch
    room.topics.counts["orders-new"] = 2
    assert room.beat("a", epoch, visible=before).member_epoch == epoch
    assert topics_of(room, room.beat("a", epoch, visible=seeing("orders", "orders-new"))) == {"orders", "orders-new"}


def test_what_another_heartbeat_decided_is_in_the_same_epoch():
    room = Room()
    before, after = seeing("orders"), seeing("orders", "orders-old")
    room.beat("a", 0, topics=(), pattern="orders.*", visible=before)
    room.beat("b", 0, topics=(), pattern="orders.*", visible=before)
    epoch = room.group.epoch
    room.group.see({"b": (before, after), "gone": (before, after)})
    room.beat("a", room.group.members["a"].epoch, visible=after)
    assert room.group.epoch == epoch + 1
    room.beat("b", room.group.members["b"].epoch, owned=frozenset(), visible=after)
    assert room.group.epoch == epoch + 1 and room.group.members["b"].visible == after
    room.group.see({"b": (before, seeing())})  # decided before the member's own heartbeat
    assert room.group.members["b"].visible == after


def test_a_restart_begins_no_rebalance_and_shows_nothing_more():
    room = Room()
    sight = seeing("orders")
    room.beat("a", 0, topics=(), pattern="o.*", visible=sight)
    epoch = room.beat("b", 0, topics=(), pattern="o.*", visible=sight).member_epoch
    epoch = room.beat(
        "a", room.beat("a", epoch, owned=frozenset(), visible=sight).member_epoch, visible=sight
    ).member_epoch
    for first, second in (("a", "b"), ("b", "a")):
        room.restart()
        for member_id in (first, second):
            answer = room.beat(member_id, room.group.members[member_id].epoch, visible=sight)
            assert room.group.epoch == epoch and topics_of(room, answer) == {"orders"}


def test_after_a_restart_a_member_without_a_pattern_shows_others_nothing_more():
    room = Room()
    sight = seeing("orders")
    room.beat("a", 0, topics=("other",), visible=NOTHING)
    epoch = room.beat("b", 0, topics=(), pattern="orders.*", visible=sight).member_epoch
    room.restart()
    room.beat("a", room.group.members["a"].epoch, visible=NOTHING)
    assert room.group.epoch == epoch
    assert topics_of(room, room.beat("b", epoch, visible=sight)) == {"orders"}


def test_without_an_authorizer_a_restart_is_as_before():
    room = Room()
    epoch = room.beat("a", 0, topics=(), pattern="o.*").member_epoch
    room.restart()
    assert topics_of(room, room.beat("a", epoch)) == {"orders", "orders-old", "other"}
    assert room.group.epoch == epoch
