"""What a single broker at rest weighs: the modules that it imports, and the memory and mappings of each process.

The limits are some 30 % (modules: 12 %) above what was measured with CPython 3.11. A change that needs more names the
reason in its message.
"""

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import Broker
from odradek.testing.process_tree import descendants
from tests.waiting import until
from tests.wire import Wire

ROOT = Path(__file__).parents[2]
PACKAGES = {path.parent.name for path in (ROOT / "_ext").glob("*/*.pyx")} - {"testing"}

MOST_MODULES = 745
MOST_PRIVATE_KB = {
    "supervisor": 4900,
    "coordinator": 10300,
    "worker": 6000,
    "cleaner": 5100,
    "reporter": 6300,
}
"""Private memory that is not a page of a file: what a process has written to since its fork, in KiB. Of the supervisor, what
its children do not share with it."""
MOST_FILE_KB = 8500
"""Pages of files that the supervisor has mapped and not written to, in KiB. After the start it has given back those that only
the imports have used: some 12 MB."""
MOST_MAPPINGS = 400
MOST_SHARED_KB = 550
"""The pages of the shared mapping that a broker without topics uses, in KiB."""

PARTITIONS = 200
MOST_BYTES_OF_A_PARTITION = 2200
"""A slot, and its part of the bitmaps."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {"metrics.listener": "127.0.0.1:0", "usage.spool.max.bytes": 1 << 20, "num.network.threads": 2}
    with Broker(config, environment={"PYTHONPROFILEIMPORTTIME": "1"}) as broker:
        memory = [0]

        def rests() -> bool:
            before, memory[0] = memory[0], sum(private_kb(pid) for pid in descendants(broker.pid))
            return before == memory[0] and all(row["state"] == "serving" for row in broker.status()["processes"])

        until(rests, "the broker rests", every_s=0.7)
        yield broker


def mappings(pid: int) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Permissions, file and sizes in KiB of each mapping of a process."""
    permissions = file = ""
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if match := re.match(r"[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ \S+\s*(.*)", line):
            if permissions:
                yield permissions, file, sizes
            (permissions, file), sizes = match.groups(), {}
        elif line.endswith(" kB"):
            name, _, size = line.partition(":")
            sizes[name] = int(size.split()[0])
    yield permissions, file, sizes


def private_kb(pid: int) -> int:
    return sum(
        sizes["Private_Dirty"]
        for permissions, _, sizes in mappings(pid)
        if permissions.startswith("rw") and permissions.endswith("p")
    )


def file_kb(pid: int) -> int:
    return sum(
        sizes["Rss"] for permissions, file, sizes in mappings(pid) if "w" not in permissions and file.startswith("/")
    )


def mapping_kb(broker: Broker) -> int:
    """The pages of the shared mapping that have been touched, in KiB."""
    (descriptor,) = [
        path for path in Path(f"/proc/{broker.pid}/fd").iterdir() if str(path.readlink()).startswith("/memfd:odradek (")
    ]
    return descriptor.stat().st_blocks // 2


def kinds(broker: Broker) -> dict[int, str]:
    """The kind of each process by its id."""
    return {row["pid"]: row["kind"] for row in broker.status()["processes"]}


def test_each_module_is_imported_by_one_process_and_there_are_not_too_many(broker: Broker) -> None:
    imported = Counter(re.findall(r"^import time:.*\| +(\S+)$", broker.log_file.read_text(), re.M))
    assert imported["odradek.processes.worker.job_thread"] == imported["odradek.metrics.collector"] == 1
    again = [name for name, count in imported.items() if count > 1]
    # The standard library looks for `nt` several times.
    assert [name for name in again if importlib.util.find_spec(name) is not None] == []
    assert len(imported) <= MOST_MODULES


def test_processes_have_little_memory_of_their_own(broker: Broker) -> None:
    measured = {pid: (kind, private_kb(pid)) for pid, kind in kinds(broker).items()}
    assert {kind for kind, _ in measured.values()} == MOST_PRIVATE_KB.keys()
    assert [row for row in measured.values() if row[1] > MOST_PRIVATE_KB[row[0]]] == []


def test_the_supervisor_keeps_no_pages_of_code_that_only_the_start_has_used(broker: Broker) -> None:
    assert file_kb(broker.pid) <= MOST_FILE_KB


def test_processes_have_one_mapping_of_each_kind_of_a_native_package(broker: Broker) -> None:
    for pid in kinds(broker):
        rows = list(mappings(pid))
        assert len(rows) <= MOST_MAPPINGS
        native = Counter((Path(file).parent.name, permissions) for permissions, file, _ in rows if "/_native." in file)
        assert {package for package, _ in native} <= PACKAGES
        assert max(native[package, "r-xp"] for package, _ in native) == 1


def test_a_broker_without_topics_uses_few_pages_of_the_shared_mapping(broker: Broker) -> None:
    assert mapping_kb(broker) <= MOST_SHARED_KB


def test_a_partition_takes_little_of_the_shared_mapping(broker: Broker) -> None:
    """Last, because the broker has topics afterwards."""
    with Wire(broker.host, broker.port) as wire:
        wire.create("first")  # the pages of what is counted for the connection and the request
        before = mapping_kb(broker)
        wire.create("many", PARTITIONS)
    assert (mapping_kb(broker) - before) * 1024 <= MOST_BYTES_OF_A_PARTITION * PARTITIONS
