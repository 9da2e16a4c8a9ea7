"""Quantiles of the last five minutes, idle time, and whose process a pid is."""

import math
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from odradek.metrics import pages
from odradek.metrics import traffic as traffic_module
from odradek.metrics.processes import idle_share, read_process
from odradek.metrics.traffic import WINDOW_MS, RequestTimes, quantile

PRODUCE = 0


def histogram(**counts):
    """:param counts: by bucket, `b10=3`: three of less than 2**10 microseconds."""
    return tuple(counts.get(f"b{power}", 0) for power in range(32))


def test_a_quantile_lies_in_its_bucket():
    buckets = histogram(b4=50, b10=50)
    assert quantile(buckets, 0.25) == 12.0  # the middle of 8 to 16
    assert quantile(buckets, 0.5) == 16.0
    assert 512 < quantile(buckets, 0.51) < quantile(buckets, 0.99) < 1024
    assert math.isnan(quantile(histogram(), 0.5))
    assert quantile(histogram(b0=1), 0.5) == 0.5


@pytest.mark.parametrize("share", [0.5, 0.75, 0.95, 0.98, 0.99, 0.999])
def test_a_quantile_is_within_a_factor_of_two(share):
    values = [1 + (number * 7919) % 5000 for number in range(10_000)]
    buckets = [0] * 32
    for value in values:
        buckets[value.bit_length()] += 1
    true = sorted(values)[math.ceil(share * len(values)) - 1]
    assert true / 2 <= quantile(tuple(buckets), share) <= true * 2


def test_quantiles_forget_what_is_older_than_five_minutes(monkeypatch):
    now = {"buckets": histogram(b20=100)}
    monkeypatch.setattr(
        traffic_module.pages,
        "request_times",
        lambda shm, page: {(PRODUCE, "total"): pages.RequestTimes("total", now["buckets"], 5)},
    )
    times, place = RequestTimes(), SimpleNamespace(page=1)
    times.read(None, [place], 0)
    now["buckets"] = histogram(b20=100, b4=10)
    for at_ms in range(0, WINDOW_MS + 60_000, 5_000):
        times.read(None, [place], at_ms)
    assert sum(times.recent((PRODUCE, "total"))) == 0
    now["buckets"] = histogram(b20=100, b4=10, b6=3)
    times.read(None, [place], WINDOW_MS + 60_000)
    assert times.recent((PRODUCE, "total")) == histogram(b6=3)
    assert len(times._kept) < 30


def test_idle_is_what_was_not_busy():
    assert idle_share({1: 0, 2: 100}, {1: 500_000, 2: 100}, 1_000_000) == 0.75
    assert idle_share({1: 0}, {1: 2_000_000}, 1_000_000) == 0.0
    assert idle_share({}, {1: 5}, 1_000_000) is None
    assert idle_share({1: 0}, {1: 5}, 0) is None


def test_only_the_supervisor_and_its_children_are_reported():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        figures = read_process(child.pid, os.getpid(), 1000.0)
        assert figures is not None and figures.open_fds >= 3 and figures.start_seconds > 1000
        assert read_process(child.pid, 1, 1000.0) is None  # another's child: the pid was given again
        child.communicate(b"\n")
    assert read_process(child.pid, os.getpid(), 1000.0) is None
