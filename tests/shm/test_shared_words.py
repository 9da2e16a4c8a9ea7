"""Shared words of Python: two processes see each other's values, and a wrong place is refused."""

import mmap
import os

import pytest

from odradek._ext.shm.shared_words import SharedWords
from tests.children import end_of, fork


def test_another_process_sees_a_stored_word() -> None:
    mapping = mmap.mmap(-1, 4096)
    words = SharedWords(mapping)
    later = SharedWords(mapping, 10)

    def child() -> None:
        words[10] = 2**64 - 1

    pid = fork(child)
    assert end_of(pid) == 0
    assert words[10] == later[0] == 2**64 - 1
    assert len(words) == 512
    assert len(later) == 502


@pytest.mark.parametrize("place", [-1, 512])
def test_a_place_outside_is_refused(place: int) -> None:
    words = SharedWords(mmap.mmap(-1, 4096))
    with pytest.raises(IndexError, match=f"word {place} of 512"):
        words[place]
    with pytest.raises(IndexError, match=f"word {place} of 512"):
        words[place] = 1


def test_a_buffer_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="no shared words from 512 on"):
        SharedWords(mmap.mmap(-1, 4096), 512)
    with pytest.raises((BufferError, TypeError)):
        SharedWords(bytes(64))


def test_a_value_must_fit() -> None:
    words = SharedWords(mmap.mmap(-1, os.sysconf("SC_PAGE_SIZE")))
    with pytest.raises(OverflowError):
        words[0] = -1
