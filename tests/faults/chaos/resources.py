"""Samples what a broker's processes use, and decides whether that grew: descriptors, memory, disk."""

import os
import statistics
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from odradek.testing import Broker
from odradek.testing.process_tree import descendants, pss_bytes

SMALLEST_SAMPLE = 12
"""Fewer samples than this cannot be split into an early and a late part."""


@dataclass(frozen=True)
class Sample:
    """The resource usage of all processes of the broker at one moment."""

    descriptors: int
    deleted_bytes: int
    """Bytes of files that were deleted and are still open."""
    pss_bytes: int
    disk_bytes: int
    files: int
    processes: int


ALLOWED_GROWTH = {
    "descriptors": (1.25, 64),
    "deleted_bytes": (1.5, 64 << 20),
    "pss_bytes": (1.15, 24 << 20),
    "disk_bytes": (1.3, 48 << 20),
    "files": (1.3, 200),
}
"""By field: the late median may be the early one times the factor, or larger by the constant, whichever is more."""


def sample(broker: Broker) -> Sample:
    """What the broker uses now; a process that ends meanwhile counts nothing."""
    processes = descendants(broker.pid)
    descriptors = deleted = 0
    inodes: set[tuple[int, int]] = set()
    for pid in processes:
        try:
            entries = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
        descriptors += len(entries)
        for entry in entries:
            try:
                if str(entry.readlink()).endswith(" (deleted)") and str(broker.data_dir) in str(entry.readlink()):
                    found = entry.stat()
                    if (found.st_dev, found.st_ino) not in inodes:
                        inodes.add((found.st_dev, found.st_ino))
                        deleted += found.st_blocks * 512
            except OSError:
                continue
    disk = os.statvfs(broker.data_dir)
    files = sum(len(names) for _, _, names in os.walk(broker.data_dir))
    used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    return Sample(descriptors, deleted, pss_bytes(processes), used, files, len(processes))


def medians(samples: list[Sample]) -> Sample:
    """The median of each field."""
    return Sample(*(int(statistics.median(column)) for column in zip(*map(astuple, samples), strict=True)))


def growth(samples: list[Sample]) -> list[str]:
    """What grew from the second fifth of the samples to the last fifth; a line each, empty if nothing did."""
    if len(samples) < SMALLEST_SAMPLE:
        return []
    fifth = len(samples) // 5
    early, late = medians(samples[fifth : 2 * fifth]), medians(samples[-fifth:])
    found = []
    for name in (field.name for field in fields(Sample)):
        if name in ALLOWED_GROWTH:
            factor, constant = ALLOWED_GROWTH[name]
            before, after = getattr(early, name), getattr(late, name)
            if after > max(before * factor, before + constant):
                found.append(f"{name} grew from {before} to {after}")
    return found
