"""Who is named when not all can be."""

from odradek.metrics.named_series import NamedSeries


def test_the_largest_are_named():
    seats = NamedSeries(2)
    assert seats.update({"a": 1, "b": 3, "c": 2}) == ({"b", "c"}, set())
    assert seats.names == {"b", "c"}


def test_a_name_keeps_its_series_while_others_grow_larger():
    seats = NamedSeries(1)
    seats.update({"a": 1})
    assert seats.update({"a": 1, "b": 100}) == (set(), set())
    assert seats.names == {"a"}


def test_a_free_series_goes_to_the_largest_entity_without_one():
    seats = NamedSeries(2, {"a", "b"})
    assert seats.update({"b": 1, "c": 5, "d": 9}) == ({"d"}, {"a"})


def test_idle_entities_lose_their_series_only_to_active_ones():
    seats = NamedSeries(2, {"a", "b"})
    assert seats.update({"a": 7, "b": 9}, idle={"a", "b"}) == (set(), set())
    assert seats.update({"a": 7, "b": 9, "c": 1}, idle={"a", "b", "c"}) == (set(), set())
    assert seats.update({"a": 7, "b": 9, "c": 1}, idle={"a", "b"}) == ({"c"}, {"a"})


def test_nobody_is_named_where_nobody_may_be():
    assert NamedSeries(0).update({"a": 1}) == (set(), set())


def test_the_idle_are_named_too_while_there_is_room():
    assert NamedSeries(2).update({"a": 1, "b": 2, "c": 3}, idle={"a", "b"})[0] == {"c", "b"}
