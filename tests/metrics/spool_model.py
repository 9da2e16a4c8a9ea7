"""For tests of the spool: a clock that can be set, calls that fail or crash at any step, and a model of a broker."""

import errno
import os
import random
from collections import Counter
from pathlib import Path

from odradek.metrics import spool_rows
from odradek.metrics.pages import NO_API, OTHER, RETIRED, UsageRow
from odradek.metrics.spool import Spool
from odradek.metrics.spool_files import SpoolCalls
from odradek.metrics.usage_totals import VALUES

NOON = 1_792_843_200_000  # 2026-10-24T12:00:00Z
HOUR = 3_600_000
MINUTE = 60_000
APIS = {0: "Produce", 1: "Fetch", 3: "Metadata"}


class Crash(BaseException):
    """The process died at this step."""


class Clock:
    """Wall and steady clock in ms."""

    def __init__(self, now=NOON):
        self.now, self.ran = now, 1000

    def wall(self):
        return self.now

    def steady(self):
        return self.ran

    def advance(self, ms):
        self.now += ms
        self.ran += ms


class Calls(SpoolCalls):
    """At step `fail_at` (1 is the first; 0: never) `error` is raised; a write has written its first half then.

    :param synced: by path the bytes that lie on the device.
    """

    def __init__(self):
        self.synced, self.steps, self.fail_at, self.error = {}, 0, 0, Crash()

    def fail(self, at, error):
        self.steps, self.fail_at, self.error = 0, at, error

    def step(self):
        self.steps += 1
        if self.steps == self.fail_at:
            raise self.error

    def write(self, descriptor, at, content):
        self.step()
        self.steps += 1
        if self.steps == self.fail_at:
            super().write(descriptor, at, content[: len(content) // 2])
            raise self.error
        super().write(descriptor, at, content)
        self.step()

    def sync(self, descriptor):
        self.step()
        super().sync(descriptor)
        self.synced[str(Path(f"/proc/self/fd/{descriptor}").readlink())] = os.fstat(descriptor).st_size
        self.step()

    def rename(self, old, new):
        self.step()
        super().rename(old, new)
        self.synced[str(new)] = self.synced.pop(str(old), 0)
        self.step()

    def remove(self, path):
        self.step()
        super().remove(path)
        self.step()

    def all_is_written_back(self, directory):
        """Mark all data as on disk, as the kernel does within half a minute."""
        if directory.exists():
            self.synced = {str(path): path.stat().st_size for path in directory.iterdir()}

    def lose_power(self, directory, chance):
        """Lose a random part of the data that was not synced. :param chance: a `random.Random`"""
        for path in directory.iterdir():
            size, safe = path.stat().st_size, self.synced.get(str(path), 0)
            if size > safe:
                os.truncate(path, chance.randint(safe, size))


DISK_FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Pages:
    """Counts as the broker does: entries of two pages, which are retired and created again."""

    def __init__(self, clock, chance):
        self.clock, self.chance = clock, chance
        self.entries, self.retired, self.named = {}, {}, Counter()
        self.last_since = 0

    def count(self, page, client, topic, api):
        """Add random counts of a client."""
        key = (page, client, topic, api)
        if key not in self.entries:
            self.last_since = max(self.clock.now, self.last_since + 1)
            self.entries[key] = [self.last_since, [0] * len(VALUES)]
        more = [self.chance.randint(0, 9) for _ in VALUES]
        values = self.entries[key][1]
        values[:] = [a + b for a, b in zip(values, more, strict=True)]
        self.named[client] += sum(more)

    def retire(self, key):
        """An entry goes to its page's retired one."""
        values = self.entries.pop(key)[1]
        before = self.retired.get(key[0], [0] * len(VALUES))
        self.retired[key[0]] = [a + b for a, b in zip(before, values, strict=True)]

    def total(self):
        """Of all values ever, by value."""
        rows = [values for _, values in self.entries.values()] + list(self.retired.values())
        return [sum(column) for column in zip([0] * len(VALUES), *rows, strict=True)]

    def rows(self):
        """As the spool gets them."""
        for (page, client, topic, api), (since, values) in self.entries.items():
            yield usage(page, "User:a", client, topic, api, since, values)
        for page, values in self.retired.items():
            yield usage(page, OTHER, RETIRED, None, NO_API, 1, values)


def usage(page, principal, client, topic, api, since, values):
    """A usage row of the spool; values in its order."""
    bytes_in, bytes_out, rin, rout, req, err, thr, conn = values
    row = UsageRow(
        page, principal, client, topic, api, since, since, req, err, bytes_in, bytes_out, rin, rout, thr, conn
    )
    return spool_rows.usage(row, APIS)


def spool(directory, boot="b0", clock=None, calls=None, max_bytes=1 << 30, began=NOON):
    """A writer."""
    clock = clock or Clock()
    return Spool(
        directory, boot, 7, began_ms=began, max_bytes=max_bytes, calls=calls, wall=clock.wall, steady=clock.steady
    )


def chance(seed):
    return random.Random(seed)
