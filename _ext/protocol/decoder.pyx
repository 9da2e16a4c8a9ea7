"""Decoding of messages; see `decoder.pxd`.

Input may be hostile: an array's count is checked against the remaining bytes before its list is made, and the lengths of strings and
bytes against the end; the schema bounds the depth. A message takes up to about 55 times the memory of its bytes (an empty list of 60
bytes for one byte). The caller limits the number of elements of all its arrays together: each API has a limit for its requests
(`broker/odradek/api/table.py`).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, int8_t, uint32_t, uint8_t

from odradek._ext.protocol.arrays cimport array_of, free_some
from odradek._ext.protocol.cursor cimport (
    CURSOR_ELEMENTS,
    CURSOR_LENGTH,
    CURSOR_MARKER,
    CURSOR_NULL,
    CURSOR_OK,
    CURSOR_TAGGED,
    CURSOR_TRUNCATED,
    CURSOR_UTF8,
    CURSOR_VARINT,
    Cursor,
    cursor_fail,
    cursor_init,
    cursor_left,
    read_bytes,
    read_float64,
    read_int16,
    read_int32,
    read_int64,
    read_int8,
    read_length,
    read_string_length,
    read_uint16,
    read_uint32,
    read_uuid,
    read_uvarint,
)
from odradek._ext.protocol.messages cimport DEFAULT_SHARED
from odradek._ext.protocol.plan cimport (
    ARRAY,
    BOOL,
    BYTES,
    COMPACT_ARRAY,
    COMPACT_BYTES,
    COMPACT_STRING,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    INT8,
    MAX_DEPTH,
    NULLABLE_STRUCTURE,
    RECORDS,
    STRING,
    STRUCTURE,
    UINT16,
    UINT32,
    UUID,
    Op,
    Plan,
    Trail,
    plan_of,
    trail_text,
)

from odradek._ext.protocol.messages import ProtocolError

cdef extern from "Python.h":
    ctypedef struct TypeObject "PyTypeObject":
        object (*tp_alloc)(type cls, Py_ssize_t items)
    PyObject* PyUnicode_DecodeUTF8(const char* data, Py_ssize_t size, const char* errors)
    int PyGC_Disable()
    int PyGC_Enable()
    void PyObject_GC_UnTrack(object)


cdef enum:
    LARGE_MESSAGE = 65536               # bytes
    ELEMENTS_A_STEP = 4000              # about a millisecond
    BYTES_A_STEP = 1 << 20


cdef dict CURSOR_REASONS = {
    CURSOR_TRUNCATED: "the value is longer than the remaining bytes",
    CURSOR_VARINT: "the varint has more bits than its type",
    CURSOR_LENGTH: "invalid length",
    CURSOR_NULL: "null is not allowed",
    CURSOR_UTF8: "the string is not UTF-8",
    CURSOR_TAGGED: "the size of the tagged field differs from the size of its value",
    CURSOR_ELEMENTS: "its arrays have more elements than are allowed",
    CURSOR_MARKER: "the marker of a nullable structure is neither -1 nor 1",
}


cdef refuse_input(Plan plan, Input* source):
    cdef Cursor* c = &source.cursor
    reason = CURSOR_REASONS[c.error]
    if c.error == CURSOR_ELEMENTS:
        reason = f"its arrays have more than {source.max_elements} elements"
    raise ProtocolError(
        reason, message=plan.layout.name, version=plan.version, field=trail_text(&source.trail),
        position=c.ptr - source.start, value=None if c.error in (CURSOR_NULL, CURSOR_UTF8) else c.refused,
    )


cdef object decode_string(Op* op, bint compact, Input* source):
    cdef Cursor* c = &source.cursor
    cdef int64_t length = read_string_length(c, compact)
    cdef PyObject* text
    if length < 0:
        if c.error == CURSOR_OK and not op.nullable:
            cursor_fail(c, CURSOR_NULL, 0)
        return None
    text = PyUnicode_DecodeUTF8(<const char*>c.ptr, length, NULL)
    if text == NULL:
        if not PyErr_ExceptionMatches(UnicodeDecodeError):
            PyErr_Clear()
            raise MemoryError(f"no memory for a string of {length} bytes")
        PyErr_Clear()
        cursor_fail(c, CURSOR_UTF8, length)
        return None
    c.ptr += length
    value = <object>text
    Py_XDECREF(text)
    return value


cdef object decode_bytes(Op* op, bint compact, bint view, Input* source):
    cdef Cursor* c = &source.cursor
    cdef int64_t length = read_length(c, compact)
    cdef const uint8_t* at
    if length < 0:
        if c.error == CURSOR_OK and not op.nullable:
            cursor_fail(c, CURSOR_NULL, 0)
        return None
    at = read_bytes(c, length)
    if at == NULL:
        return None
    if not view:
        return PyBytes_FromStringAndSize(<const char*>at, length)
    if source.view == NULL:
        whole = memoryview(<object>source.owner)
        if whole.format != "B" or whole.ndim != 1:
            whole = whole.cast("B")
        Py_INCREF(whole)
        source.view = <PyObject*>whole
    return (<object>source.view)[at - source.start:at - source.start + length]


cdef int64_t read_count(Op* op, bint compact, Input* source) noexcept:
    """Return the number of an array's elements; -1 for null, or with the cursor's error set."""
    cdef Cursor* c = &source.cursor
    cdef const uint8_t* at = c.ptr
    cdef int64_t count = read_length(c, compact)
    if count < 0:
        if c.error == CURSOR_OK and not op.nullable:
            cursor_fail(c, CURSOR_NULL, 0)
        return -1
    if count > cursor_left(c) // op.min_bytes:
        c.ptr = at
        cursor_fail(c, CURSOR_TRUNCATED, count)
        return -1
    source.elements += count
    if source.elements > source.max_elements:
        c.ptr = at
        cursor_fail(c, CURSOR_ELEMENTS, count)
        return -1
    return count


cdef object decode_array(Op* op, bint compact, Input* source):
    cdef Cursor* c = &source.cursor
    cdef int64_t count = read_count(op, compact, source)
    cdef int64_t i
    cdef int depth = source.trail.depth
    if count < 0:
        return None
    values = PyList_New(count)
    PyObject_GC_UnTrack(values)
    for i in range(count):
        source.trail.indexes[depth] = i
        value = decode_value(op, op.element, source)
        if c.error != CURSOR_OK:
            return None
        Py_INCREF(value)
        PyList_SET_ITEM(values, i, value)
    source.trail.indexes[depth] = -1
    return values


cdef object decode_value(Op* op, int code, Input* source):
    """Decode a value of type `code`. On failure return None, with the cursor's error set."""
    cdef Cursor* c = &source.cursor
    cdef const uint8_t* at
    cdef int8_t marker
    if code == INT32:
        return read_int32(c)
    elif code == STRING:
        return decode_string(op, False, source)
    elif code == COMPACT_STRING:
        return decode_string(op, True, source)
    elif code == INT64:
        return read_int64(c)
    elif code == INT16:
        return read_int16(c)
    elif code == BOOL:
        return read_int8(c) != 0
    elif code == INT8:
        return read_int8(c)
    elif code == UINT16:
        return read_uint16(c)
    elif code == UINT32:
        return read_uint32(c)
    elif code == FLOAT64:
        return read_float64(c)
    elif code == UUID:
        at = read_uuid(c)
        return PyBytes_FromStringAndSize(<const char*>at, 16) if at != NULL else None
    elif code == COMPACT_ARRAY:
        return decode_array(op, True, source)
    elif code == ARRAY:
        return decode_array(op, False, source)
    elif code == STRUCTURE:
        return decode_structure(<Plan>op.plan, source)
    elif code == NULLABLE_STRUCTURE:
        marker = read_int8(c)
        if marker == 1:
            return decode_structure(<Plan>op.plan, source)
        if marker != -1 and c.error == CURSOR_OK:
            c.ptr -= 1
            cursor_fail(c, CURSOR_MARKER, marker)
        return None
    elif code == BYTES:
        return decode_bytes(op, False, False, source)
    elif code == COMPACT_BYTES:
        return decode_bytes(op, True, False, source)
    elif code == RECORDS:
        return decode_bytes(op, False, True, source)
    return decode_bytes(op, True, True, source)


cdef inline void put(object message, Py_ssize_t offset, object value) noexcept:
    cdef PyObject** slot = <PyObject**>(<char*><PyObject*>message + offset)
    cdef PyObject* old = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject*>value
    Py_XDECREF(old)


cdef inline object default_of(Plan plan, Op* op):
    if plan.layout.kinds[op.field] == DEFAULT_SHARED:
        return <object>op.default_value
    return plan.layout.new_default(op.field)


cdef object decode_structure(Plan plan, Input* source):
    """Decode a structure into a new object. On failure return None, with the cursor's error set."""
    cdef Cursor* c = &source.cursor
    cdef Trail* trail = &source.trail
    cdef Op* op
    cdef int i, depth
    message = begin_structure(plan, source)
    depth = trail.depth
    for i in range(plan.count):
        op = &plan.ops[i]
        trail.ops[depth] = op
        value = decode_value(op, op.code, source)
        if c.error != CURSOR_OK:
            return None
        put(message, op.offset, value)
    end_structure(plan, message, source)
    return message if c.error == CURSOR_OK else None


cdef inline object begin_structure(Plan plan, Input* source):
    """Return a new object without fields."""
    cdef Trail* trail = &source.trail
    trail.depth += 1
    trail.indexes[trail.depth] = -1
    message = (<TypeObject*>plan.layout.cls).tp_alloc(plan.layout.cls, 0)
    PyObject_GC_UnTrack(message)
    return message


cdef inline int end_structure(Plan plan, object message, Input* source) except -1:
    """Complete an object after its fields in wire order. On failure the cursor's error is set."""
    cdef Cursor* c = &source.cursor
    cdef Trail* trail = &source.trail
    cdef Op* op
    cdef int i
    for i in range(plan.absent_count):
        op = &plan.absent[i]
        put(message, op.offset, default_of(plan, op))
    for i in range(plan.tagged_count):
        op = &plan.tagged[i]
        put(message, op.offset, default_of(plan, op))
    trail.ops[trail.depth] = NULL
    if plan.flexible:
        if c.ptr < c.end and c.ptr[0] == 0:
            c.ptr += 1
        else:
            decode_tagged(plan, message, source)
            if c.error != CURSOR_OK:
                return 0
    trail.depth -= 1
    return 0


cdef int decode_tagged(Plan plan, object message, Input* source) except -1:
    """Decode the section of tagged fields. Unknown tags are skipped; if a tag occurs twice, the last value counts."""
    cdef Cursor* c = &source.cursor
    cdef int depth = source.trail.depth
    cdef uint32_t left = read_uvarint(c)
    cdef uint32_t tag, size
    cdef const uint8_t* end = c.end
    cdef const uint8_t* at
    cdef Op* op
    cdef int i
    while left > 0 and c.error == CURSOR_OK:
        left -= 1
        tag = read_uvarint(c)
        size = read_uvarint(c)
        op = NULL
        for i in range(plan.tagged_count):
            if plan.tagged[i].tag == <int64_t>tag:
                op = &plan.tagged[i]
        at = c.ptr
        if read_bytes(c, size) == NULL or c.error != CURSOR_OK:
            return 0
        if op == NULL:
            continue
        c.end = c.ptr
        c.ptr = at
        source.trail.ops[depth] = op
        value = decode_value(op, op.code, source)
        if c.error == CURSOR_OK and c.ptr != c.end:
            cursor_fail(c, CURSOR_TAGGED, size)
        if c.error != CURSOR_OK:
            return 0
        c.end = end
        put(message, op.offset, value)
        source.trail.ops[depth] = NULL
    return 0


def decode(type cls not None, int version, buffer, Py_ssize_t offset=0, int64_t max_elements=MAX_ELEMENTS) -> tuple[Any, int]:
    """Decode the message of class `cls` in `version` at byte `offset` of `buffer`. Return it, and the offset of its end.

    :param max_elements: limit of the elements of all arrays of the message together.

    `buffer` is bytes-like and contiguous. Fields of type `records` are memoryviews of it, all other fields are copied.
    Raises ProtocolError if the bytes are not such a message. Bytes after the message are not checked.
    """
    cdef Plan plan = plan_of(cls, version)
    cdef Input source
    cdef Py_buffer view
    cdef bint collecting = False
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    source.view = NULL
    source.owner = <PyObject*>buffer
    source.elements = 0
    source.max_elements = max_elements
    source.trail.depth = -1
    source.start = <const uint8_t*>view.buf
    try:
        if offset < 0 or offset > view.len:
            raise ValueError(f"offset {offset} is outside of a buffer of {view.len} bytes")
        cursor_init(&source.cursor, source.start + offset, view.len - offset)
        if view.len - offset > LARGE_MESSAGE:       # else several garbage collections would traverse the new objects
            collecting = PyGC_Disable()
        message = decode_structure(plan, &source)
        if source.cursor.error != CURSOR_OK:
            refuse_input(plan, &source)
        return message, source.cursor.ptr - source.start
    finally:
        if collecting:
            PyGC_Enable()
        Py_XDECREF(source.view)
        PyBuffer_Release(&view)


cdef struct Level:                      # a structure of which a part is decoded, and the array in it that is being decoded
    PyObject* plan                      # references are borrowed: from the plan, and from the message, which owns its parts
    PyObject* message
    PyObject* values                    # NULL: no array
    int op
    int64_t count
    int64_t next


cdef class Decoding:
    """Decodes a message in steps. Only `decode_in_steps` uses it, which does not show the message before its end."""
    cdef Input source
    cdef Py_buffer view
    cdef bint viewed
    cdef Level levels[MAX_DEPTH]
    cdef object owner
    cdef Plan plan
    cdef readonly object message

    def __cinit__(self, type cls not None, int version, buffer, Py_ssize_t offset, int64_t max_elements):
        self.plan = plan_of(cls, version)
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.viewed = True
        self.owner = buffer
        if offset < 0 or offset > self.view.len:
            raise ValueError(f"offset {offset} is outside of a buffer of {self.view.len} bytes")
        self.source.view = NULL
        self.source.owner = <PyObject*>buffer
        self.source.elements = 0
        self.source.max_elements = max_elements
        self.source.trail.depth = -1
        self.source.start = <const uint8_t*>self.view.buf
        cursor_init(&self.source.cursor, self.source.start + offset, self.view.len - offset)
        self.message = begin_structure(self.plan, &self.source)
        self.begin(self.plan, self.message)

    def __dealloc__(self):
        Py_XDECREF(self.source.view)
        if self.viewed:
            PyBuffer_Release(&self.view)

    cdef void begin(self, Plan plan, object message) noexcept:
        cdef Level* level = &self.levels[self.source.trail.depth]
        level.plan, level.message, level.values, level.op = <PyObject*>plan, <PyObject*>message, NULL, 0

    cdef int element(self, Level* level) except -1:
        """Decode the next element of an array; if it is a structure, only begin with it."""
        cdef Op* op = &(<Plan>level.plan).ops[level.op]
        self.source.trail.indexes[self.source.trail.depth] = level.next
        if op.element == STRUCTURE:
            value = begin_structure(<Plan>op.plan, &self.source)
            self.begin(<Plan>op.plan, value)
        else:
            value = decode_value(op, op.element, &self.source)
        Py_INCREF(value)
        PyList_SET_ITEM(<list>level.values, level.next, value)
        level.next += 1
        return 0

    cdef int field(self, Level* level) except -1:
        """Decode the next field of a structure; of an array only the number of its elements."""
        cdef Op* op = &(<Plan>level.plan).ops[level.op]
        self.source.trail.ops[self.source.trail.depth] = op
        if op.code == ARRAY or op.code == COMPACT_ARRAY:
            level.count, level.next = read_count(op, op.code == COMPACT_ARRAY, &self.source), 0
            value = array_of(level.count) if level.count >= 0 else None
            if level.count >= 0:
                level.values = <PyObject*>value
            else:
                level.op += 1
        else:
            value = decode_value(op, op.code, &self.source)
            level.op += 1
        put(<object>level.message, op.offset, value)
        return 0

    cdef bint step(self, int64_t elements) except -1:
        """Decode this many elements of arrays more. Returns whether there are more."""
        cdef Input* source = &self.source
        cdef Level* level
        cdef const uint8_t* until = source.cursor.ptr + BYTES_A_STEP
        cdef bint collecting
        free_some(2 * elements)
        collecting = PyGC_Disable()
        try:
            while source.trail.depth >= 0:
                level = &self.levels[source.trail.depth]
                if level.values != NULL and level.next == level.count:
                    source.trail.indexes[source.trail.depth] = -1
                    level.values = NULL
                    level.op += 1
                elif level.values != NULL:
                    if elements <= 0 or source.cursor.ptr > until:
                        return True
                    elements -= 1
                    self.element(level)
                elif level.op < (<Plan>level.plan).count:
                    self.field(level)
                else:
                    end_structure(<Plan>level.plan, <object>level.message, source)
                if source.cursor.error != CURSOR_OK:
                    refuse_input(self.plan, source)
            return False
        finally:
            if collecting:
                PyGC_Enable()


def decode_in_steps(
    type cls not None, int version, buffer, Py_ssize_t offset=0, int64_t max_elements=MAX_ELEMENTS,
    int64_t elements=ELEMENTS_A_STEP,
) -> Generator[None, None, Any]:
    """As `decode`, but a generator that yields after each step, and returns the message; see `odradek.stepwise`.

    :param elements: how many elements of arrays a step decodes. Arrays in tagged fields are decoded in one step.
    """
    decoding = Decoding(cls, version, buffer, offset, max_elements)
    while (<Decoding>decoding).step(elements):
        yield
    return decoding.message
