"""The table of what each API needs is complete, and is what the guards decide."""

from types import SimpleNamespace

import pytest

from odradek.api.guards import table as guards
from odradek.api.permits import Permits
from odradek.api.table import APIS, BY_KEY, CLUSTER_APIS, PRIVATE_APIS
from odradek.protocol import encode
from odradek.protocol.registry import by_key
from odradek.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.required import REQUIRED, Required
from tests.security.access_requests import GONE, NAMES, REQUESTS
from tests.security.over_wire import CLUSTER_NAME
from tests.security.verdicts import verdict_of

IDS = {name: bytes(15) + bytes([number]) for number, name in enumerate((*NAMES, *GONE), 2)}
NAME_OF = {topic_id: name for name, topic_id in IDS.items()}


def test_every_served_api_has_a_row_and_is_protected() -> None:
    served = {row.key for row in (*APIS, *PRIVATE_APIS, *CLUSTER_APIS)}
    assert served <= set(REQUIRED)
    protected = set(guards.GUARDS) | guards.NATIVE | guards.INSIDE | guards.FREE
    assert served <= protected
    assert not set(guards.GUARDS) & (guards.NATIVE | guards.INSIDE | guards.FREE)
    assert {key for key in served if not REQUIRED[key].ways} == {17, 18, 36, 39, 40, 60}


def test_an_api_without_a_guard_is_not_served() -> None:
    with pytest.raises(guards.NoGuard, match="no guard"):
        guards.judge(999, SimpleNamespace(permits=SimpleNamespace(restricted=True)))
    assert guards.judge(999, SimpleNamespace(permits=SimpleNamespace(restricted=False))) is None


def acls_of(required: Required) -> list[Acl]:
    """ACLs for all needs of all ways."""
    return [
        Acl(
            need.resource_type,
            PatternType.LITERAL,
            CLUSTER_NAME if need.resource_type == ResourceType.CLUSTER else "*",
            "User:ANONYMOUS",
            "*",
            need.operation,
            Permission.ALLOW,
        )
        for way in required.ways
        for need in way
    ]


@pytest.mark.parametrize("name", [name for name, build in REQUESTS.items() if build(IDS)[1] in guards.GUARDS])
def test_exactly_the_rights_of_the_row_are_asked(name: str) -> None:
    """The guard asks for no operation that the row does not name; with all of them, nothing is refused."""
    request, key, version = REQUESTS[name](IDS)
    asked: set[tuple[int, int]] = set()
    granted = {(acl.operation, acl.resource_type) for acl in acls_of(REQUIRED[key])}
    if key == 24 and version >= 4:  # the form of brokers
        granted.add((Operation.CLUSTER_ACTION, ResourceType.CLUSTER))

    class Recorder(Permits):
        def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
            asked.add((operation, resource_type))
            return (operation, resource_type) in granted

        def any_topic(self, operation: int) -> bool:
            return self.allows(operation, ResourceType.TOPIC, "any")

    permits = Recorder(object(), key)
    verdict = verdict_of(key, guards.Asked(request, version, permits, NAME_OF.get, lambda _: True))
    assert type(verdict).__name__ != "Refused"
    extra = {
        # not needed for the request: what the response shows of it, and other ways by the version
        19: {(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)},
        20: {(Operation.DESCRIBE, ResourceType.TOPIC)},
        24: {(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)},
    }.get(key, set())
    assert asked <= granted | extra


class Nothing(Permits):
    """The rights of a client that may do nothing."""

    def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
        return False

    def any_topic(self, operation: int) -> bool:
        return False


@pytest.mark.parametrize("name", [name for name, build in REQUESTS.items() if build(IDS)[1] in guards.GUARDS])
def test_without_any_right_the_guard_lets_nothing_pass(name: str) -> None:
    request, key, version = REQUESTS[name](IDS)
    verdict = verdict_of(key, guards.Asked(request, version, Nothing(object(), key), NAME_OF.get, lambda _: True))
    assert verdict is not None, BY_KEY[key].name


@pytest.mark.parametrize("key", [key for key in REQUIRED if key in guards.GUARDS])
def test_each_guard_that_refuses_as_a_whole_makes_a_response_that_can_be_sent(key: int) -> None:
    api = by_key(key)
    request = api.request()
    row = BY_KEY.get(key)
    for version in range(row.min_version, row.max_version + 1) if row else (0,):
        if key in (20, 21) or (key == 9 and version < 8):
            continue  # need fields that have no default
        asked = guards.Asked(request, version, Nothing(object(), key), NAME_OF.get, lambda _: True)
        verdict = verdict_of(key, asked)
        if type(verdict).__name__ == "Refused":
            assert encode(verdict.response, version) is not None
