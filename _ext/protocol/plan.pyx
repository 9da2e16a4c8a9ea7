"""Compiled plans; see `plan.pxd`."""

from cpython.exc cimport PyErr_NoMemory
from cpython.object cimport PyObject
from libc.stdlib cimport free, malloc

from odradek._ext.protocol.messages cimport Layout, layout_of

CODES = {
    "bool": BOOL,
    "int8": INT8,
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "uint32": UINT32,
    "int64": INT64,
    "float64": FLOAT64,
    "uuid": UUID,
    "string": STRING,
    "compact string": COMPACT_STRING,
    "bytes": BYTES,
    "compact bytes": COMPACT_BYTES,
    "records": RECORDS,
    "compact records": COMPACT_RECORDS,
    "structure": STRUCTURE,
    "nullable structure": NULLABLE_STRUCTURE,
    "array": ARRAY,
    "compact array": COMPACT_ARRAY,
}

cdef Py_ssize_t[19] MIN_BYTES = [1, 1, 2, 2, 4, 4, 8, 8, 16, 2, 1, 4, 1, 4, 1, 0, 1, 4, 1]


cdef class Plan:
    """`Plan(layout, version, flexible, fields, absent)`; `odradek.protocol.plans` compiles it.

    `fields` are tuples (index in the layout, code, code of elements, nullable, tag or -1, plan of the structure or
    None); fields with a tag come last, by ascending tag. `absent` are tuples (index in the layout, ignorable).
    """

    def __cinit__(self, Layout layout, int version, bint flexible, list fields, list absent):
        cdef Op* op
        cdef int i
        self.layout = layout
        self.version = version
        self.flexible = flexible
        self.keep = (fields, absent)
        self.depth = 1
        self.min_bytes = 1 if flexible else 0
        self.ops = <Op*>malloc((len(fields) + 1) * sizeof(Op))
        self.absent = <Op*>malloc((len(absent) + 1) * sizeof(Op))
        if self.ops == NULL or self.absent == NULL:
            PyErr_NoMemory()
        for i, (field, code, element, nullable, tag, plan) in enumerate(fields):
            op = &self.ops[i]
            op.code = code
            op.element = element
            op.nullable = nullable
            op.tag = tag
            op.plan = <PyObject*>plan if plan is not None else NULL
            if plan is not None:
                self.depth = max(self.depth, (<Plan?>plan).depth + 1)
            op.min_bytes = 1
            if code in (ARRAY, COMPACT_ARRAY):
                op.min_bytes = max(1, (<Plan?>plan).min_bytes if element == STRUCTURE else MIN_BYTES[element])
            self.place(op, field)
            if tag < 0:
                self.count += 1
                self.min_bytes += (<Plan?>plan).min_bytes if code == STRUCTURE else MIN_BYTES[code]
            else:
                self.tagged_count += 1
        self.tagged = self.ops + self.count
        if self.tagged_count > 64:
            raise ValueError(f"{layout.name} has more than 64 tagged fields")
        if self.depth > MAX_DEPTH:
            raise ValueError(f"{layout.name} has more than {MAX_DEPTH} levels of nested structures")
        for i, (field, ignorable) in enumerate(absent):
            op = &self.absent[i]
            op.nullable = ignorable
            self.place(op, field)
            self.absent_count += 1

    cdef place(self, Op* op, int field):
        op.field = field
        op.offset = self.layout.offsets[field]
        op.name = <PyObject*>self.layout.fields[field]
        op.default_value = <PyObject*>self.layout.defaults[field]

    def __dealloc__(self):
        free(self.ops)
        free(self.absent)


cdef Plan plan_of(type cls, int version):
    return <Plan?>layout_of(cls).plan(version)


cdef str trail_text(Trail* trail):
    cdef int i
    parts = []
    for i in range(min(trail.depth + 1, <int>MAX_DEPTH)):
        if trail.ops[i] == NULL:
            break
        index = "" if trail.indexes[i] < 0 else f"[{trail.indexes[i]}]"
        parts.append(f"{<object>trail.ops[i].name}{index}")
    return ".".join(parts) or None
