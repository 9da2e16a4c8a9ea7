"""What clients may do: the decisions of the authorizer, remembered for each client.

A process has one AccessControl for each thread that decides; its Accesses belong to the same thread. A decision about a topic that was
decided before costs a comparison of the version word and a look-up in a dict.
"""

from libc.stdint cimport uint64_t

from odradek._ext.net.connection cimport Connection


cdef enum:
    ACL_READ = 3
    ACL_WRITE = 4
    ACL_CLUSTER_ACTION = 9
    ACL_TOPIC = 2
    ACL_CLUSTER = 4
    ACL_TRANSACTIONAL_ID = 5


cdef class AccessControl:
    cdef object word                    # memoryview that keeps `version` valid
    cdef const uint64_t* version        # word in shared memory: the newest published version of the ACLs
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
    cdef dict rules                     # (operation, resource type, name) -> Rule
    cdef int renew(self) except -1
    cdef object rule(self, int operation, int resource_type, str name)
    cdef bint may_use_topic(self, int operation, bytes name, int api_key) except -1
