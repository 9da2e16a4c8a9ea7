"""Log lines about refused connections are limited for each address."""

from odradek.net.failure_log import FailureLog
from odradek.net.line_limit import MOST_ADDRESSES, LineLimit


def test_an_address_gets_one_line_a_minute_with_the_number_of_those_left_out():
    now = [0.0]
    log = FailureLog(lambda: now[0])
    assert log.admit("10.0.0.1:1", "a") == "a"
    assert log.admit("10.0.0.1:2", "b") is None and log.admit("10.0.0.1:3", "c") is None
    assert log.admit("[::1]:3", "other") == "other"
    now[0] = 60.0
    assert log.admit("10.0.0.1:4", "d") == "d (2 more refused connections of 10.0.0.1 since the last line)"
    now[0] = 120.0
    assert log.admit("10.0.0.1:5", "e") == "e"


def test_each_reason_has_its_own_line():
    log = FailureLog(lambda: 0.0)
    assert log.admit_reason("10.0.0.1:1", "TLS") == "TLS" and log.admit_reason("10.0.0.1:2", "HTTP") == "HTTP"
    assert log.admit_reason("10.0.0.1:3", "TLS") is None and log.admit_reason("10.0.0.2:1", "TLS") == "TLS"


def test_its_memory_is_bounded():
    limit = LineLimit(lambda: 0.0)
    for number in range(3 * MOST_ADDRESSES):
        assert limit.admit(str(number)) == 0 and limit.admit(str(number)) is None
    assert len(limit._since) == MOST_ADDRESSES >= len(limit._unlogged)
    assert limit.admit("0") == 0  # an address that was forgotten has a line again
