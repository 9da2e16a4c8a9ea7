"""The spool through crashes and failures at every step: what is read back is what was counted, never twice, and all but one
interval of it.
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.metrics.spool_files import list_files
from odradek.metrics.spool_history import History
from odradek.metrics.usage_totals import VALUES
from tests.metrics import spool_model
from tests.metrics.spool_model import DISK_FULL, HOUR, MINUTE, Calls, Clock, Crash, Pages

FOREVER = 1 << 60
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # hundreds of intervals, each synced a few times
CLIENTS = ("c1", "c2", "c3")

counted = st.tuples(
    st.just("count"),
    st.integers(1, 2),
    st.sampled_from(CLIENTS),
    st.sampled_from((None, "t", "u")),
    st.sampled_from((0, 1)),
)
steps = st.integers(1, 24)
things = st.one_of(
    counted,
    counted,
    st.tuples(st.just("retire"), st.integers(0, 5)),
    st.tuples(st.just("interval"), st.integers(1, 90)),
    st.tuples(st.just("interval"), st.just(1)),
    st.tuples(st.just("full disk"), steps),
    st.tuples(st.just("reporter dies"), steps),
    st.tuples(st.just("broker dies"), steps),
    st.tuples(st.just("power fails"), steps),
    st.tuples(st.just("clock is set"), st.integers(-3 * 60, 3 * 60)),
)


def read(directory):
    """(all values of all boots, the sums by client, the history)"""
    history = History(directory, 0, FOREVER)
    total = [
        sum(column) for column in zip([0] * len(VALUES), *(one.values for one in history.usage.values()), strict=True)
    ]
    return total, history


class World:
    def __init__(self, directory, seed):
        self.directory = directory
        self.chance = spool_model.chance(seed)
        self.clock, self.calls = Clock(), Calls()
        self.boots, self.past = 0, [0] * len(VALUES)
        self.boot()

    def boot(self):
        self.boots += 1
        self.pages = Pages(self.clock, self.chance)
        self.began = self.clock.now
        self.tried = [
            [0] * len(VALUES)
        ]  # totals of the last interval known to be on disk, and of later ones that may be
        self.known = self.tried[0]  # the last total read from the files
        self.start()

    def start(self):
        self.calls.fail(0, Crash())
        self.spool = spool_model.spool(self.directory, f"b{self.boots}", self.clock, self.calls, began=self.began)

    def plus(self, values):
        return [a + b for a, b in zip(self.past, values, strict=True)]

    def interval(self, minutes=1):
        self.clock.advance(minutes * MINUTE)
        self.tried.append(self.pages.total())
        done = self.spool.write(list(self.pages.rows()))
        if done:
            del self.tried[:-1]
            self.known = self.tried[0]
        return done

    def crash(self, at, power=False):
        """Crash during an interval; the disk has the state after the last interval, or after this one. If the reporter died in
        an interval before and then the power fails, that interval may be on disk too.
        """
        self.calls.fail(at, Crash())
        try:
            self.interval()
        except Crash:
            pass
        else:
            self.calls.fail(1, Crash())  # it had fewer steps: after it
        if power:
            self.calls.lose_power(self.directory, self.chance)
        if self.directory.exists():
            total, _ = read(self.directory)
            assert total in [self.plus(one) for one in (self.tried if power else (self.known, self.tried[-1]))]
            self.known = [a - b for a, b in zip(total, self.past, strict=True)]
            return total
        return self.past

    def do(self, what, *how):
        match what:
            case "count":
                self.pages.count(*how)
            case "retire":
                keys = list(self.pages.entries)
                if keys:
                    self.pages.retire(keys[how[0] % len(keys)])
            case "interval":
                assert self.interval(*how)
                total, history = read(self.directory)
                assert total == self.plus(self.pages.total()) and not history.gaps
            case "full disk":
                self.calls.fail(how[0], DISK_FULL)
                self.interval()
                self.calls.fail(0, Crash())
            case "reporter dies":
                self.crash(*how)
                self.start()
            case "broker dies" | "power fails":
                self.past = self.crash(*how, power=what == "power fails")
                self.calls.all_is_written_back(self.directory)  # in time, by the kernel
                self.boot()
            case "clock is set":
                self.clock.now += how[0] * MINUTE


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(things, max_size=30), st.integers(0, 1 << 30))
def test_the_read_counts_equal_the_written_counts_after_any_crash(story, seed):
    with tempfile.TemporaryDirectory(dir=MEMORY) as parent:
        world = World(Path(parent) / "usage", seed)
        for one in story:
            world.do(*one)
        assert world.interval()
        total, history = read(world.directory)
        assert total == world.plus(world.pages.total())
        assert not history.gaps


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("at", range(1, 25))
def test_a_crash_at_each_step_of_an_interval_that_begins_an_hour(tmp_path, at, power):
    """Append, rotation, compression and the removal of what was compressed: each step once, and the end of the reporter
    or of the machine there.
    """
    world = World(tmp_path / "usage", at)
    for client in CLIENTS:
        world.pages.count(1, client, "t", 0)
        assert world.interval(20)
    world.pages.count(1, "c1", "t", 0)
    world.pages.retire((1, "c2", "t", 0))
    world.clock.advance(HOUR)
    if power:
        world.past = world.crash(at, power=True)
        world.boot()
    else:
        world.crash(at)
        world.start()
    world.pages.count(2, "c1", None, 1)
    assert world.interval()
    total, history = read(world.directory)
    assert total == world.plus(world.pages.total()) and not history.gaps
    names = {one.path.name.removesuffix(".gz") for one in list_files(world.directory)}
    assert len(names) == len(list_files(world.directory))  # no file is there twice in the end
    assert not list(world.directory.glob("*.tmp"))
