"""What each API declares that it needs is what its guard decides."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.api import guarding, reference, served
from odradek.api.api import Guarded
from odradek.api.permits import Permits
from odradek.api.table import BY_KEY
from odradek.protocol import encode
from odradek.protocol.registry import by_key
from odradek.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.needs import Ways
from tests.security.access_requests import GONE, NAMES, REQUESTS
from tests.security.over_wire import CLUSTER_NAME
from tests.security.verdicts import GUARDED, verdict_of

IDS = {name: bytes(15) + bytes([number]) for number, name in enumerate((*NAMES, *GONE), 2)}
NAME_OF = {topic_id: name for name, topic_id in IDS.items()}


def test_the_served_apis_are_those_that_are_declared() -> None:
    assert Path(served.__file__).read_text() == reference.served(), "run `make tables`"


def test_every_client_may_use_only_these() -> None:
    assert {row.key for row in BY_KEY.values() if not row.ways} == {17, 18, 36, 39, 40, 60}
    assert {row.key for row in BY_KEY.values() if row.guarded is Guarded.FREE} == {17, 18, 36}


def test_an_api_without_a_guard_is_not_served() -> None:
    with pytest.raises(guarding.NoGuard, match="no guard"):
        guarding.judge(999, SimpleNamespace(permits=SimpleNamespace(restricted=True)))
    assert guarding.judge(999, SimpleNamespace(permits=SimpleNamespace(restricted=False))) is None


def acls_of(ways: Ways) -> list[Acl]:
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
        for way in ways
        for need in way
    ]


@pytest.mark.parametrize("name", [name for name, build in REQUESTS.items() if build(IDS)[1] in GUARDED])
def test_exactly_the_rights_of_the_row_are_asked(name: str) -> None:
    """The guard asks for no operation that the row does not name; with all of them, nothing is refused."""
    request, key, version = REQUESTS[name](IDS)
    asked: set[tuple[int, int]] = set()
    granted = {(acl.operation, acl.resource_type) for acl in acls_of(BY_KEY[key].ways)}
    if key == 24 and version >= 4:  # the form of brokers
        granted.add((Operation.CLUSTER_ACTION, ResourceType.CLUSTER))

    class Recorder(Permits):
        def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
            asked.add((operation, resource_type))
            return (operation, resource_type) in granted

        def any_topic(self, operation: int) -> bool:
            return self.allows(operation, ResourceType.TOPIC, "any")

    permits = Recorder(object(), key)
    verdict = verdict_of(key, guarding.Asked(request, version, permits, NAME_OF.get, lambda _: True))
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


@pytest.mark.parametrize("name", [name for name, build in REQUESTS.items() if build(IDS)[1] in GUARDED])
def test_without_any_right_the_guard_lets_nothing_pass(name: str) -> None:
    request, key, version = REQUESTS[name](IDS)
    verdict = verdict_of(key, guarding.Asked(request, version, Nothing(object(), key), NAME_OF.get, lambda _: True))
    assert verdict is not None, BY_KEY[key].name


@pytest.mark.parametrize("key", sorted(GUARDED))
def test_each_guard_that_refuses_as_a_whole_makes_a_response_that_can_be_sent(key: int) -> None:
    api = by_key(key)
    request = api.request()
    row = BY_KEY[key]
    for version in range(row.min_version, row.max_version + 1):
        if key in (20, 21) or (key == 9 and version < 8):
            continue  # need fields that have no default
        asked = guarding.Asked(request, version, Nothing(object(), key), NAME_OF.get, lambda _: True)
        verdict = verdict_of(key, asked)
        if type(verdict).__name__ == "Refused":
            assert encode(verdict.response, version) is not None
