"""What clients may do: the decisions of the authorizer, remembered for each client.

A process has one AccessControl for each thread that decides; its Accesses belong to the same thread. A decision about a topic that was
decided before costs a comparison of the version word and a look-up in a dict.
"""

from libc.stdint cimport uint64_t

from odradek._ext.net.connection cimport Connection
from odradek._ext.shm.atomics cimport load_acquire_64, shared_u64


cdef enum:
    ACL_READ = 3
    ACL_WRITE = 4
    ACL_CLUSTER_ACTION = 9
    ACL_TOPIC = 2
    ACL_CLUSTER = 4
    ACL_TRANSACTIONAL_ID = 5


cdef class AccessControl:
    cdef object word                    # memoryview that keeps `version` valid
    cdef shared_u64* version              # word in shared memory: the newest published version of the ACLs
    cdef readonly uint64_t loaded       # the version that `authorizer` has
    cdef readonly object authorizer
    cdef object read
    cdef object note
    cdef object host_of
    cdef object known                   # WeakValueDictionary: (principal, host) -> Access
    cdef public bint verbose            # allowed operations are noted, too
    cdef int load(self) except -1
    cdef Access of_connection(self, Connection connection)


cdef class Access:
    cdef object __weakref__
    cdef readonly AccessControl control
    cdef readonly str principal
    cdef readonly str host
    cdef uint64_t decided               # the version of the remembered decisions
    cdef dict readable                  # topic name -> True, for topics that may be read
    cdef dict writable
    cdef bytes last_written             # the name that was last allowed to be written to; None: none. One object for each topic
    cdef dict rules                     # (operation, resource type, name) -> Rule
    cdef int renew(self) except -1
    cdef object rule(self, int operation, int resource_type, str name)
    cdef bint may_use_topic(self, int operation, bytes name, int api_key) except -1


cdef inline Access access_of(AccessControl control, Connection connection):
    """The rights of a connection's client. In the thread of its data loop."""
    if connection.access is not None and connection.access_principal is connection.principal \
            and (<Access>connection.access).control is control:
        return <Access>connection.access
    return control.of_connection(connection)


cdef inline bint writes_again(Access access, bytes name) noexcept:
    """Whether the client may write to a topic, because it was allowed to last time, by the newest rules. `name` must be the same object.
    The caller counts the decision (AUTHORIZATIONS_ALLOWED).
    """
    cdef AccessControl control = access.control
    return name is access.last_written and access.decided == control.loaded \
        and load_acquire_64(control.version) <= control.loaded and not control.verbose
