"""Messages as Python objects; see `messages.pxd`."""

from cpython.dict cimport PyDict_GetItem
from cpython.exc cimport PyErr_NoMemory
from cpython.object cimport PyObject, PyObject_RichCompareBool, PyTypeObject, Py_EQ
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdlib cimport free, malloc


cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object)

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset

    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member

    PyTypeObject PyMemberDescr_Type
    PyTypeObject* Py_TYPE(object)


class ProtocolError(ValueError):
    """Bytes that cannot be decoded as a message of the given version, or an object that cannot be encoded.

    `message` is Kafka's name of the message ("FetchRequest"), `version` an int, `field` the path of the field with the
    indexes of arrays ("topics[2].partitions[0].fetch_offset"), or None, `position` the offset in the buffer at which reading or
    writing failed, `value` the refused value (a length, an int, an object), or None, and `reason` the reason.
    """

    def __init__(self, reason, *, message=None, version=None, field=None, position=None, value=None):
        self.reason = reason
        self.message = message
        self.version = version
        self.field = field
        self.position = position
        self.value = value
        where = f"{message or 'message'}"
        if version is not None:
            where += f" v{version}"
        if field:
            where += f", {field}"
        if position is not None:
            where += f", at byte {position}"
        super().__init__(f"{where}: {reason}" + (f" (value {shortened(value)})" if value is not None else ""))


cdef str shortened(value):
    cdef str text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


cdef class Layout:
    """The layout of a class of messages or structures.

    `Layout(cls, name, fields, defaults, kinds, min_version, max_version, compile)`; the fields are slots of `cls`.
    """

    def __cinit__(
        self, type cls, str name, tuple fields, tuple defaults, tuple kinds, int min_version, int max_version, compile
    ):
        self.cls = cls
        self.name = name
        self.fields = fields
        self.defaults = defaults
        self.min_version = min_version
        self.max_version = max_version
        self.compile = compile
        self.count = len(fields)
        self.plans = [None] * (max_version - min_version + 1)
        self.offsets = <Py_ssize_t*>malloc((self.count + 1) * sizeof(Py_ssize_t))
        self.kinds = <unsigned char*>malloc(self.count + 1)
        if self.offsets == NULL or self.kinds == NULL:
            PyErr_NoMemory()
        for i, field in enumerate(fields):
            slot = cls.__dict__[field]
            if Py_TYPE(slot) != &PyMemberDescr_Type:
                raise TypeError(f"{name}.{field} is not a slot")
            self.offsets[i] = (<PyMemberDescrObject*><PyObject*>slot).d_member.offset
            self.kinds[i] = kinds[i]

    def __dealloc__(self):
        free(self.offsets)
        free(self.kinds)

    cpdef object plan(self, int version):
        """Return the plan of `version`, compiled at its first use. Raises ProtocolError for an unsupported version."""
        if version < self.min_version or version > self.max_version:
            raise ProtocolError(
                f"unsupported version, supported are {self.min_version} to {self.max_version}", message=self.name, version=version
            )
        plan = self.plans[version - self.min_version]
        if plan is None:
            plan = self.compile(version)
            self.plans[version - self.min_version] = plan
        return plan

    cdef object new_default(self, int field):
        cdef int kind = self.kinds[field]
        if kind == DEFAULT_SHARED:
            return self.defaults[field]
        if kind == DEFAULT_LIST:
            values = []
            PyObject_GC_UnTrack(values)
            return values
        return type(self.defaults[field])()


cdef Layout layout_of(type cls):
    return <Layout?>cls._layout


cdef inline void put(object message, Py_ssize_t offset, object value) noexcept:
    cdef PyObject** slot = <PyObject**>(<char*><PyObject*>message + offset)
    cdef PyObject* old = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject*>value
    Py_XDECREF(old)


def rebuild(cls, dict fields) -> Any:
    """Return a message of class `cls` with these fields; `copy` uses it."""
    return cls(**fields)


cdef class Message:
    """Base class of every message and structure.

    Keyword arguments set fields; other fields have the schema's defaults. Raises TypeError for a name that is not a field.
    Messages are equal if their classes and fields are equal; they are not hashable.

    A message is a tree without cycles, so Python's garbage collector does not track it: a large request or response has several
    100,000 objects, and one collection would examine all of them in one step.
    """

    def __init__(self, **fields):
        cdef Layout layout = layout_of(type(self))
        cdef PyObject* value
        cdef Py_ssize_t left = len(fields)
        cdef int i
        for i in range(layout.count):
            value = PyDict_GetItem(fields, <object>PyTuple_GET_ITEM(layout.fields, i)) if left else NULL
            if value != NULL:
                left -= 1
                put(self, layout.offsets[i], <object>value)
            else:
                put(self, layout.offsets[i], layout.new_default(i))
        PyObject_GC_UnTrack(self)
        if left:
            unknown = ", ".join(sorted(set(fields).difference(layout.fields)))
            raise TypeError(f"{layout.name} has no field {unknown}")

    def __eq__(self, other) -> bool:
        cdef Layout layout
        cdef PyObject* mine
        cdef PyObject* theirs
        cdef int i
        if type(self) is not type(other):
            return NotImplemented
        layout = layout_of(type(self))
        for i in range(layout.count):
            mine = (<PyObject**>(<char*><PyObject*>self + layout.offsets[i]))[0]
            theirs = (<PyObject**>(<char*><PyObject*>other + layout.offsets[i]))[0]
            if mine == NULL or theirs == NULL:
                if mine != theirs:
                    return False
            elif not PyObject_RichCompareBool(<object>mine, <object>theirs, Py_EQ):
                return False
        return True

    __hash__ = None

    def __reduce__(self) -> tuple[Any, tuple[type, dict[str, Any]]]:
        """For the `copy` module. Messages cannot be pickled, because the classes of inner structures cannot be imported by name."""
        cdef Layout layout = layout_of(type(self))
        return rebuild, (type(self), {name: getattr(self, name) for name in layout.fields})

    def __repr__(self) -> str:
        cdef Layout layout = layout_of(type(self))
        return f"{layout.name}({', '.join(f'{name}={getattr(self, name, None)!r}' for name in layout.fields)})"
