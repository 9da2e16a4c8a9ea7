"""Kernel settings of the calling process; loads no other module of the broker."""

from cpython.object cimport Py_TYPE, PyObject
from libc.signal cimport SIG_DFL, SIG_IGN
from libc.string cimport memcmp, memset
from posix.signal cimport SIG_SETMASK, sigaction, sigaction_t, sigaddset, sigemptyset, sigprocmask, sigset_t
from posix.unistd cimport _SC_PAGESIZE, getppid, sysconf


cdef extern from "<sys/prctl.h>" nogil:
    int prctl(int option, ...)
    int PR_SET_PDEATHSIG
    int PR_SET_NAME


cdef extern from "<sys/mman.h>" nogil:
    int madvise(void* start, size_t size, int advice)
    int MADV_DONTNEED


cdef extern from "<link.h>" nogil:
    int PT_LOAD, PT_DYNAMIC, DT_NULL, DT_TEXTREL, DT_FLAGS, DF_TEXTREL, PF_W

    ctypedef struct ProgramHeader "ElfW(Phdr)":
        unsigned int p_type
        unsigned int p_flags
        size_t p_vaddr
        size_t p_memsz

    ctypedef union DynamicValue:
        size_t d_val

    ctypedef struct DynamicEntry "ElfW(Dyn)":
        Py_ssize_t d_tag
        DynamicValue d_un

    ctypedef struct LoadedObject "struct dl_phdr_info":
        size_t dlpi_addr
        const ProgramHeader* dlpi_phdr
        int dlpi_phnum

    int dl_iterate_phdr(int (*callback)(LoadedObject*, size_t, void*) noexcept nogil, void* data)


def die_with_parent(int number, long parent) -> bool:
    """Make the kernel send this process the signal `number` when its parent ends. Returns False if the parent has ended
    already.

    Source: prctl(2), PR_SET_PDEATHSIG.
    """
    prctl(PR_SET_PDEATHSIG, <unsigned long>number)
    return getppid() == parent


def set_name(bytes name not None) -> None:
    """Set the name that `ps` and `top` show for this process (its first 15 bytes). Source: prctl(2), PR_SET_NAME."""
    prctl(PR_SET_NAME, <const char*>name)


def set_signals(default not None, ignored not None, mask not None) -> None:
    """Reset the signals `default` to their default action, ignore the signals `ignored`, and block only those of `mask`.

    For a child after a fork, before it installs handlers. This is one native call, because the standard library's functions run
    so much code that each child would get private copies of many memory pages. Raises OSError.
    """
    cdef sigaction_t act
    cdef sigset_t blocked
    memset(&act, 0, sizeof(act))
    act.sa_handler = SIG_DFL
    for number in default:
        if sigaction(number, &act, NULL) != 0:
            raise OSError(f"cannot reset signal {int(number)} to its default action")
    act.sa_handler = SIG_IGN
    for number in ignored:
        if sigaction(number, &act, NULL) != 0:
            raise OSError(f"cannot ignore signal {int(number)}")
    sigemptyset(&blocked)
    for number in mask:
        sigaddset(&blocked, number)
    if sigprocmask(SIG_SETMASK, &blocked, NULL) != 0:
        raise OSError("cannot set the signal mask")


def release_start_pages(loop=None) -> None:
    """Give back the pages that only the start of this process has used. To be called when it serves.

    Unmaps the pages of all loaded objects that nobody has written to: code, symbol tables, other constant data. Most of what the
    imports and the start have read is not needed again. A page that is still used is mapped again at the next access, without
    reading the file while the page is in the page cache.

    :param loop: the event loop of the calling thread. uvloop's loop contains a buffer of 250 KiB, which it clears although only its
        own streams use it: its pages that are still zero are given back.
    """
    cdef size_t page = <size_t>sysconf(_SC_PAGESIZE)
    cdef size_t at, end
    dl_iterate_phdr(&_release, NULL)
    if loop is not None:
        end = <size_t><PyObject*>loop + <size_t>Py_TYPE(loop).tp_basicsize
        at = (<size_t><PyObject*>loop + page - 1) & ~(page - 1)
        while at + page <= end:
            # This thread has Python's lock, without which nobody writes to the object. A new page is zero, too.
            if (<char*>at)[0] == 0 and memcmp(<char*>at, <char*>at + 1, page - 1) == 0:
                madvise(<void*>at, page, MADV_DONTNEED)
            at += page


cdef int _release(LoadedObject* loaded, size_t size, void* data) noexcept nogil:
    cdef const ProgramHeader* header
    cdef size_t start
    cdef int number
    if _has_text_relocations(loaded):
        return 0  # the dynamic linker has written to its code
    for number in range(loaded.dlpi_phnum):
        header = &loaded.dlpi_phdr[number]
        if header.p_type == PT_LOAD and not header.p_flags & PF_W:
            start = (loaded.dlpi_addr + header.p_vaddr) & ~(<size_t>sysconf(_SC_PAGESIZE) - 1)
            madvise(<void*>start, loaded.dlpi_addr + header.p_vaddr + header.p_memsz - start, MADV_DONTNEED)
    return 0


cdef bint _has_text_relocations(const LoadedObject* loaded) noexcept nogil:
    cdef const DynamicEntry* entry
    cdef int number
    for number in range(loaded.dlpi_phnum):
        if loaded.dlpi_phdr[number].p_type == PT_DYNAMIC:
            entry = <const DynamicEntry*>(loaded.dlpi_addr + loaded.dlpi_phdr[number].p_vaddr)
            while entry.d_tag != DT_NULL:
                if entry.d_tag == DT_TEXTREL or (entry.d_tag == DT_FLAGS and entry.d_un.d_val & DF_TEXTREL):
                    return True
                entry += 1
    return False
