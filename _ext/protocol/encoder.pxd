"""Encoding of messages: the loop that runs a plan over an object. It does no I/O; its state is one scratch buffer per process."""

from cpython.object cimport PyObject

from odradek._ext.protocol.cursor cimport WriteBuffer
from odradek._ext.protocol.plan cimport Plan, Trail


cdef struct Output:
    WriteBuffer buffer
    PyObject* refused                   # the value that cannot be encoded; a borrowed reference
    const char* reason                  # why encoding failed; NULL: it has not failed
    Trail trail


cdef int encode_structure(Plan plan, object message, Output* sink) except -1
