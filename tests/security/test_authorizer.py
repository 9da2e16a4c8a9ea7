"""The authorizer decides as the plainest form of Kafka's rules does."""

import itertools
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.super_users import parse_super_users
from odradek.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType, problem_of
from odradek.security.authorizer import Authorizer
from odradek.security.hosts import host_of_peer, normal_host
from tests.security import generated, reference

TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED


def topic(name: str, operation: int, **fields: object) -> Acl:
    values = {"pattern_type": LITERAL, "principal": "User:alice", "host": "*", "permission": Permission.ALLOW} | fields
    return Acl(resource_type=TOPIC, name=name, operation=operation, **values)  # type: ignore[arg-type]


@settings(max_examples=int(os.environ.get("AUTHORIZER_SETS", "100")))
@given(generated.acls, generated.super_users, st.booleans(), st.data())
def test_decisions_are_those_of_the_plainest_rules(
    acls: list[Acl], super_users: list[str], default: bool, data: st.DataObject
) -> None:
    authorizer = Authorizer(acls, super_users, default)
    principal = data.draw(st.sampled_from(generated.PRINCIPALS))
    host = data.draw(st.sampled_from(generated.HOSTS))
    for kind, name, operation in itertools.product(generated.TYPES, generated.NAMES, generated.ASKED):
        expected = reference.allowed(acls, super_users, default, principal, host, operation, kind, name)
        assert authorizer.decide(principal, host, operation, kind, name).allowed == expected
    for operation in (Operation.WRITE, Operation.READ):
        expected = reference.allowed_by_type(acls, super_users, default, principal, host, operation, TOPIC)
        assert authorizer.decide_by_type(principal, host, operation, TOPIC).allowed == expected


@given(generated.acls, st.sampled_from(generated.PRINCIPALS[:3]))
def test_the_deciding_rule_is_one_that_would_decide_alone(acls: list[Acl], principal: str) -> None:
    authorizer = Authorizer(acls)
    for name in generated.NAMES:
        rule = authorizer.decide(principal, "127.0.0.1", Operation.READ, TOPIC, name)
        if rule.acl is not None:
            alone = Authorizer([rule.acl]).decide(principal, "127.0.0.1", Operation.READ, TOPIC, name)
            assert alone.allowed == rule.allowed and alone.acl == rule.acl


@pytest.mark.parametrize("granted", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_what_is_implied_by_an_allow_is_not_denied_by_a_deny(granted: Operation) -> None:
    allow, deny = topic("t", granted), topic("t", granted, permission=Permission.DENY)
    everything = topic("t", Operation.ALL)
    assert Authorizer([allow]).decide("User:alice", "1.2.3.4", Operation.DESCRIBE, TOPIC, "t").allowed
    assert Authorizer([everything, deny]).decide("User:alice", "1.2.3.4", Operation.DESCRIBE, TOPIC, "t").allowed
    assert not Authorizer([everything, deny]).decide("User:alice", "1.2.3.4", granted, TOPIC, "t").allowed


def test_an_acl_of_somebody_else_ends_the_default_for_everybody() -> None:
    authorizer = Authorizer([topic("a", Operation.READ, pattern_type=PREFIXED)], (), True)
    assert not authorizer.decide("User:bob", "1.2.3.4", Operation.READ, TOPIC, "abc").allowed
    assert authorizer.decide("User:bob", "1.2.3.4", Operation.READ, TOPIC, "b").allowed


def test_hosts_are_equal_in_every_spelling() -> None:
    long = "0:0:0:0:0:0:0:1"
    assert normal_host("::1") == normal_host(long) == host_of_peer("[::1]:4711") == long
    assert host_of_peer("[::ffff:10.0.0.1]:1") == host_of_peer("10.0.0.1:1") == "10.0.0.1"
    authorizer = Authorizer([topic("t", Operation.READ, host="::1")])
    assert authorizer.decide("User:alice", host_of_peer("[::1]:1"), Operation.READ, TOPIC, "t").allowed


def test_ten_thousand_acls_cost_a_decision_nothing() -> None:
    many = [topic("*", Operation.READ, principal=f"User:u{n}") for n in range(5000)]
    many += [topic(f"t{n}", Operation.READ, pattern_type=PREFIXED) for n in range(5000)]
    small, large = Authorizer(many[:1] + many[-1:]), Authorizer(many)

    def fastest(authorizer: Authorizer) -> float:
        times = []
        for _ in range(50):
            began = time.perf_counter()
            for _ in range(20):
                authorizer.decide("User:u1", "1.2.3.4", Operation.READ, TOPIC, "t4999")
            times.append(time.perf_counter() - began)
        return min(times)

    assert fastest(large) < 20 * fastest(small)  # a loop over all ACLs would take a thousand times as long


def test_filters_select_as_kafka_selects() -> None:
    prefix, name, every = topic("ab", 3, pattern_type=PREFIXED), topic("abc", 3), topic("*", 3)
    acls = [prefix, name, every]

    def selected(**fields: object) -> list[Acl]:
        return [acl for acl in acls if AclFilter(**fields).matches(acl)]  # type: ignore[arg-type]

    assert selected() == acls
    assert selected(pattern_type=PatternType.MATCH, name="abc") == acls
    assert selected(pattern_type=PatternType.MATCH, name="abd") == [prefix, every]
    assert selected(pattern_type=PatternType.ANY, name="abc") == [name]
    assert selected(pattern_type=LITERAL, name="ab") == []
    assert selected(principal="User:bob") == selected(host="1.2.3.4") == selected(operation=Operation.ALL) == []
    assert selected(resource_type=TOPIC, operation=3, permission=Permission.ALLOW, principal="User:alice") == acls


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"operation": 77}, "Invalid operation UNKNOWN"),
        ({"permission": Permission.ANY}, "Invalid permissionType ANY"),
        ({"name": ""}, "Resource name should not be empty"),
        ({"resource_type": ResourceType.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
    ],
)
def test_an_acl_that_cannot_be_created_is_named(fields: dict[str, object], problem: str) -> None:
    assert problem_of(topic("t", Operation.READ)) is None
    found = problem_of(topic("t", Operation.READ)._replace(**fields))
    assert found is not None and found.startswith(problem)


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users("User:CN=a,O=b;User:c; ") == ("User:CN=a,O=b", "User:c")
    for text in ("alice", "User:", ":alice"):
        with pytest.raises(ValueError, match="is not a principal"):
            parse_super_users(text)
