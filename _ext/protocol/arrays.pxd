"""Arrays of messages with very many elements: the garbage collector does not examine them, and they are freed in steps.

A list of 140,000 messages takes 15 ms to be examined, and as long to be freed, at its end in one step. When an array
that was made here is not used any more, it puts its elements on a list, and they are freed in steps:

- When any array is not used any more, some elements are freed.
- Each step of a decoding or an encoding frees twice as many elements as it makes.
- Each process that decodes frees some elements twice a second.

The list keeps as many elements as a large request and its response have. Elements beyond that are freed at once.

Any thread; Python's lock protects the elements that wait. In each process.
"""

cdef object array_of(Py_ssize_t count)
cdef int free_some(Py_ssize_t elements) except -1
