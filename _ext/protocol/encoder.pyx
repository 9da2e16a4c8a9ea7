"""Encoding of messages; see `encoder.pxd`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, PyObject_RichCompareBool, PyObject_TypeCheck, PyTypeObject, Py_EQ
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, int8_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memmove

from odradek._ext.protocol.arrays cimport free_some
from odradek._ext.protocol.cursor cimport (
    STRING_MAX_BYTES,
    WriteBuffer,
    buffer_free,
    buffer_init,
    buffer_reserve,
    uvarint_put,
    write_bytes,
    write_float64,
    write_int16,
    write_int32,
    write_int64,
    write_int8,
    write_length,
    write_string_length,
    write_uvarint,
)
from odradek._ext.protocol.plan cimport (
    ARRAY,
    BOOL,
    BYTES,
    COMPACT_ARRAY,
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
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_False
    const char* PyUnicode_AsUTF8AndSize(PyObject* text, Py_ssize_t* size)
    bint PyUnicode_Check(object)
    bint PyLong_Check(object)
    bint PyFloat_Check(object)
    bint PyList_Check(object)
    bint PyTuple_Check(object)
    long long PyLong_AsLongLongAndOverflow(PyObject* number, int* overflow)


cdef enum:
    SCRATCH_BYTES = 1 << 16             # a larger buffer is freed instead of kept for the next message
    ELEMENTS_A_STEP = 4000              # about a millisecond

cdef WriteBuffer scratch
buffer_init(&scratch)

# A function that cannot encode a value sets `sink.reason` and `sink.refused` and returns. Python exceptions are propagated.

cdef inline void refuse(Output* sink, const char* reason, PyObject* value) noexcept:
    if sink.reason == NULL:
        sink.reason = reason
        sink.refused = value


cdef inline int64_t integer(PyObject* value, int64_t low, int64_t high, Output* sink) noexcept:
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_Check(<object>value):
        refuse(sink, b"not an int", value)
        return 0
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < low or number > high:
        refuse(sink, b"the int is out of range for its type", value)
        return 0
    return number


cdef inline int encode_string(Op* op, bint compact, PyObject* value, Output* sink) except -1:
    cdef Py_ssize_t size = 0
    cdef const char* text
    if value == Py_None:
        if not op.nullable:
            refuse(sink, b"null is not allowed", value)
        write_string_length(&sink.buffer, -1, compact)
        return 0
    if not PyUnicode_Check(<object>value):
        refuse(sink, b"not a str", value)
        return 0
    text = PyUnicode_AsUTF8AndSize(value, &size)
    if text == NULL:
        if not PyErr_ExceptionMatches(UnicodeEncodeError):
            PyErr_Clear()
            raise MemoryError("no memory for a string")
        PyErr_Clear()
        refuse(sink, b"the str cannot be encoded as UTF-8", value)
        return 0
    if size > STRING_MAX_BYTES:
        refuse(sink, b"the string has more than 32767 bytes", value)
        return 0
    write_string_length(&sink.buffer, <int32_t>size, compact)
    write_bytes(&sink.buffer, text, size)
    return 0


cdef int encode_bytes(Op* op, bint compact, PyObject* value, Output* sink) except -1:
    cdef Py_buffer view
    if value == Py_None:
        if not op.nullable:
            refuse(sink, b"null is not allowed", value)
        write_length(&sink.buffer, -1, compact)
    elif PyBytes_CheckExact(<object>value):
        if PyBytes_GET_SIZE(<object>value) > 0x7fffffff:
            refuse(sink, b"the value has more than 2147483647 bytes", NULL)
            return 0
        write_length(&sink.buffer, <int32_t>PyBytes_GET_SIZE(<object>value), compact)
        write_bytes(&sink.buffer, PyBytes_AS_STRING(<object>value), PyBytes_GET_SIZE(<object>value))
    elif not PyObject_CheckBuffer(<object>value):
        refuse(sink, b"not bytes-like", value)
    else:
        PyObject_GetBuffer(<object>value, &view, PyBUF_SIMPLE)
        if view.len > 0x7fffffff:
            refuse(sink, b"the value has more than 2147483647 bytes", NULL)
        else:
            write_length(&sink.buffer, <int32_t>view.len, compact)
            write_bytes(&sink.buffer, view.buf, view.len)
        PyBuffer_Release(&view)
    return 0


cdef int encode_uuid(PyObject* value, Output* sink) except -1:
    cdef Py_buffer view
    if PyBytes_CheckExact(<object>value) and PyBytes_GET_SIZE(<object>value) == 16:
        write_bytes(&sink.buffer, PyBytes_AS_STRING(<object>value), 16)
        return 0
    if not PyObject_CheckBuffer(<object>value):
        refuse(sink, b"not the 16 bytes of a UUID", value)
        return 0
    PyObject_GetBuffer(<object>value, &view, PyBUF_SIMPLE)
    if view.len == 16:
        write_bytes(&sink.buffer, view.buf, 16)
    else:
        refuse(sink, b"not the 16 bytes of a UUID", value)
    PyBuffer_Release(&view)
    return 0


cdef int encode_array(Op* op, bint compact, PyObject* value, Output* sink) except -1:
    cdef Py_ssize_t i, count
    cdef int depth = sink.trail.depth
    values = <object>value              # a reference, because encoding may call Python code
    count = begin_array(op, compact, value, sink)
    for i in range(count):
        sink.trail.indexes[depth] = i
        element = element_of(values, i, sink)
        if sink.reason == NULL:
            encode_value(op, op.element, <PyObject*>element, sink)
        if sink.reason != NULL:
            return 0
    sink.trail.indexes[depth] = -1
    return 0


cdef inline Py_ssize_t begin_array(Op* op, bint compact, PyObject* value, Output* sink) noexcept:
    """Encode the number of an array's elements, and return it; -1 for null and for a value that cannot be encoded."""
    cdef Py_ssize_t count
    if value == Py_None:
        if not op.nullable:
            refuse(sink, b"null is not allowed", value)
        write_length(&sink.buffer, -1, compact)
        return -1
    if PyList_Check(<object>value):
        count = PyList_GET_SIZE(<object>value)
    elif PyTuple_Check(<object>value):
        count = PyTuple_GET_SIZE(<object>value)
    else:
        refuse(sink, b"neither a list nor a tuple", value)
        return -1
    if count > 0x7fffffff:
        refuse(sink, b"the array has more than 2147483647 elements", NULL)
        return -1
    write_length(&sink.buffer, <int32_t>count, compact)
    return count


cdef inline object element_of(object values, Py_ssize_t place, Output* sink):
    if not PyList_Check(values):
        return <object>PyTuple_GET_ITEM(values, place)
    if place >= PyList_GET_SIZE(values):
        refuse(sink, b"the list shrank while it was encoded", <PyObject*>values)
        return None
    return <object>PyList_GET_ITEM(values, place)


cdef int encode_value(Op* op, int code, PyObject* value, Output* sink) except -1:
    cdef WriteBuffer* b = &sink.buffer
    if code == INT32:
        write_int32(b, <int32_t>integer(value, -0x80000000, 0x7fffffff, sink))
    elif code == STRING:
        encode_string(op, False, value, sink)
    elif code == COMPACT_STRING:
        encode_string(op, True, value, sink)
    elif code == INT64:
        write_int64(b, integer(value, INT64_MIN, INT64_MAX, sink))
    elif code == INT16:
        write_int16(b, <int16_t>integer(value, -0x8000, 0x7fff, sink))
    elif code == BOOL:
        if value == Py_True or value == Py_False:
            write_int8(b, value == Py_True)
        else:
            refuse(sink, b"not a bool", value)
    elif code == INT8:
        write_int8(b, <int8_t>integer(value, -0x80, 0x7f, sink))
    elif code == UINT16:
        write_int16(b, <int16_t>integer(value, 0, 0xffff, sink))
    elif code == UINT32:
        write_int32(b, <int32_t>integer(value, 0, 0xffffffff, sink))
    elif code == FLOAT64:
        if PyFloat_Check(<object>value):
            write_float64(b, <object>value)
        else:
            write_float64(b, <double>integer(value, INT64_MIN, INT64_MAX, sink))
    elif code == UUID:
        encode_uuid(value, sink)
    elif code == COMPACT_ARRAY:
        encode_array(op, True, value, sink)
    elif code == ARRAY:
        encode_array(op, False, value, sink)
    elif code == STRUCTURE:
        encode_structure(<Plan>op.plan, <object>value, sink)
    elif code == NULLABLE_STRUCTURE:
        if value == Py_None:
            write_int8(b, -1)
        else:
            write_int8(b, 1)
            encode_structure(<Plan>op.plan, <object>value, sink)
    elif code == BYTES or code == RECORDS:
        encode_bytes(op, False, value, sink)
    else:
        encode_bytes(op, True, value, sink)
    return 0


cdef inline bint is_default(Op* op, PyObject* value) except -1:
    if value == op.default_value:
        return True
    return PyObject_RichCompareBool(<object>value, <object>op.default_value, Py_EQ)


cdef int encode_structure(Plan plan, object message, Output* sink) except -1:
    cdef int i
    begin_structure(plan, message, sink)
    for i in range(plan.count):
        if sink.reason != NULL:
            return 0
        encode_field(&plan.ops[i], message, sink)
    if sink.reason != NULL:
        return 0
    return end_structure(plan, message, sink)


cdef inline int encode_field(Op* op, object message, Output* sink) except -1:
    cdef PyObject* value = (<PyObject**>(<char*><PyObject*>message + op.offset))[0]
    sink.trail.ops[sink.trail.depth] = op
    if value == NULL:
        refuse(sink, b"the attribute was deleted", NULL)
        return 0
    return encode_value(op, op.code, value, sink)


cdef inline int end_structure(Plan plan, object message, Output* sink) except -1:
    if plan.flexible:
        if plan.tagged_count:
            encode_tagged(plan, message, sink)
            if sink.reason != NULL:
                return 0
        else:
            write_int8(&sink.buffer, 0)
    sink.trail.depth -= 1
    return 0


cdef inline int begin_structure(Plan plan, object message, Output* sink) except -1:
    """Check the class of an object, and the fields that its version does not have."""
    cdef Trail* trail = &sink.trail
    cdef char* base = <char*><PyObject*>message
    cdef PyObject* value
    cdef Op* op
    cdef int i
    cdef int depth = trail.depth + 1
    if not PyObject_TypeCheck(message, <PyTypeObject*>plan.layout.cls):
        refuse(sink, b"not an object of the field's class", <PyObject*>message)
        return 0
    trail.depth = depth
    trail.indexes[depth] = -1
    for i in range(plan.absent_count):
        op = &plan.absent[i]
        if op.nullable:
            continue
        trail.ops[depth] = op
        value = (<PyObject**>(base + op.offset))[0]
        if value == NULL or not is_default(op, value):
            refuse(sink, b"this version does not have the field, which has a value other than its default", value)
            return 0
    return 0


cdef int encode_tagged(Plan plan, object message, Output* sink) except -1:
    """Encode the section of tagged fields: the fields that differ from their defaults, by ascending tag."""
    cdef WriteBuffer* b = &sink.buffer
    cdef char* base = <char*><PyObject*>message
    cdef PyObject* value
    cdef Op* op
    cdef uint64_t present = 0
    cdef uint32_t count = 0
    cdef Py_ssize_t start, size
    cdef uint8_t prefix[10]
    cdef int i, prefix_bytes
    for i in range(plan.tagged_count):
        op = &plan.tagged[i]
        sink.trail.ops[sink.trail.depth] = op
        value = (<PyObject**>(base + op.offset))[0]
        if value == NULL:
            refuse(sink, b"the attribute was deleted", NULL)
            return 0
        if not is_default(op, value):
            present |= <uint64_t>1 << i
            count += 1
    write_uvarint(b, count)
    for i in range(plan.tagged_count):
        if not present >> i & 1:
            continue
        op = &plan.tagged[i]
        sink.trail.ops[sink.trail.depth] = op
        write_uvarint(b, op.tag)
        start = b.size
        encode_value(op, op.code, (<PyObject**>(base + op.offset))[0], sink)
        if sink.reason != NULL:
            return 0
        size = b.size - start
        prefix_bytes = uvarint_put(prefix, size)
        if buffer_reserve(b, prefix_bytes) == NULL:
            return 0
        memmove(b.data + start + prefix_bytes, b.data + start, size)
        memmove(b.data + start, prefix, prefix_bytes)
    return 0


cdef int sink_open(Output* sink) except -1:
    global scratch
    sink.buffer = scratch
    buffer_init(&scratch)               # so that an encode within an encode allocates another buffer
    sink.buffer.size = 0
    sink.reason = NULL
    sink.refused = NULL
    sink.trail.depth = -1
    return 0


cdef int sink_close(Output* sink) except -1:
    global scratch
    if scratch.data == NULL and sink.buffer.capacity <= SCRATCH_BYTES and not sink.buffer.error:
        scratch = sink.buffer
    else:
        buffer_free(&sink.buffer)
    return 0


cdef encode_message(Plan plan, object message, Output* sink):
    encode_structure(plan, message, sink)
    check_encoded(plan, sink)


cdef check_encoded(Plan plan, Output* sink):
    """Raise the error with which encoding failed."""
    if sink.reason != NULL:
        raise ProtocolError(
            sink.reason.decode(), message=plan.layout.name, version=plan.version, field=trail_text(&sink.trail),
            position=sink.buffer.size, value=<object>sink.refused if sink.refused != NULL else None,
        )
    if sink.buffer.error:
        raise MemoryError(f"no memory for {plan.layout.name}")


def encode(message not None, int version) -> bytes:
    """Return the bytes of `message` in `version`.

    Raises ProtocolError for a value that the schema does not allow, and for a value other than the default in a field that
    `version` does not have and that is not ignorable.
    """
    cdef Plan plan = plan_of(type(message), version)
    cdef Output sink
    sink_open(&sink)
    try:
        encode_message(plan, message, &sink)
        return PyBytes_FromStringAndSize(<const char*>sink.buffer.data, sink.buffer.size)
    finally:
        sink_close(&sink)


def encode_frame(header not None, int header_version, message not None, int version) -> bytes:
    """Return a frame: the int32 size of the rest, the request or response header, the message. Raises what `encode` raises."""
    cdef Plan header_plan = plan_of(type(header), header_version)
    cdef Plan plan = plan_of(type(message), version)
    cdef Output sink
    cdef Py_ssize_t size
    sink_open(&sink)
    try:
        write_int32(&sink.buffer, 0)
        encode_message(header_plan, header, &sink)
        encode_message(plan, message, &sink)
        size = sink.buffer.size
        sink.buffer.size = 0
        write_int32(&sink.buffer, <int32_t>(size - 4))
        return PyBytes_FromStringAndSize(<const char*>sink.buffer.data, size)
    finally:
        sink_close(&sink)


cdef struct Level:                      # a structure of which a part is encoded, and the array in it that is being encoded
    PyObject* plan                      # borrowed references: `Encoding.kept` has the objects
    PyObject* message
    PyObject* values                    # NULL: no array
    int op
    Py_ssize_t count
    Py_ssize_t next


cdef class Encoding:
    """Encodes a message in steps; used only by `encode_in_steps`."""
    cdef Output sink
    cdef Level levels[MAX_DEPTH]
    cdef Plan plan
    cdef list kept                      # the structures and arrays that are being encoded, from the outermost one

    def __cinit__(self, bytes head not None, message not None, int version):
        buffer_init(&self.sink.buffer)
        self.sink.reason = NULL
        self.sink.refused = NULL
        self.sink.trail.depth = -1
        self.kept = []
        self.plan = plan_of(type(message), version)
        write_bytes(&self.sink.buffer, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
        self.begin(self.plan, message)

    def __dealloc__(self):
        buffer_free(&self.sink.buffer)

    cdef int begin(self, Plan plan, object message) except -1:
        cdef Level* level
        begin_structure(plan, message, &self.sink)
        if self.sink.reason == NULL:
            level = &self.levels[self.sink.trail.depth]
            level.plan, level.message, level.values, level.op = <PyObject*>plan, <PyObject*>message, NULL, 0
            self.kept.append(message)
        return 0

    cdef int field(self, Level* level) except -1:
        """Encode the next field of a structure; of an array only the number of its elements."""
        cdef Op* op = &(<Plan>level.plan).ops[level.op]
        cdef PyObject* value = (<PyObject**>(<char*>level.message + op.offset))[0]
        if value == NULL or op.code != ARRAY and op.code != COMPACT_ARRAY:
            level.op += 1
            return encode_field(op, <object>level.message, &self.sink)
        self.sink.trail.ops[self.sink.trail.depth] = op
        level.count, level.next = begin_array(op, op.code == COMPACT_ARRAY, value, &self.sink), 0
        if level.count < 0:
            level.op += 1
        else:
            level.values = value
            self.kept.append(<object>value)
        return 0

    cdef int element(self, Level* level) except -1:
        """Encode the next element of an array; if it is a structure, only begin with it."""
        cdef Op* op = &(<Plan>level.plan).ops[level.op]
        self.sink.trail.indexes[self.sink.trail.depth] = level.next
        value = element_of(<object>level.values, level.next, &self.sink)
        level.next += 1
        if self.sink.reason != NULL:
            return 0
        if op.element == STRUCTURE:
            return self.begin(<Plan>op.plan, value)
        return encode_value(op, op.element, <PyObject*>value, &self.sink)

    cdef bint step(self, Py_ssize_t elements) except -1:
        """Encode this many elements of arrays more. Returns whether there are more."""
        cdef Output* sink = &self.sink
        cdef Level* level
        free_some(2 * elements)
        while sink.reason == NULL and sink.trail.depth >= 0:
            level = &self.levels[sink.trail.depth]
            if level.values != NULL and level.next == level.count:
                sink.trail.indexes[sink.trail.depth] = -1
                level.values = NULL
                level.op += 1
                self.kept.pop()
            elif level.values != NULL:
                if elements <= 0:
                    return True
                elements -= 1
                self.element(level)
            elif level.op < (<Plan>level.plan).count:
                self.field(level)
            else:
                end_structure(<Plan>level.plan, <object>level.message, sink)
                self.kept.pop()
        check_encoded(self.plan, sink)
        return False

    cdef bytes data(self):
        return PyBytes_FromStringAndSize(<const char*>self.sink.buffer.data, self.sink.buffer.size)


def encode_in_steps(bytes head, message, int version, Py_ssize_t elements=ELEMENTS_A_STEP) -> Generator[None, None, bytes]:
    """A generator that yields after each step, and returns `head` and the bytes of `message`; see `odradek.stepwise`. The message
    must not be changed until then. Raises what `encode` raises.

    :param elements: how many elements of arrays a step encodes. Arrays in tagged fields are encoded in one step.
    """
    encoding = Encoding(head, message, version)
    while (<Encoding>encoding).step(elements):
        yield
    return (<Encoding>encoding).data()
