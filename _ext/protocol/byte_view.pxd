"""The bytes of a Python object, for native code that reads them. Typed memoryviews do the same at 25 times the compile time."""

from libc.stdint cimport int64_t, uint8_t


cdef class ByteView:
    """Holds the buffer of an object while it lives. One thread uses it; the object must not change meanwhile."""
    cdef Py_buffer buffer
    cdef bint held
    cdef uint8_t* data            # NULL or anything where size is 0; written only if the view was asked for as writable
    cdef int64_t size             # bytes
