"""The counter of removals: tells every process that descriptors which it has cached may be of files that were removed [R 4.9].

A leaf: whoever renames, unlinks or replaces files of a log calls `note_removed_files` after it has changed the slot's generation.
"""

# Increment the counter. Wakes nobody: each process compares the counter at least every half second. Any process, any thread.
cdef void note_removed_files() noexcept nogil
