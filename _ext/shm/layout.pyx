"""Access to the shared mapping in this process; see layout.pxd.

`shared_memory` creates the mapping. Before that the region is empty and its pointers are NULL.
"""

from libc.string cimport memset


cdef Region the_region
memset(&the_region, 0, sizeof(Region))
the_region.memfd = -1
the_region.self = -1


cdef Region* region() noexcept nogil:
    return &the_region
