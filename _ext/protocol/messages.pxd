"""Messages as Python objects: classes with slots whose places in memory are known, so that C reads and fills them.

Plain objects of one process and one thread; nothing here is shared.
"""

cdef enum DefaultKind:
    DEFAULT_SHARED = 0                  # the default is immutable: every object holds the same one
    DEFAULT_LIST = 1                    # a new empty list each
    DEFAULT_STRUCTURE = 2               # a new structure of defaults each; `default` is one to compare with


cdef class Layout:
    """Where a structure's fields lie in its objects, and what they are unless set."""
    cdef readonly type cls
    cdef readonly str name              # Kafka's name of the message or structure
    cdef readonly tuple fields          # attribute names, in the schema's order
    cdef readonly tuple defaults
    cdef readonly int min_version       # of the message
    cdef readonly int max_version
    cdef readonly object compile        # (version) -> Plan, called once for each version
    cdef list plans                     # by version - min_version; None until first used
    cdef Py_ssize_t* offsets            # of each field in the object, in bytes
    cdef unsigned char* kinds           # DefaultKind of each field
    cdef int count

    cpdef object plan(self, int version)
    cdef object new_default(self, int field)


cdef class Message:
    """What every message and structure derives from; see `odradek.protocol.schema` for how their classes are made."""


cdef Layout layout_of(type cls)
