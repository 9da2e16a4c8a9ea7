from odradek._ext.storage.log_state cimport LogState


# What `load` found, owned by one thread. `state` may be read by native code as long as the object lives.
cdef class LoadedLog:
    cdef LogState state
    cdef readonly str path
