"""Reading directories: the parts of <dirent.h> that the native code uses."""


cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass
    struct dirent:
        char d_name[256]
    DIR* fdopendir(int fd)
    dirent* readdir(DIR*)
    int closedir(DIR*)
    void rewinddir(DIR*)
    int dirfd(DIR*)
