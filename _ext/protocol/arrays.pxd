"""Arrays of messages with very many elements: the garbage collector does not examine them, and they are freed in steps.

A list of 140,000 messages takes 15 ms to be examined, and as long to be freed, at its end in one step. An array that was made here
gives its elements away when it is freed. So many are freed then as a small array has; each step of a decoding and an encoding frees
twice as many as it makes; and each process that decodes frees some twice a second. So those that wait are never more than the
elements of the large messages that existed at a time, and a limit holds whatever clients do.

Any thread; Python's lock protects the elements that wait. In each process.
"""

cdef object array_of(Py_ssize_t count)
cdef int free_some(Py_ssize_t elements) except -1
