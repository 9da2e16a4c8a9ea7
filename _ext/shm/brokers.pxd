"""The brokers of the cluster in the shared memory: which are alive, and where they listen; see brokers.pyx."""

from libc.stdint cimport int32_t, int64_t


# Whether a broker is registered and alive, as the controller last published. False for every broker without a cluster.
cdef bint broker_alive(int32_t broker_id) noexcept nogil

# The epoch of a broker's registration; -1 if it is not known, or the broker is not alive.
cdef int64_t epoch_of_broker(int32_t broker_id) noexcept nogil

# The epoch of this broker's registration; -1 if it is not registered, or if its registration has ended.
cdef int64_t own_epoch() noexcept nogil
