"""Shared words for Python; atomics.h explains them."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint64_t

from odradek._ext.shm.atomics cimport load_acquire_64, shared_u64, store_release_64


cdef class SharedWords:
    """The words of eight bytes in a mapping that several processes share.

    A process that reads a word that another one has stored also sees everything that the other process stored before. A memoryview
    promises no order.

    :param mapping: a writable buffer at an address that is a multiple of 8, for example of `mmap`. :param first: the place of the first
    word in it. :raises ValueError: the mapping has no such word.
    """
    cdef Py_buffer buffer
    cdef shared_u64* words
    cdef Py_ssize_t count

    def __cinit__(self, mapping, Py_ssize_t first=0):
        PyObject_GetBuffer(mapping, &self.buffer, PyBUF_WRITABLE)
        self.count = self.buffer.len // 8 - first
        if first < 0 or self.count <= 0 or <uint64_t>self.buffer.buf % 8:
            raise ValueError(f"the buffer of {self.buffer.len} bytes has no shared words from {first} on")
        self.words = <shared_u64*>self.buffer.buf + first

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, Py_ssize_t place) -> int:
        return load_acquire_64(self.word(place))

    def __setitem__(self, Py_ssize_t place, uint64_t value) -> None:
        store_release_64(self.word(place), value)

    cdef shared_u64* word(self, Py_ssize_t place) except NULL:
        if not 0 <= place < self.count:
            raise IndexError(f"word {place} of {self.count}")
        return self.words + place
