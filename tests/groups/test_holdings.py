"""The holders of a consumer group's partitions."""

from odradek.groups.holdings import Holdings

FIRST, SECOND = (b"t", 0), (b"t", 1)


def test_a_registration_replaces_the_partitions_of_the_member():
    holdings = Holdings()
    holdings.register("a", frozenset({FIRST, SECOND}))
    holdings.register("a", frozenset({SECOND}))
    assert (holdings.holder_of(FIRST), holdings.holder_of(SECOND)) == (None, "a")
    assert holdings.any_free_for("b", [FIRST, SECOND])
    assert not holdings.any_free_for("b", [SECOND])
    assert holdings.any_free_for("a", [SECOND])


def test_a_release_leaves_partitions_that_another_member_has_registered_since():
    holdings = Holdings()
    holdings.register("a", frozenset({FIRST, SECOND}))
    holdings.register("b", frozenset({FIRST}))
    holdings.release("a")
    assert (holdings.holder_of(FIRST), holdings.holder_of(SECOND)) == ("b", None)
