"""Messages from bytes: the loop that runs a plan over a bounded cursor. Sans-I/O and stateless."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from odradek._ext.protocol.cursor cimport Cursor
from odradek._ext.protocol.plan cimport Plan, Trail


cdef enum:
    MAX_ELEMENTS = 1 << 22              # of all arrays of a message together, where the caller says nothing else


cdef struct Input:
    Cursor cursor
    const uint8_t* start
    PyObject* owner                     # the buffer object: record fields are views of it
    PyObject* view                      # a memoryview of it once one was needed; owned
    int64_t elements                    # of all arrays so far
    int64_t max_elements
    Trail trail


cdef object decode_structure(Plan plan, Input* source)
