"""The bytes of a Python object, for native code that reads them; see byte_view.pxd."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer


@cython.final
@cython.freelist(8)
cdef class ByteView:
    """:param data: bytes, bytearray, memoryview, or any other object with a contiguous buffer.
    :param writable: native code is going to write into the buffer.
    :raises TypeError: the object has no buffer. :raises BufferError: the buffer is not contiguous, or read-only and `writable` is set.
    """

    def __cinit__(self, data not None, bint writable=False):
        PyObject_GetBuffer(data, &self.buffer, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True
        self.data = <uint8_t*>self.buffer.buf
        self.size = self.buffer.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)
