"""See `arrays.pxd`."""

cimport cython
from cpython.list cimport PyList_New
from cpython.object cimport PyObject


cdef extern from "Python.h":
    ctypedef struct PyListObject:
        PyObject** ob_item
        Py_ssize_t allocated

    void PyObject_GC_UnTrack(object)
    void Py_SET_SIZE(PyObject*, Py_ssize_t)
    int PyList_SetSlice(object, Py_ssize_t, Py_ssize_t, PyObject*) except -1

cdef enum:
    AT_ONCE = 4                         # an array with so many elements is freed as any list
    A_TICK = 10_000
    FOR_ONE = 1000                      # when an array is not used any more
    PORTION = 200                       # of one array, until those of its elements are counted
    MOST = 300_000                      # that wait: those of a request and its response

cdef list waiting = []                  # lists of elements to be freed
cdef Py_ssize_t total = 0               # of these elements
cdef Py_ssize_t left = 0                # that `free_some` may still free
cdef bint freeing = False               # `free_some` is called: arrays in elements that it frees only wait


@cython.final
cdef class Array(list):
    """A list of elements of a message. Equal to a list with the same elements, and pickled as one."""

    def __dealloc__(self):
        global total, left
        cdef Py_ssize_t count = len(self)
        if count <= AT_ONCE:
            left -= count
            return
        waiting.append(moved(self, PyList_New(0)))
        total += count
        free_some(FOR_ONE)
        while total > MOST and not freeing:
            free_some(total - MOST)

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        return list, (list(self),)


cdef object moved(object source, object target):
    """Move all elements of a list to an empty one, which is returned and not tracked by the garbage collector."""
    cdef PyListObject* from_ = <PyListObject*><PyObject*>source
    cdef PyListObject* to = <PyListObject*><PyObject*>target
    cdef Py_ssize_t count = len(<list>source)
    to.ob_item, to.allocated = from_.ob_item, from_.allocated
    from_.ob_item, from_.allocated = NULL, 0
    Py_SET_SIZE(<PyObject*>source, 0)
    Py_SET_SIZE(<PyObject*>target, count)
    PyObject_GC_UnTrack(target)
    return target


cdef object array_of(Py_ssize_t count):
    """An array with room for so many elements, all of which must be set with PyList_SET_ITEM."""
    return moved(PyList_New(count), Array.__new__(Array))


def new_array() -> list[Any]:
    """Return an empty list for very many elements of a message, see `arrays.pxd`."""
    values = Array.__new__(Array)
    PyObject_GC_UnTrack(values)
    return values


cdef int free_some(Py_ssize_t elements) except -1:
    global total, left, freeing
    cdef list last
    cdef Py_ssize_t count, freed
    if freeing:
        return 0
    freeing, left = True, elements
    try:
        while left > 0 and len(waiting):
            last = waiting[len(waiting) - 1]
            count = len(last)
            freed = min(count, left, PORTION)
            if freed < count:
                PyList_SetSlice(last, count - freed, count, NULL)
            else:
                waiting.pop()
                last = None
            left -= freed
            total -= freed
    finally:
        freeing = False
    return 0


def free_waiting(Py_ssize_t elements=A_TICK) -> int:
    """Free so many elements of arrays that are not used any more. Return how many wait to be freed."""
    free_some(elements)
    return total
