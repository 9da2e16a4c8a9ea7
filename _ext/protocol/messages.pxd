"""Messages as Python objects: classes with slots at known offsets in memory, so that C code reads and fills them.

Plain objects of one process and one thread; nothing in this module is shared.
"""

cdef enum DefaultKind:
    DEFAULT_SHARED = 0                  # the default is immutable: all objects share it
    DEFAULT_LIST = 1                    # a new empty list for each object
    DEFAULT_STRUCTURE = 2               # a new structure of defaults for each object; `defaults` has another one for comparisons


cdef class Layout:
    """The offsets of a structure's fields in its objects, and the fields' defaults."""
    cdef readonly type cls
    cdef readonly str name              # Kafka's name of the message or structure
    cdef readonly tuple fields          # attribute names, in the schema's order
    cdef readonly tuple defaults
    cdef readonly int min_version       # of the message
    cdef readonly int max_version
    cdef readonly object compile        # (version) -> Plan, called once for each version
    cdef list plans                     # Plans by version - min_version; None until the first use
    cdef Py_ssize_t* offsets            # of each field in the object, in bytes
    cdef unsigned char* kinds           # DefaultKind of each field
    cdef int count

    cpdef object plan(self, int version)
    cdef object new_default(self, int field)


cdef class Message:
    """Base class of every message and structure; `odradek.protocol.schema` makes their classes."""


cdef Layout layout_of(type cls)
