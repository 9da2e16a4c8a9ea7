"""Bytes from messages: the loop that runs a plan over an object. Sans-I/O; one scratch buffer a process."""

from cpython.object cimport PyObject

from odradek._ext.protocol.cursor cimport WriteBuffer
from odradek._ext.protocol.plan cimport Plan, Trail


cdef struct Output:
    WriteBuffer buffer
    PyObject* refused                   # the value an error is about; borrowed
    const char* reason                  # set: encoding failed
    Trail trail


cdef int encode_structure(Plan plan, object message, Output* sink) except -1
