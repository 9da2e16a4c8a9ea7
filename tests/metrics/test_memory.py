"""What a reporter leaves to its successor, however it ends."""

import os

import pytest

from odradek.metrics.memory import AREAS, Memory


@pytest.fixture
def fd():
    made = os.memfd_create("test")
    yield made
    os.close(made)


def test_the_last_thing_saved_is_found(fd):
    first = Memory(fd)
    assert first.load() is None
    for data in (b"one", b"a longer two", b"", b"3" * 100_000):
        first.save(data)
        assert Memory(fd).load() == data


def test_the_next_process_continues_the_state(fd):
    Memory(fd).save(b"one")
    second = Memory(fd)
    assert second.load() == b"one"
    second.save(b"two")
    assert Memory(fd).load() == b"two"


def test_a_save_that_was_cut_off_leaves_the_one_before(fd):
    one = Memory(fd)
    one.save(b"whole")
    one.save(b"half written")
    area = AREAS[0]
    whole = os.pread(fd, 64, area)
    for cut in range(len(whole.rstrip(b"\0"))):
        os.pwrite(fd, bytes([whole[cut] ^ 0xFF]), area + cut)
        assert Memory(fd).load() == b"whole", cut
        os.pwrite(fd, whole, area)
    assert Memory(fd).load() == b"half written"


def test_without_memory_nothing_is_kept():
    memory = Memory(-1)
    memory.save(b"x")
    assert memory.load() is None
