"""Log lines about failed logins: bounded for each address, and none hides another reason."""

import logging

import pytest

from odradek.processes.login_failures import LONGEST_USER, MOST_REASONS, MOST_USERS, LoginFailures


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "odradek.security")


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_repeated_failure_does_not_hide_another_reason(caplog: pytest.LogCaptureFixture) -> None:
    failures = LoginFailures(lambda: 0.0)
    for _ in range(3):
        failures.note("10.0.0.1:5", "CLIENTS", "SCRAM-SHA-512", "invalid credentials")
        failures.note("10.0.0.1:6", "CLIENTS", "OAUTHBEARER", "the token has the audience other")
    assert [line.partition(" failed ")[2].partition(";")[0] for line in messages(caplog)] == [
        "with SCRAM-SHA-512: invalid credentials",
        "with OAUTHBEARER: the token has the audience other",
    ]


def test_the_lines_of_an_address_in_a_minute_are_bounded_and_do_not_affect_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    failures = LoginFailures(lambda: now[0])
    for number in range(100):
        failures.note("10.0.0.1:5", "CLIENTS", "PLAIN", f"reason {number}")
    assert len(messages(caplog)) == MOST_REASONS
    failures.note("10.0.0.2:5", "CLIENTS", "PLAIN", "reason 0")
    assert len(messages(caplog)) == MOST_REASONS + 1
    now[0] = 61.0
    failures.note("10.0.0.1:5", "CLIENTS", "PLAIN", "reason 200")
    assert len(messages(caplog)) == MOST_REASONS + 2


def test_the_next_line_has_the_number_of_failures_without_a_line(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    failures = LoginFailures(lambda: now[0])
    for _ in range(4):
        failures.note("10.0.0.1:5", "CLIENTS", "PLAIN", "invalid credentials")
    now[0] = 61.0
    failures.note("10.0.0.1:5", "CLIENTS", "PLAIN", "invalid credentials")
    assert "3 logins from this address failed in the same way before" in messages(caplog)[-1]


def test_a_line_names_the_user_printable_and_not_too_long(caplog: pytest.LogCaptureFixture) -> None:
    failures = LoginFailures(lambda: 0.0)
    failures.note("10.0.0.1:5", "CLIENTS", "PLAIN", "invalid credentials", "alice")
    failures.note("10.0.0.2:5", "CLIENTS", "PLAIN", "invalid credentials", "a\nb\x1b[2K\u202e" + "x" * 1000)
    first, second = messages(caplog)
    assert first.startswith(
        "a login as 'alice' from 10.0.0.1 on listener CLIENTS failed with PLAIN: invalid credentials;"
    )
    assert second.isprintable() and second.startswith("a login as 'a") and len(second) < 250 + LONGEST_USER


def test_a_detail_is_in_the_line_and_changes_no_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Else the time that a line takes would show clients what only the log may say."""
    failures = LoginFailures(lambda: 0.0)
    failures.note("10.0.0.1:5", "CLIENTS", "PLAIN", "invalid credentials", "alice", "the password is wrong")
    failures.note("10.0.0.1:5", "CLIENTS", "PLAIN", "invalid credentials", "alice", "there is no such user")
    failures.note("10.0.0.1:5", "CLIENTS", "PLAIN", "invalid credentials", "bob", "there is no such user")
    assert [line.partition(" failed ")[2].partition(";")[0] for line in messages(caplog)] == [
        "with PLAIN: invalid credentials (the password is wrong)",
        "with PLAIN: invalid credentials (there is no such user)",
    ]


def test_many_users_of_an_address_are_named_up_to_a_limit_and_hide_no_other_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = LoginFailures(lambda: 0.0)
    for number in range(100):
        for _ in range(2):
            failures.note("10.0.0.1:5", "CLIENTS", "PLAIN", "invalid credentials", f"user-{number}")
    assert [line.split("'")[1] for line in messages(caplog)] == [f"user-{number}" for number in range(1 + MOST_USERS)]
    failures.note("10.0.0.1:6", "CLIENTS", "PLAIN", "password not specified", "bob")
    assert "as 'bob' from 10.0.0.1" in messages(caplog)[-1]
