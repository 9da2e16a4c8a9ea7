"""How many names clients may create, in all and from one address, and how long they may be."""

import pytest

from odradek.config.broker_config import BrokerConfig
from odradek.quotas.new_names import GROUPS, TRANSACTIONAL_IDS, NameLimits, NewNames, configured

LIMITS = NameLimits("groups", "odradek.groups.max", most=10, most_of_client=4, length=20, few=2)


class Names:
    """The existing names, and the limits; `new` is what a coordinator does for a request that needs a name."""

    def __init__(self, loaded=()):
        self.existing = set(loaded)
        self.now_ms = 1_000_000
        self.limits = NewNames(LIMITS, lambda: len(self.existing), self.existing.__contains__, lambda: self.now_ms)

    def new(self, name, owner):
        if self.limits.too_long(name, "a client") or self.limits.full(name, owner, "a client"):
            return False
        self.existing.add(name)
        self.limits.created(name, owner)
        return True


def test_an_address_can_create_only_its_share_and_others_still_can():
    names = Names()
    assert [names.new(f"a{number}", "1") for number in range(6)] == [True] * 4 + [False] * 2
    assert names.new("b", "2")


def test_names_that_do_not_exist_any_more_do_not_count():
    names = Names()
    assert [names.new(f"a{number}", "1") for number in range(5)] == [True] * 4 + [False]
    names.existing -= {"a0", "a1"}
    names.now_ms += 10_000  # they are counted again once in ten seconds only
    assert [names.new(f"b{number}", "1") for number in range(3)] == [True, True, False]


def test_a_name_that_is_created_again_by_another_client_counts_for_that_one():
    names = Names()
    for number in range(4):
        assert names.new(f"a{number}", "1")
    names.existing.remove("a0")
    assert names.new("a0", "2")
    assert names.new("a4", "1") and not names.new("a5", "1")


def test_above_the_limit_of_all_names_only_owners_with_few_create_more_up_to_twice_the_limit():
    names = Names(loaded=[f"loaded{number}" for number in range(7)])
    assert [names.new(f"a{number}", "a") for number in range(5)] == [True] * 3 + [False] * 2
    for owner in "bcdef":
        assert [names.new(f"{owner}{number}", owner) for number in range(3)] == [True, True, False]
    assert len(names.existing) == 20
    assert not names.new("g0", "g"), "twice the limit holds for all"


def test_an_owner_whose_names_have_expired_has_few_again():
    names = Names(loaded=[f"loaded{number}" for number in range(10)])
    assert [names.new(f"a{number}", "a") for number in range(3)] == [True, True, False]
    names.existing -= {"a0", "a1"}
    names.now_ms += 10_000
    assert names.new("a2", "a")


def test_few_clients_that_use_the_limits_up_lock_out_nobody():
    """With the default limits: ten clients create 10,000 names each."""
    existing = set()
    names = NewNames(GROUPS, lambda: len(existing), existing.__contains__, lambda: 1_000_000)

    def new(name, owner):
        if names.full(name, owner, owner):
            return False
        existing.add(name)
        names.created(name, owner)
        return True

    for owner in range(10):
        assert sum(new(f"{owner}-{number}", f"10.0.0.{owner}") for number in range(10_010)) == 10_000
    assert sum(new(f"late-{number}", "User:late") for number in range(200)) == 100


@pytest.mark.parametrize("kind", [GROUPS, TRANSACTIONAL_IDS], ids=lambda kind: kind.kind)
def test_the_limits_can_be_raised_at_run_time(kind):
    config = BrokerConfig({})
    limits = configured(kind, config)
    assert limits() == kind, "the defaults of the keys are those of the class"
    assert not config.run_with(dict.fromkeys((kind.key, f"{kind.key}.per.client"), "7"), {})
    assert (limits().most, limits().most_of_client) == (7, 7)


def test_a_long_name_is_refused():
    assert Names().new("n" * 20, "1")
    assert not Names().new("n" * 21, "1")


def test_refusals_are_one_line_a_minute_that_names_the_key(caplog):
    names = Names()
    for _ in range(100):
        assert not names.new("x" * 5_000, "1")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "has 5000 characters, and odradek.id.max.length allows 20" in line and len(line) < 400
    names.now_ms += 60_000
    for number in range(5):
        names.new(f"a{number}", "1")
    assert (
        "1 has created 4 existing groups, and odradek.groups.max.per.client allows 4" in caplog.records[-1].getMessage()
    )
    assert "refused 99 others" in caplog.records[-1].getMessage()


@pytest.mark.parametrize(("name", "shown"), [("\x1b[2K", "'\\x1b[2K'"), ("line\nbreak", "'line\\nbreak'")])
def test_control_characters_of_a_name_are_escaped_in_the_line(name, shown, caplog):
    names = Names(loaded=map(str, range(20)))
    assert not names.new(name, "1")
    assert shown in caplog.text and name not in caplog.text
