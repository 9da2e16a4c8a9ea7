"""What a process publishes in a memfd, whenever its writer dies and whenever others read."""

import os

import pytest

from odradek.shm.published_pages import HEAD_BYTES, PublishedPages
from tests.children import fork, kill_child

FIRST, SECOND, THIRD = b"first", b"the second, which is longer", b"a third"


class Killed(Exception):
    """The process dies here."""


@pytest.fixture
def fd():
    made = os.memfd_create("test")
    yield made
    os.close(made)


def stop_after(monkeypatch, count):
    """Let the writer die after `count` more bytes. Returns the sizes of its stores."""
    stores, pwrite = [], os.pwrite

    def store(descriptor, data, position):
        nonlocal count
        stores.append(len(data))
        written = pwrite(descriptor, bytes(data)[:count], position) if count else 0
        count -= written
        if written < len(data):
            raise Killed
        return written

    monkeypatch.setattr(os, "pwrite", store)
    return stores


def test_the_last_published_data_are_found(fd):
    pages = PublishedPages(fd)
    assert pages.read() is None
    for number, data in enumerate((FIRST, SECOND, b"", b"3" * 100_000), 1):
        assert pages.publish(data) == number
        assert pages.read() == PublishedPages(fd).read() == (number, data)


def test_a_successor_continues_the_versions(fd):
    PublishedPages(fd).publish(FIRST)
    successor = PublishedPages(fd)
    assert successor.publish(SECOND) == 2
    assert PublishedPages(fd).read() == (2, SECOND)


def test_data_that_do_not_fit_are_refused_and_change_nothing(fd):
    pages = PublishedPages(fd, start=4096, copy_bytes=100)
    pages.publish(FIRST)
    pages.publish(SECOND)
    with pytest.raises(ValueError, match="81 bytes do not fit; the limit is 80 bytes"):
        pages.publish(b"x" * (100 - HEAD_BYTES + 1))
    assert pages.read() == (2, SECOND)
    assert pages.publish(b"x" * (100 - HEAD_BYTES)) == 3
    assert pages.publish(b"y" * (100 - HEAD_BYTES)) == 4
    assert os.fstat(fd).st_size == 4096 + 200


@pytest.mark.parametrize("written", range(2 * HEAD_BYTES + len(THIRD) + 1))
def test_a_writer_that_dies_between_two_bytes_leaves_the_old_data_or_the_new(fd, monkeypatch, written):
    pages = PublishedPages(fd)
    pages.publish(FIRST)
    pages.publish(SECOND)
    whole = 2 * HEAD_BYTES + len(THIRD)
    with monkeypatch.context() as patch:
        stores = stop_after(patch, written)
        if written < whole:
            with pytest.raises(Killed):
                pages.publish(THIRD)
        else:
            pages.publish(THIRD)
            assert stores == [HEAD_BYTES, len(THIRD), HEAD_BYTES]
    expected = (3, THIRD) if written == whole else (2, SECOND)
    assert PublishedPages(fd).read() == expected
    successor = PublishedPages(fd)
    assert successor.publish(b"after the death") == expected[0] + 1
    assert successor.read() == (expected[0] + 1, b"after the death")


@pytest.mark.parametrize("moment", range(5))
@pytest.mark.parametrize("writes", range(1, 5))
@pytest.mark.parametrize("unfinished", range(0, 2 * HEAD_BYTES + len(THIRD), 3))
def test_a_reader_during_writes_gets_data_that_were_published(fd, monkeypatch, moment, writes, unfinished):
    pages = PublishedPages(fd)
    published = {pages.publish(data): data for data in (FIRST, SECOND)}
    pread, reads = os.pread, 0

    def read(descriptor, count, position):
        nonlocal reads
        reads += 1
        if reads == moment + 1:  # writes that end here, and one that is under way
            with monkeypatch.context() as patch:
                patch.setattr(os, "pread", pread)
                for number in range(writes):
                    data = b"%d" % number * 11
                    published[pages.publish(data)] = data
                stop_after(patch, unfinished)
                with pytest.raises(Killed):
                    pages.publish(THIRD)
        return pread(descriptor, count, position)

    monkeypatch.setattr(os, "pread", read)
    version, data = PublishedPages(fd).read()
    assert published[version] == data
    assert version >= 2


def test_a_process_reads_while_another_writes_and_is_killed(fd):
    written = PublishedPages(fd)
    written.publish(b"0" * 5000)

    def write() -> None:
        while True:
            for digit in b"123456789":
                written.publish(bytes([digit]) * (5000 + digit))

    writer = fork(write)
    try:
        reader, last = PublishedPages(fd), 0
        while last < 2000:
            version, data = reader.read()
            assert len(set(data)) == 1
            assert len(data) == 5000 + (data[0] if version > 1 else 0)
            assert version >= last
            last = version
    finally:
        kill_child(writer)
    version, data = reader.read()
    assert version >= last
    assert len(set(data)) == 1
    assert written.publish(FIRST) == version + 1
    assert reader.read() == (version + 1, FIRST)
