"""How much is in flight to targets of any speed: a transaction ends in time, and a fast target is not slowed down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.mirror.send_window import FIRST_BYTES, MOST_BATCHES, SendWindow

INTERVAL_S, LATE_S, TIMEOUT_S = 0.1, 15.0, 60.0
BATCHES = 5000


def transactions(each_s: float, size: int, bytes_s: float = 0.0) -> list[tuple[float, int]]:
    """The seconds and batches of the transactions in which a lane sends BATCHES to a target that serves one after the other.

    :param each_s: the target's time for a batch. :param bytes_s: and for each of its bytes.
    """
    window, left, found = SendWindow(), BATCHES, []
    cost_s = each_s + size * bytes_s
    while left:
        took_s, count = 0.0, 0

        def acknowledge(now_s: float) -> None:
            window.acknowledged(size, now_s >= LATE_S)

        while left:
            while window.crowded and took_s < INTERVAL_S:
                took_s += cost_s
                acknowledge(took_s)
            if took_s >= INTERVAL_S:
                break
            while window.room and left:
                window.sent(size)
                left, count = left - 1, count + 1
        while window.waiting:
            took_s += cost_s
            acknowledge(took_s)
        found.append((took_s, count))
        assert window.waiting_bytes == 0
    return found


@given(st.floats(0, 14), st.integers(100, 1 << 20))
def test_no_transaction_lasts_too_long_however_slow_the_target_is(each_s: float, size: int) -> None:
    found = transactions(each_s, size)
    assert max(took_s for took_s, _ in found) < TIMEOUT_S
    assert min(count for _, count in found) >= 1


def test_no_transaction_lasts_too_long_over_a_narrow_line() -> None:
    found = transactions(0, 1 << 20, bytes_s=10e-6)  # 100 kB/s
    assert max(took_s for took_s, _ in found) < TIMEOUT_S


@pytest.mark.parametrize("size", [100, 16_000, 1 << 20])
def test_a_fast_target_gets_as_much_as_fits(size: int) -> None:
    window, sent = SendWindow(), 0
    while window.room:
        window.sent(size)
        sent += 1
    assert sent == 1
    rounds = 0
    while sent < MOST_BATCHES and sent * size < 4 << 20:
        for _ in range(sent):
            window.acknowledged(size, False)
        sent, rounds = 0, rounds + 1
        while window.room:
            window.sent(size)
            sent += 1
    assert rounds <= 9


def test_late_acknowledgements_make_it_smaller_but_never_close_it() -> None:
    window = SendWindow()
    for _ in range(1000):
        window.sent(5000)
        window.acknowledged(5000, False)
    for _ in range(2000):
        window.sent(5000)
        window.acknowledged(5000, True)
    assert (window.batches, window.size_bytes, window.room) == (1, FIRST_BYTES, 1)
