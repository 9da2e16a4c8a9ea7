"""The bytes of a Python object, for native code that reads or fills them. A module with typed memoryviews compiles 25 times as long."""

from libc.stdint cimport int64_t, uint8_t


cdef class ByteView:
    """Holds an object's buffer as long as the view exists. One thread uses it; the object must not change meanwhile."""
    cdef Py_buffer buffer
    cdef bint held
    cdef uint8_t* data            # undefined if size is 0; native code writes to it only if the view was made with `writable`
    cdef int64_t size             # bytes
