"""What an explanation says changes the decision: it does, and it changes nothing else unless it says so."""

import random
from itertools import product

import pytest

from odradek.security.acl import ANYBODY, Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.authorizer import Authorizer
from odradek.security.explaining import ANY_ADDRESS, Change, Explanation, Question, changed, explained

ALICE, BOB, BYSTANDER = "User:alice", "User:bob", "User:bystander"
HERE, THERE = "10.0.0.5", "10.0.0.6"
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
TOPIC = ResourceType.TOPIC
NAMES = ("t", "t1", "u", "*")


def rule(
    permission: Permission = Permission.ALLOW,
    principal: str = ALICE,
    operation: Operation = READ,
    name: str = "t",
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
) -> Acl:
    return Acl(TOPIC, pattern, name, principal, host, operation, permission)


def explanation(question: Question, acls: list[Acl], default: bool) -> Explanation:
    return explained(question, Authorizer(acls, (), default), acls, "default")


def random_rules(chance: random.Random) -> list[Acl]:
    rules = {
        rule(
            chance.choice((Permission.ALLOW, Permission.DENY)),
            chance.choice((ALICE, ALICE, BOB, ANYBODY)),
            chance.choice((READ, WRITE, DESCRIBE, ALL)),
            chance.choice(NAMES),
            chance.choice(("*", "*", HERE)),
            chance.choice((PatternType.LITERAL, PatternType.LITERAL, PatternType.PREFIXED)),
        )
        for _ in range(chance.randrange(5))
    }
    return sorted(rules)


def decisions(question: Question, acls: list[Acl], default: bool) -> dict[tuple[str, ...], bool]:
    """Those that the changes for a question must not change: about other principals, other resources and other addresses."""
    authorizer = Authorizer(acls, (), default)
    return {
        (principal, host, operation.name, name): authorizer.decide(principal, host, operation, TOPIC, name).allowed
        for principal, host, operation, name in product(
            (ALICE, BOB, BYSTANDER), (HERE, THERE), (READ, WRITE, DESCRIBE), NAMES
        )
        if principal != question.principal
        or name not in (question.name, *(NAMES if question.name == "*" else ()))
        or host not in (question.host, *((HERE, THERE) if question.host == ANY_ADDRESS else ()))
    }


@pytest.mark.parametrize("seed", range(4))
def test_the_changes_of_an_explanation_change_the_decision_and_no_other(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        acls, default = random_rules(chance), chance.random() < 0.5
        operation = chance.choice((READ, WRITE, DESCRIBE))
        question = Question(ALICE, chance.choice((ANY_ADDRESS, HERE)), operation, TOPIC, chance.choice(NAMES))
        result = explanation(question, acls, default)
        if not result.changes:
            assert question.name == "*" and default, (question, acls)
            continue
        before, after = decisions(question, acls, default), acls
        for change in result.changes:
            assert (change.acl in after) != change.adds, (question, acls, result)
            after = changed(after, [change])
            if not any(earlier.broader for earlier in result.changes):
                assert decisions(question, after, default) == before, (question, acls, result)
        authorizer = Authorizer(after, (), default)
        assert authorizer.decide(*question).allowed != result.rule.allowed, (question, acls, result)
        if question.host == ANY_ADDRESS:
            still = authorizer.decide(*question._replace(host=HERE))
            known = any(acl.host == HERE for acl in after)
            assert (HERE in result.still_elsewhere) == (known and still.allowed == result.rule.allowed)


def test_the_first_acl_of_a_resource_does_not_lock_out_the_others() -> None:
    result = explanation(Question(ALICE, ANY_ADDRESS, READ, TOPIC, "t"), [], True)
    everybody = Change(True, rule(principal=ANYBODY, operation=ALL))
    assert result.changes == [everybody, Change(True, rule(Permission.DENY))]
    assert explanation(Question(ALICE, ANY_ADDRESS, READ, TOPIC, "*"), [], True).changes == []


@pytest.mark.parametrize(
    ("allowance", "removed"),
    [
        (rule(), True),
        (rule(operation=ALL), False),
        (rule(name="*"), False),
        (rule(pattern=PatternType.PREFIXED), False),
        (rule(principal=ANYBODY), False),
    ],
)
def test_only_an_allowance_of_exactly_the_question_is_removed(allowance: Acl, removed: bool) -> None:
    result = explanation(Question(ALICE, ANY_ADDRESS, READ, TOPIC, "t"), [allowance], False)
    expected = Change(False, rule()) if removed else Change(True, rule(Permission.DENY))
    assert result.changes == [expected] and result.change.startswith(
        "remove" if removed else "add an ACL that denies it"
    )


def test_a_question_about_an_address_gets_an_allowance_for_that_address() -> None:
    result = explanation(Question(ALICE, HERE, READ, TOPIC, "t"), [], False)
    assert result.changes == [Change(True, rule(host=HERE))]


def test_denials_of_more_than_the_question_are_marked() -> None:
    denials = [rule(Permission.DENY), rule(Permission.DENY, ANYBODY, ALL, "*")]
    result = explanation(Question(ALICE, ANY_ADDRESS, READ, TOPIC, "t"), denials, False)
    assert result.changes == [Change(True, rule()), *(Change(False, acl, acl == denials[1]) for acl in denials)]
    assert result.change.startswith("this ACL and 1 more that deny it must be removed, and an ACL must allow READ")


def test_addresses_that_keep_the_old_decision_are_named() -> None:
    for permission in (Permission.ALLOW, Permission.DENY):
        question = Question(ALICE, ANY_ADDRESS, READ, TOPIC, "t")
        result = explanation(question, [rule(permission), rule(permission, host=HERE)], False)
        assert list(result.still_elsewhere) == [HERE] and not result.elsewhere
