"""Messages from bytes: the loop that runs a plan over a bounded cursor. Sans-I/O and stateless."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

from broker._ext.cursor cimport Cursor
from broker._ext.plan cimport Plan, Trail


cdef struct Input:
    Cursor cursor
    const uint8_t* start
    PyObject* owner                     # the buffer object: record fields are views of it
    PyObject* view                      # a memoryview of it once one was needed; owned
    Trail trail


cdef object decode_structure(Plan plan, Input* source)
