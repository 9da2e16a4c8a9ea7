"""Log lines about refused connections are limited for each address."""

from odradek.net.failure_log import MOST_ADDRESSES, FailureLog


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


def test_its_memory_is_bounded():
    log = FailureLog(lambda: 0.0)
    for number in range(3 * MOST_ADDRESSES):
        log.admit(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:1", "x")
        log.admit(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:2", "x")
    assert len(log._since) == MOST_ADDRESSES >= len(log._unlogged)
