"""Decoding of messages: the loop that runs a plan over a bounded cursor. It does no I/O and has no state."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from odradek._ext.protocol.cursor cimport Cursor
from odradek._ext.protocol.plan cimport Plan, Trail


cdef enum:
    MAX_ELEMENTS = 1 << 22              # default limit of the elements of all arrays of a message together


cdef struct Input:
    Cursor cursor
    const uint8_t* start
    PyObject* owner                     # the buffer object: record fields are views of it
    PyObject* view                      # a memoryview of it, made when first needed; a strong reference
    int64_t elements                    # number of elements of all arrays so far
    int64_t max_elements
    Trail trail


cdef object decode_structure(Plan plan, Input* source)
