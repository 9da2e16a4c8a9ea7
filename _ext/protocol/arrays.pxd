"""Arrays of messages with very many elements: the garbage collector does not examine them, and they are freed in steps.

A list of 140,000 messages takes 15 ms to be examined, and as long to be freed, at its end in one step. An array that was made here
puts its elements on a list when it is not used any more, and steps free them: some when any array is not used any more, each step of a
decoding and an encoding twice as many as it makes, and each process that decodes some twice a second. If more wait than a large
request and its response have, those beyond that are freed at once.

Any thread; Python's lock protects the elements that wait. In each process.
"""

cdef object array_of(Py_ssize_t count)
cdef int free_some(Py_ssize_t elements) except -1
