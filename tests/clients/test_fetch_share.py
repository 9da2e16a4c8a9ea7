"""Responses over lines of any speed: they become as small as they must be, and as large as they may be."""

import pytest

from odradek.clients.fetch_share import LEAST_BYTES, FetchShares

TIMEOUT_S, MOST = 30.0, 16 << 20


def responses(shares: FetchShares, bytes_s: float, count: int) -> list[bool]:
    """Whether each of some responses arrived in time over a line."""
    arrived = []
    for _ in range(count):
        asked = shares.of(1, MOST)
        took_s = asked / bytes_s
        if took_s > TIMEOUT_S:
            shares.lost(1, TIMEOUT_S, asked)
        else:
            shares.arrived(1, took_s, MOST)
        arrived.append(took_s <= TIMEOUT_S)
    return arrived


@pytest.mark.parametrize("bytes_s", [3_000, 10_000, 100_000, 400_000, 1_000_000, 100_000_000])
def test_over_a_slow_line_no_response_is_late_after_the_first_ones(bytes_s: float) -> None:
    shares = FetchShares(TIMEOUT_S)
    first = responses(shares, bytes_s, 10)
    assert all(responses(shares, bytes_s, 100))
    assert sum(not arrived for arrived in first) <= 8
    assert shares.of(1, MOST) >= min(MOST, bytes_s * TIMEOUT_S / 4)


def test_a_line_that_becomes_quick_again_gets_large_responses() -> None:
    shares = FetchShares(TIMEOUT_S)
    responses(shares, 3_000, 20)
    assert shares.of(1, MOST) == LEAST_BYTES
    assert shares.of(2, MOST) == MOST, "another leader"
    responses(shares, 1e9, 20)
    assert shares.of(1, MOST) == MOST


def test_a_lost_connection_is_not_a_slow_line() -> None:
    shares = FetchShares(TIMEOUT_S)
    shares.lost(1, 0.1, MOST)
    assert shares.of(1, MOST) == MOST


def test_requests_that_are_small_already_do_not_become_larger() -> None:
    shares = FetchShares(TIMEOUT_S)
    shares.lost(1, TIMEOUT_S, 1000)
    assert shares.of(1, 1000) == 1000
