"""The audit log: Kafka's words, and one line a minute for what a client repeats."""

import logging

import pytest

from odradek.security import audit
from odradek.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.audit import Action, Audit
from odradek.security.authorizer import DEFAULT_DENY, Rule

ACTION = Action("User:a", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC, "t", "Produce")


def test_the_words_are_kafkas(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "odradek.authorizer")
    acl = Acl(ResourceType.TOPIC, PatternType.LITERAL, "*", "User:*", "*", Operation.ALL, Permission.ALLOW)
    log = Audit(lambda: 0.0)
    log.note(ACTION, DEFAULT_DENY, False)
    log.note(ACTION, Rule(True, "MatchingAcl", acl), False)
    assert caplog.messages == [
        "Principal = User:a is Denied operation = WRITE from host = 10.0.0.1 on resource = Topic:LITERAL:t for request = "
        "Produce with resourceRefCount = 1 based on rule DefaultDeny",
        "Principal = User:a is Allowed operation = WRITE from host = 10.0.0.1 on resource = Topic:LITERAL:t for request = "
        "Produce with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=*, "
        "patternType=LITERAL, principal=User:*, host=*, operation=ALL, permissionType=ALLOW))",
    ]


def test_a_repeated_denial_is_one_line_and_a_count_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "odradek.authorizer")
    now = [0.0]
    log = Audit(lambda: now[0])
    for _ in range(1000):
        log.note(ACTION, DEFAULT_DENY, False)
    log.flush()
    assert len(caplog.messages) == 1
    now[0] = 61.0
    log.flush()
    assert len(caplog.messages) == 2 and caplog.messages[1].endswith("(repeated 999 times)")
    log.note(ACTION, DEFAULT_DENY, False)
    assert len(caplog.messages) == 3


def test_a_flood_of_different_names_is_bounded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "odradek.authorizer")
    log = Audit(lambda: 0.0)
    for number in range(audit.KEPT + 500):
        log.note(ACTION._replace(name=f"t{number}"), DEFAULT_DENY, False)
    assert log.only_counts()
    log.flush(force=True)
    assert len(caplog.messages) == audit.KEPT + 1
    assert caplog.messages[-1].startswith("501 more operations")
    assert not log.only_counts()


def test_names_of_clients_forge_no_line_and_quiet_decisions_are_traced_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "odradek.authorizer")
    log = Audit(lambda: 0.0)
    log.note(ACTION, DEFAULT_DENY, True)
    assert not caplog.messages
    log.note(ACTION._replace(name="t\n2026 forged", principal="User:" + "x" * 5000), DEFAULT_DENY, False)
    assert "\n" not in caplog.messages[0] and len(caplog.messages[0]) < 1000
