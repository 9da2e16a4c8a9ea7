from odradek._ext.storage.log_state cimport LogState


# The result of `load`, owned by one thread. Native code may read `state` as long as the object lives.
cdef class LoadedLog:
    cdef LogState state
    cdef readonly str path
