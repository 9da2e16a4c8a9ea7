"""Compiled plans, which the decoder and the encoder run.

A `Plan` describes a structure in one version: its fields in wire order, its tagged fields, and the fields that this version
does not have. It is immutable after construction. Each process makes its own plans, at their first use.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t

from odradek._ext.protocol.messages cimport Layout


cdef enum Code:                         # types on the wire; COMPACT_ types belong to flexible versions
    BOOL = 0
    INT8 = 1
    INT16 = 2
    UINT16 = 3
    INT32 = 4
    UINT32 = 5
    INT64 = 6
    FLOAT64 = 7
    UUID = 8
    STRING = 9
    COMPACT_STRING = 10
    BYTES = 11
    COMPACT_BYTES = 12
    RECORDS = 13
    COMPACT_RECORDS = 14
    STRUCTURE = 15
    NULLABLE_STRUCTURE = 16
    ARRAY = 17
    COMPACT_ARRAY = 18


cdef enum:
    MAX_DEPTH = 16                      # of nested structures; Kafka's deepest message has 5


cdef struct Op:                         # a field; references to objects are borrowed from the plan
    uint8_t code
    uint8_t element                     # the code of an array's elements
    uint8_t nullable                    # null is allowed; in `absent`: the field is ignorable
    int32_t field                       # index in the layout
    int32_t tag
    Py_ssize_t offset                   # in the object, in bytes
    Py_ssize_t min_bytes                # minimum size of an array's element, at least 1: bounds the array's count
    PyObject* plan                      # of a structure, or of an array's elements
    PyObject* default_value
    PyObject* name


cdef struct Trail:                      # path to the current field, to name it in an error
    const Op* ops[MAX_DEPTH]
    Py_ssize_t indexes[MAX_DEPTH]       # of the current element of an array; -1: not in an array
    int depth


cdef class Plan:
    cdef readonly Layout layout
    cdef readonly int version
    cdef readonly bint flexible
    cdef readonly Py_ssize_t min_bytes  # minimum size of the structure
    cdef readonly int depth             # of nested structures, including this one
    cdef Op* ops                        # fields in wire order
    cdef Op* tagged                     # tagged fields by ascending tag
    cdef Op* absent                     # fields that this version does not have
    cdef int count
    cdef int tagged_count
    cdef int absent_count
    cdef tuple keep                     # the objects to which the ops have borrowed references

    cdef place(self, Op* op, int field)


cdef Plan plan_of(type cls, int version)
cdef str trail_text(Trail* trail)
