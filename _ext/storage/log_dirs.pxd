"""The consequences of a failed or full device for a log directory: words in the header, and a wake-up of the cleaner."""


# Evaluate the failure of a file call in a log directory, given as -errno: a failed device takes the directory out of use, a full
# one is noted at once, other errors have no effect. Any process, with or without a slot's lock.
cdef void note_device(int log_dir, int result) noexcept nogil
cdef void log_dir_failed(int log_dir) noexcept nogil
cdef void log_dir_full(int log_dir) noexcept nogil
cdef bint is_device_failure(int result) noexcept nogil
cdef bint is_full(int result) noexcept nogil
