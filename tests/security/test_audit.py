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
    for number in range(audit.OF_CLIENT + 500):
        log.note(ACTION._replace(name=f"t{number}"), DEFAULT_DENY, False)
    assert log.only_counts(ACTION.principal, ACTION.host)
    log.flush(force=True)
    assert len(caplog.messages) == audit.OF_CLIENT + 1
    assert (
        caplog.messages[-1]
        == "501 more denials of User:a from host = 10.0.0.1 in the last minute were not logged, after 200 lines"
    )
    assert not log.only_counts(ACTION.principal, ACTION.host)


def test_no_client_hides_the_denials_of_another(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "odradek.authorizer")
    log = Audit(lambda: 0.0)
    for host in range(2 * audit.MOST_HOSTS):
        for number in range(audit.OF_CLIENT + 1):
            action = ACTION._replace(principal="User:noise", host=f"10.1.0.{host}", name=f"t{number}")
            log.note(action, DEFAULT_DENY, False)
    noise = len(caplog.messages)
    assert audit.OF_ALL <= noise <= audit.OF_ALL + audit.FIRST * (audit.MOST_HOSTS + 1)
    caplog.clear()
    for number in range(audit.FIRST + 5):
        log.note(ACTION._replace(principal="User:mallory", name=f"payroll-{number}"), DEFAULT_DENY, False)
    assert len(caplog.messages) == audit.FIRST and "Principal = User:mallory is Denied" in caplog.messages[0]
    caplog.clear()
    log.flush(force=True)
    assert (
        "5 more denials of User:mallory from host = 10.0.0.1 in the last minute were not logged, after 10 lines"
        in caplog.messages
    )
    assert (
        f"{audit.MOST_HOSTS * (audit.OF_CLIENT + 1) - audit.FIRST} more denials of User:noise from host = others in the last "
        in "\n".join(caplog.messages)
    )
    assert len(caplog.messages) == audit.MOST_HOSTS + 2


def test_the_number_of_shares_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "odradek.authorizer")
    log = Audit(lambda: 0.0)
    for number in range(audit.MOST_PRINCIPALS + 50):
        log.note(ACTION._replace(principal=f"User:{number}"), DEFAULT_DENY, False)
    assert len(caplog.messages) == audit.MOST_PRINCIPALS + audit.FIRST
    caplog.clear()
    log.flush(force=True)
    assert caplog.messages == [
        "40 more denials of others from host = others in the last minute were not logged, after 10 lines"
    ]


def test_names_of_clients_forge_no_line_and_quiet_decisions_are_traced_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "odradek.authorizer")
    log = Audit(lambda: 0.0)
    log.note(ACTION, DEFAULT_DENY, True)
    assert not caplog.messages
    log.note(ACTION._replace(name="t\n2026 forged", principal="User:" + "x" * 5000), DEFAULT_DENY, False)
    assert "\n" not in caplog.messages[0] and len(caplog.messages[0]) < 1000
