"""Limits of transactional ids: how many clients may create, in all and from one address, and how long they may be."""

from odradek.protocol.errors import ErrorCode
from odradek.quotas.new_names import NameLimits
from tests.transactions.by_hand import Process, Reply

LIMITS = NameLimits("transactional ids", "odradek.transactional.ids.max", 5, 3, 300, few=0)


def init(room, name, owner="1"):
    reply = Reply()
    room.coordinator.init_producer_id(name, 60_000, -1, -1, False, False, reply, "a client", owner)
    return reply.answer[0]


def test_an_id_that_is_too_long_is_not_created():
    room = Process(names=LIMITS)
    assert init(room, "t" * 301) is ErrorCode.INVALID_REQUEST
    assert init(room, "t" * 300) is ErrorCode.NONE
    assert sum(room.coordinator.ids_by_state().values()) == 1


def test_an_address_creates_no_more_ids_than_its_share():
    room = Process(names=LIMITS)
    assert [init(room, f"a{number}") for number in range(5)] == [ErrorCode.NONE] * 3 + [ErrorCode.POLICY_VIOLATION] * 2
    assert init(room, "a0") is ErrorCode.NONE, "an id that exists gets a new epoch"
    assert [init(room, f"b{number}", "2") for number in range(3)] == [ErrorCode.NONE] * 2 + [ErrorCode.POLICY_VIOLATION]


def test_what_was_accepted_is_loaded_and_served_with_smaller_limits():
    room = Process(names=LIMITS)
    names = [f"{number}" + "t" * 200 for number in range(3)]
    assert [init(room, name) for name in names] == [ErrorCode.NONE] * 3
    room.coordinator.shards.names = type(room.coordinator.shards.names)(
        NameLimits("transactional ids", "k", 1, 1, 10, few=0), lambda: 3, lambda name: True, room.timers.wall_ms
    )
    room.load()
    assert [init(room, name) for name in names] == [ErrorCode.NONE] * 3
    assert init(room, "new") is ErrorCode.POLICY_VIOLATION
