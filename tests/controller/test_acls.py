"""ACLs in the metadata store: what is stored where, changes of two brokers at once, ends in the middle."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller import acls as module
from odradek.controller.acls import Acls
from odradek.controller.topics import Refusal
from odradek.metadata import acl_nodes
from odradek.metadata.acl_nodes import Entry, Pattern
from odradek.metadata.store import StoreError, StoreUnavailable
from odradek.metadata.znodes import CorruptNode
from odradek.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from odradek.security.acl_encoding import decode_acls
from odradek.stepwise import Stepwise

TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
A = Acl(TOPIC, LITERAL, "t", "User:a", "*", Operation.READ, Permission.ALLOW)
B = A._replace(principal="User:b", operation=Operation.DESCRIBE_CONFIGS, permission=Permission.DENY)
P = A._replace(pattern_type=PREFIXED, name="pre")


def made(store: Any, published: list[list[Acl]], *, notifies: bool = False, largest: int = 1 << 20) -> Acls:
    acls = Acls(store, lambda data: published.append(decode_acls(data)), largest, notifies)
    acls.load()
    return acls


def finished(steps: Any) -> Any:
    job = Stepwise(steps)
    while job.step():
        pass
    return job.result


def test_the_nodes_are_those_of_kafka_3_9(cluster: Any) -> None:
    acls = made(cluster.store, [], notifies=True)
    assert finished(acls.create([A, B, P])) == [None, None, None]
    assert cluster.store.get("/kafka-acl/Topic/t")[0] == (
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"},'
        b'{"principal":"User:b","permissionType":"Deny","operation":"DescribeConfigs","host":"*"}]}'
    )
    assert cluster.store.children("/kafka-acl-extended/prefixed/Topic") == ["pre"]
    (literal,) = cluster.store.children("/kafka-acl-changes")
    (extended,) = cluster.store.children("/kafka-acl-extended-changes")
    assert cluster.store.get(f"/kafka-acl-changes/{literal}")[0] == b"TOPIC:t"
    assert cluster.store.get(f"/kafka-acl-extended-changes/{extended}")[0] == (
        b'{"version":1,"resourceType":"TOPIC","name":"pre","patternType":"PREFIXED"}'
    )
    finished(acls.delete([AclFilter(name="t")]))
    assert cluster.store.children("/kafka-acl/Topic") == []


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20) | st.sampled_from(
    [".", "..", "a/b", "%2F"]
)


@given(names, st.sampled_from((LITERAL, PREFIXED)))
def test_every_name_has_one_node_and_comes_back_from_it(name: str, pattern_type: int) -> None:
    pattern = Pattern(ResourceType.GROUP, pattern_type, name)
    path = acl_nodes.path_of(pattern)
    parent, _, node = path.rpartition("/")
    (place,) = [place for place in acl_nodes.PARENT_NODES if place.path == parent]
    assert node not in ("", ".", "..") and place.pattern(node) == pattern
    entry = Entry("User:x", "*", Operation.ALTER_CONFIGS, Permission.DENY)
    assert acl_nodes.decode_entries(path, acl_nodes.encode_entries([entry]), pattern) == {entry}
    assert acl_nodes.decode_change(*_at(acl_nodes.change_of(pattern))) == pattern


def _at(change: tuple[str, bytes]) -> tuple[str, bytes]:
    return f"{change[0]}0000000001", change[1]


def test_what_kafka_writes_in_other_words_is_understood() -> None:
    data = b'{"version":1,"acls":[{"principal":"User:a","permissionType":"ALLOW","operation":"DESCRIBE_CONFIGS","host":"h"}]}'
    (entry,) = acl_nodes.decode_entries("/p", data, Pattern(TOPIC, LITERAL, "t"))
    assert entry == Entry("User:a", "h", Operation.DESCRIBE_CONFIGS, Permission.ALLOW)
    assert acl_nodes.decode_change("/kafka-acl-changes/acl_changes_1", b"Topic:a:b") == Pattern(TOPIC, LITERAL, "a:b")


ONE = b'{"version":1,"acls":[{"principal":"%b","permissionType":"%b","operation":"Read","host":"*"}]}'


def test_a_notification_that_is_not_understood_is_one_of_everything() -> None:
    assert acl_nodes.changed("/kafka-acl-changes/acl_changes_1", b"Topic:t") == Pattern(TOPIC, LITERAL, "t")
    for path, data in (("/kafka-acl-changes/x", b"nonsense"), ("/kafka-acl-extended-changes/x", b"{}")):
        assert acl_nodes.changed(path, data) == acl_nodes.EVERYTHING


@pytest.mark.parametrize(
    "data", [b"{", b'{"version":2,"acls":[]}', ONE % (b"User:a", b"Maybe"), ONE % (b"a", b"Deny"), b"[]"]
)
def test_a_rule_that_is_not_understood_is_an_error_and_not_ignored(cluster: Any, data: bytes) -> None:
    """If it denied something, to ignore it would allow that."""
    acls = made(cluster.store, [])
    cluster.store.create("/kafka-acl/Topic/t", data, make_parents=True)
    with pytest.raises(CorruptNode, match="/kafka-acl/Topic/t"):
        acls.load()


def test_two_brokers_that_change_one_resource_lose_nothing(cluster: Any) -> None:
    ours, theirs = made(cluster.store, []), made(cluster.store, [])
    finished(ours.create([A]))
    finished(theirs.create([B]))
    published: list[list[Acl]] = []
    assert made(cluster.store, published).all() == sorted([A, B]) == published[-1]
    ours.reload([Pattern(TOPIC, LITERAL, "t")])
    assert ours.all() == sorted([A, B])


def test_a_change_that_always_collides_is_given_up(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    acls = made(cluster.store, [])
    finished(acls.create([A]))
    monkeypatch.setattr(acls, "_read", lambda pattern: (frozenset(), 7))
    with pytest.raises(StoreUnavailable, match=f"{module.ATTEMPTS} times"):
        finished(acls.create([B]))


def test_a_change_is_published_before_it_is_answered_and_only_if_it_changes_something(cluster: Any) -> None:
    published: list[list[Acl]] = []
    acls = made(cluster.store, published)
    assert published == [[]]
    finished(acls.create([A, P]))
    assert published == [[], sorted([A, P])]
    finished(acls.create([A]))
    assert finished(acls.delete([AclFilter(principal="User:nobody")])) == [[]]
    assert len(published) == 2
    assert finished(acls.delete([AclFilter(), AclFilter(name="t"), AclFilter(operation=0)])) == [
        sorted([A, P]), [A], "Unknown entryFilter.",
    ]  # fmt: skip
    assert published[-1] == []


def test_what_was_stored_before_a_failure_or_a_disconnection_is_published(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[list[Acl]] = []
    acls = made(cluster.store, published)
    steps = acls.create([A, P])
    next(steps)
    steps.close()  # the client has disconnected
    assert published == [[]]
    acls.publish()  # as the coordinator does regularly
    assert published == [[], [A]]

    change = acls._change

    def fails(pattern: Pattern, how: Any) -> Any:
        if pattern.name == "u":
            raise StoreError("no")
        return change(pattern, how)

    monkeypatch.setattr(acls, "_change", fails)
    with pytest.raises(StoreError):
        finished(acls.create([B, A._replace(name="u")]))
    assert published[-1] == sorted([A, B])


def test_acls_that_would_not_fit_are_refused_as_a_whole(cluster: Any) -> None:
    acls = made(cluster.store, [], largest=40)
    with pytest.raises(Refusal, match="the limit is 40 bytes"):
        finished(acls.create([A, B]))
    assert acls.all() == []
