"""The counter of removals: when it changes, descriptors in the processes' caches may belong to removed files [R 4.9].

A leaf module: a function that renames, unlinks or replaces files of a log calls `note_removed_files` after it has changed the
slot's generation.
"""

# Increment the counter without a wake-up, because each process compares it at least every half second. Any process, any thread.
cdef void note_removed_files() noexcept nogil
