"""The shared mapping as the supervisor and its children use it: its creation and the process table.

The supervisor creates the mapping before the first fork; every child inherits it and its descriptors. The layout is in
``layout.pxd``, the rules are in ``broker/odradek/shm/README.md``.
"""

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.mman cimport MAP_FAILED, MAP_NORESERVE, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
from posix.unistd cimport close, ftruncate, getpid, read

from odradek._ext.shm.arena cimport ARENA_UNIT_BYTES
from odradek._ext.shm.atomics cimport (
    clear_words,
    compare_swap_64,
    count_64,
    exchange_32,
    exchange_64,
    fetch_add_64,
    fetch_and_64,
    load_acquire_32,
    load_acquire_64,
    load_relaxed_64,
    shared_i32,
    shared_u64,
    store_relaxed_64,
    store_relaxed_i32,
    store_relaxed_i64,
    store_release_32,
    store_release_64,
)
from odradek._ext.shm.client_quotas cimport quota_table_bytes
from odradek._ext.shm.c_library cimport madvise, this_thread
from odradek._ext.shm.clock cimport monotonic_ms, now_ms
from odradek._ext.shm.layout cimport (
    ARENA_ORDERS,
    DEAD,
    DISK_FULL,
    LANES,
    MAX_LOG_DIRS,
    MAX_PROCESSES,
    PRODUCER_EVENTS,
    SERVING,
    STARTING,
    Header,
    LoadingDir,
    Process,
    Region,
    region,
)
from odradek._ext.shm.meter_pages cimport clear_gauges, meter_page, meter_page_bytes
from odradek._ext.shm.owners cimport PRODUCER_OWNERS
from odradek._ext.shm.slot cimport MAX_FOLLOWERS, SLOT_LOADING, SLOT_OFFLINE, SLOT_ONLINE, Follower, Slot, SlotViews, slot_at
from odradek._ext.shm.waking cimport clear_ready, take_ready, wake_after_death, wake_process

import os

from odradek._ext.shm.layout import DiskState, LeaveState, ProcessKind, ProcessState, ProducerEvent


cdef extern from "<sys/mman.h>" nogil:
    int MADV_DONTDUMP
    int memfd_create(const char* name, unsigned int flags)
    unsigned int MFD_CLOEXEC

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int initial, int flags)
    int EFD_NONBLOCK
    int EFD_CLOEXEC


cdef enum:
    READY_AT_ONCE = 256
    LARGEST_PAGE = 65536          # of aarch64: freed runs of the arena consist of whole pages of memory [R 2.2]

MAGIC = 0x4B45_4441_5244_4F01
DEFAULT_ARENA_BYTES = 256 << 20

cdef Region* the_region = region()


cdef uint64_t align(uint64_t n, uint64_t to) noexcept nogil:
    return (n + to - 1) // to * to


cdef struct Parts:                # of the mapping: sizes, and positions in bytes from its beginning
    uint64_t max_slots
    uint64_t arena_units
    uint64_t bitmap_bytes
    uint64_t processes_at
    uint64_t bitmaps_at
    uint64_t slots_at
    uint64_t views_at
    uint64_t followers_at
    uint64_t arena_blocks_at
    uint64_t owners_at
    uint64_t arena_at
    uint64_t meters_at
    uint64_t total_bytes


cdef void lay_out(uint64_t max_slots, uint64_t arena_bytes, Parts* parts) noexcept nogil:
    """Place the parts one behind the other, each at the beginning of a page of memory."""
    cdef uint64_t words, groups
    max_slots = align(max(max_slots, <uint64_t>64), 64)
    words = max_slots // 64
    groups = (words + 63) // 64
    parts.max_slots = max_slots
    parts.arena_units = min(max(arena_bytes // ARENA_UNIT_BYTES, <uint64_t>64), (<uint64_t>1 << (ARENA_ORDERS - 1)) - 1)
    parts.bitmap_bytes = align((words + groups) * 8, 64)
    parts.processes_at = align(sizeof(Header), 4096)
    parts.bitmaps_at = align(parts.processes_at + sizeof(Process) * MAX_PROCESSES, 4096)
    parts.slots_at = align(parts.bitmaps_at + parts.bitmap_bytes * MAX_PROCESSES, 4096)
    parts.views_at = align(parts.slots_at + sizeof(Slot) * max_slots, 4096)
    parts.followers_at = align(parts.views_at + sizeof(SlotViews) * max_slots, 4096)
    parts.arena_blocks_at = align(parts.followers_at + sizeof(Follower) * MAX_FOLLOWERS * max_slots, 4096)
    parts.owners_at = align(parts.arena_blocks_at + parts.arena_units * 8, 4096)
    parts.arena_at = align(parts.owners_at + <uint64_t>PRODUCER_OWNERS * 4, LARGEST_PAGE)
    parts.meters_at = align(parts.arena_at + parts.arena_units * ARENA_UNIT_BYTES, 4096)
    parts.total_bytes = align(parts.meters_at + meter_page_bytes() * MAX_PROCESSES, 4096) + quota_table_bytes()


class ProcessInfo:
    """A snapshot of one row of the process table."""

    __slots__ = (
        "index", "pid", "kind", "state", "incarnation", "started_ms", "progress", "connections",
        "connections_accepted", "kept_bytes", "locked_slot", "locked_since_ms", "confirmed_version", "request",
    )

    index: int
    pid: int
    kind: ProcessKind
    state: ProcessState
    incarnation: int
    started_ms: int
    progress: int
    connections: int
    connections_accepted: int
    kept_bytes: int
    locked_slot: int
    locked_since_ms: int
    confirmed_version: int
    request: dict | None

    def __repr__(self) -> str:
        return "ProcessInfo(" + ", ".join(f"{n}={getattr(self, n)!r}" for n in self.__slots__) + ")"


cdef class SharedMemory:
    """The shared mapping. A process has one.

    :param max_slots: most partitions that the broker can hold at once.
    :param arena_bytes: most bytes for the state of idempotent producers of all partitions (sparse memory).
    :param look_at: map a running broker's memory read-only instead: the path of its memfd below /proc.
    :raises OSError: if the kernel refuses the memfd, the mapping or event descriptors. :raises ValueError: if `look_at` is not
    a broker's memory.
    """

    def __cinit__(self, uint64_t max_slots=65536, uint64_t arena_bytes=DEFAULT_ARENA_BYTES, look_at=None):
        cdef Parts parts
        if the_region.base != NULL:
            self._unmap()
        if look_at is not None:
            self._look_at(look_at)
        else:
            lay_out(max_slots, arena_bytes, &parts)
            self._create(&parts)

    cdef _create(self, const Parts* parts):
        cdef void* mapped
        cdef int fd, i
        cdef Header* header
        fd = memfd_create(b"odradek", MFD_CLOEXEC)
        if fd < 0:
            raise OSError(errno, "memfd_create failed")
        if ftruncate(fd, parts.total_bytes) != 0:
            raise OSError(errno, "ftruncate of the shared memory failed")
        mapped = mmap(NULL, parts.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0)
        if mapped == MAP_FAILED:
            raise OSError(errno, f"mapping {parts.total_bytes} bytes of shared memory failed")
        # A core would contain the whole mapping, more than a GiB, and the supervisor cannot restart a process before the kernel has
        # written it. Every child inherits this advice with the mapping. Without it, only cores are larger: a sandbox may forbid it.
        madvise(mapped, parts.total_bytes, MADV_DONTDUMP)
        header = <Header*>mapped
        the_region.base = <char*>mapped
        the_region.header = header
        the_region.memfd = fd
        header.total_bytes = parts.total_bytes
        header.max_slots = parts.max_slots
        header.boot_id = int.from_bytes(os.urandom(8), "big") >> 1
        header.hash_key[0] = int.from_bytes(os.urandom(8), "big")
        header.hash_key[1] = int.from_bytes(os.urandom(8), "big")
        store_relaxed_64(&header.metadata_version, 1)
        header.processes_at = parts.processes_at
        header.bitmaps_at = parts.bitmaps_at
        header.bitmap_bytes = parts.bitmap_bytes
        header.slots_at = parts.slots_at
        header.views_at = parts.views_at
        header.followers_at = parts.followers_at
        header.arena_blocks_at = parts.arena_blocks_at
        header.owners_at = parts.owners_at
        header.arena_at = parts.arena_at
        header.arena_units = parts.arena_units
        header.meters_at = parts.meters_at
        header.broker_id = -1
        for i in range(MAX_LOG_DIRS):
            header.log_dir_fds[i] = -1
            store_relaxed_i64(&header.disk_free_bytes[i], -1)
            store_relaxed_i64(&header.disk_total_bytes[i], -1)
        self._find_parts()
        header.magic = MAGIC

    cdef _find_parts(self):
        cdef Header* header = the_region.header
        the_region.processes = <Process*>(the_region.base + header.processes_at)
        the_region.slots = the_region.base + header.slots_at
        the_region.views = the_region.base + header.views_at
        the_region.followers = the_region.base + header.followers_at
        the_region.arena_blocks = <shared_u64*>(the_region.base + header.arena_blocks_at)
        the_region.owner_counts = <shared_i32*>(the_region.base + header.owners_at)
        the_region.arena = the_region.base + header.arena_at
        the_region.self = -1

    cdef _look_at(self, path):
        cdef int fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        cdef uint64_t size = os.fstat(fd).st_size
        cdef void* mapped
        if size < sizeof(Header):
            os.close(fd)
            raise ValueError(f"{path} is not the shared memory of a broker of this version")
        mapped = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0)
        if mapped == MAP_FAILED:
            os.close(fd)
            raise OSError(errno, f"mapping {path} failed")
        if (<Header*>mapped).magic != MAGIC or (<Header*>mapped).total_bytes != size:
            munmap(mapped, size)
            os.close(fd)
            raise ValueError(f"{path} is not the shared memory of a broker of this version")
        the_region.base = <char*>mapped
        the_region.header = <Header*>mapped
        the_region.memfd = fd
        the_region.foreign = True
        self._find_parts()

    cdef _unmap(self):
        cdef int i
        for i in range(0 if the_region.foreign else the_region.header.process_count):
            close(the_region.processes[i].event_fd)
        munmap(the_region.base, the_region.header.total_bytes)
        close(the_region.memfd)
        memset(the_region, 0, sizeof(Region))
        the_region.memfd = -1
        the_region.self = -1

    # -- set-up by the supervisor ---------------------------------------------------------------------------------

    def add_process(self, kind) -> int:
        """Add a place to the process table for a child of `kind` (ProcessKind), with its event descriptor. Returns its index.
        """
        cdef int index = the_region.header.process_count
        if index >= MAX_PROCESSES:
            raise ValueError(f"more than {MAX_PROCESSES} processes: reduce num.network.threads")
        cdef Process* p = &the_region.processes[index]
        p.kind = kind
        p.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if p.event_fd < 0:
            raise OSError(errno, "eventfd failed")
        store_relaxed_i32(&the_region.header.process_count, index + 1)
        return index

    def add_log_dir(self, int fd) -> int:
        """Register the descriptor of an open log directory, which all children inherit. Returns the directory's index."""
        cdef int index = the_region.header.log_dir_count
        if index >= MAX_LOG_DIRS:
            raise ValueError(f"more than {MAX_LOG_DIRS} log directories")
        the_region.header.log_dir_fds[index] = fd
        store_relaxed_i32(&the_region.header.log_dir_count, index + 1)
        return index

    def process_starts(self, int index) -> None:
        """Prepare place `index` for a fork by the supervisor: a new incarnation, whose process stores its pid [R 7]."""
        cdef Process* p = &the_region.processes[index]
        store_relaxed_64(&p.pid, 0)
        count_64(&p.incarnation, 1)
        store_relaxed_64(&p.started_ms, <uint64_t>now_ms())
        store_release_32(&p.state, STARTING)

    def process_died(self, int index) -> None:
        """Clear the waiter bits and flusher words of a reaped process, and make every process look at all its slots once [R 6,
        R 7]."""
        cdef Process* p = &the_region.processes[index]
        cdef uint64_t keep = ~(<uint64_t>1 << index)
        cdef uint64_t i, flusher
        cdef int other
        cdef Slot* slot
        store_release_32(&p.state, DEAD)
        store_relaxed_i64(&p.connections, 0)
        store_relaxed_i64(&p.kept_bytes, 0)
        exchange_32(&p.event_pending, 0)
        store_relaxed_64(&p.confirmed_version, 0)
        for other in range(LANES):
            if p.locked_slot[other]:
                store_release_64(&the_region.header.owners_stale, 1)    # it may have died during a change of producers
        clear_words(p.locked_slot, sizeof(p.locked_slot))
        store_relaxed_64(&p.request_sequence, 0)
        clear_gauges(index)
        for i in range(the_region.header.slots_used):
            slot = slot_at(<uint32_t>i)
            if load_relaxed_64(&slot.waiters_log_end) | load_relaxed_64(&slot.waiters_committed) \
                    | load_relaxed_64(&slot.waiters_flushed):
                fetch_and_64(&slot.waiters_log_end, keep)
                fetch_and_64(&slot.waiters_committed, keep)
                fetch_and_64(&slot.waiters_flushed, keep)
            flusher = load_relaxed_64(&slot.flusher)
            if flusher & 0xFF == <uint64_t>(index + 2):
                compare_swap_64(&slot.flusher, flusher, 0)      # fails if a truncation cleared the word; another process may own it then
        clear_ready(index)
        for other in range(the_region.header.process_count):
            if other != index and load_acquire_32(&the_region.processes[other].state) in (STARTING, SERVING):
                store_release_32(&the_region.processes[other].full_look, 1)
                wake_after_death(other)

    # -- by every process -----------------------------------------------------------------------------------------

    def enter(self, int index) -> None:
        """Make this process the one at place `index`."""
        the_region.self = index
        the_region.meter = meter_page(index)
        the_region.loop_thread = this_thread()
        store_relaxed_64(&the_region.processes[index].pid, <uint64_t>getpid())

    def set_state(self, state) -> None:
        store_release_32(&the_region.processes[the_region.self].state, state)

    def beat(self) -> None:
        """Show the supervisor that this process's loop runs."""
        count_64(&the_region.processes[the_region.self].progress, 1)

    def event_fd(self, int index=-1) -> int:
        return the_region.processes[the_region.self if index < 0 else index].event_fd

    def drain_event(self) -> None:
        """Read the wake-up from the event descriptor. Call this before looking at the ready bitmap, so that no wake-up is lost.
        """
        cdef uint64_t count
        cdef Process* p = &the_region.processes[the_region.self]
        read(p.event_fd, &count, 8)
        exchange_32(&p.event_pending, 0)

    def take_ready(self) -> list[int]:
        """The slots for which this process asked to be woken and that moved since the last call; call after `drain_event` [R
        6.2]."""
        cdef uint32_t[READY_AT_ONCE] ready
        cdef int n, i
        slots = []
        while True:
            n = take_ready(ready, READY_AT_ONCE)
            if n == 0:
                return slots
            for i in range(n):
                slots.append(ready[i])

    def take_full_look(self) -> bool:
        """True once after a death, which requires every waiter to look at everything [R 6]."""
        return exchange_32(&the_region.processes[the_region.self].full_look, 0) != 0

    def take_news(self) -> bool:
        """True if a wake-up had another reason than a slot since the last call; call after `drain_event` [R 6.5]."""
        return exchange_32(&the_region.processes[the_region.self].news, 0) != 0

    def wake(self, int index) -> None:
        wake_process(index)

    def wake_all(self) -> None:
        cdef int i
        for i in range(the_region.header.process_count):
            if i != the_region.self and the_region.processes[i].state in (STARTING, SERVING):
                wake_process(i)

    def confirm_version(self, uint64_t version) -> None:
        """Record that this process has applied all metadata changes up to `version` [R 8]."""
        store_release_64(&the_region.processes[the_region.self].confirmed_version, version)

    @property
    def metadata_version(self) -> int:
        return load_acquire_64(&the_region.header.metadata_version)

    def set_connections(self, int64_t n) -> None:
        store_relaxed_i64(&the_region.processes[the_region.self].connections, n)

    def set_kept_bytes(self, int64_t n) -> None:
        """Publish the memory that this process keeps for idle connections, in bytes."""
        store_relaxed_i64(&the_region.processes[the_region.self].kept_bytes, n)

    def connections(self, int index) -> int:
        return the_region.processes[index].connections

    def serves(self, int index) -> bool:
        """Whether the process at place `index` has started and serves."""
        return load_acquire_32(&the_region.processes[index].state) == SERVING

    def process(self, int index) -> ProcessInfo:
        """The row of the process table at place `index`, as a ProcessInfo."""
        cdef Process* p = &the_region.processes[index]
        cdef uint64_t locked_slot
        cdef int64_t locked_since_ms
        info = ProcessInfo()
        info.index = index
        info.pid = p.pid
        info.kind = ProcessKind(p.kind)
        info.state = ProcessState(load_acquire_32(&p.state))
        info.incarnation = p.incarnation
        info.started_ms = p.started_ms
        info.progress = p.progress
        info.connections = p.connections
        info.connections_accepted = p.connections_accepted
        info.kept_bytes = p.kept_bytes
        info.locked_slot = 0
        info.locked_since_ms = 0
        for lane in range(LANES):  # of the slots that it holds, the one that it has held the longest
            locked_slot = load_acquire_64(&p.locked_slot[lane])     # before its time, which is stored first
            locked_since_ms = p.locked_since_ms[lane]
            if locked_slot and (not info.locked_slot or locked_since_ms < info.locked_since_ms):
                info.locked_slot = locked_slot
                info.locked_since_ms = locked_since_ms
        info.confirmed_version = p.confirmed_version
        info.request = None
        if p.request_sequence:
            info.request = {
                "api_key": p.request_key,
                "api_version": p.request_version,
                "correlation_id": p.request_correlation,
                "client_id": bytes(p.request_client[:64]).split(b"\0")[0].decode("utf-8", "replace"),
                "peer": bytes(p.request_peer[:64]).split(b"\0")[0].decode("utf-8", "replace"),
            }
        return info

    def processes(self) -> list[ProcessInfo]:
        return [self.process(i) for i in range(the_region.header.process_count)]

    # -- header ---------------------------------------------------------------------------------------------------

    @property
    def memfd(self) -> int:
        return the_region.memfd

    @property
    def boot_id(self) -> int:
        return the_region.header.boot_id

    @property
    def max_slots(self) -> int:
        return the_region.header.max_slots

    @property
    def slots_used(self) -> int:
        """How many slots were ever assigned to a partition, including those of deleted partitions."""
        return the_region.header.slots_used

    @property
    def partitions(self) -> int:
        """How many partitions this broker has: online, loading or offline."""
        cdef uint64_t i
        cdef uint32_t state
        cdef int count = 0
        for i in range(the_region.header.slots_used):
            state = slot_at(<uint32_t>i).state
            count += state == SLOT_ONLINE or state == SLOT_LOADING or state == SLOT_OFFLINE
        return count

    @property
    def broker_id(self) -> int:
        return the_region.header.broker_id

    @broker_id.setter
    def broker_id(self, int value) -> None:
        the_region.header.broker_id = value

    @property
    def cluster_id(self) -> str:
        return bytes(the_region.header.cluster_id[:64]).split(b"\0")[0].decode()

    @cluster_id.setter
    def cluster_id(self, str value) -> None:
        data = value.encode()
        if len(data) > 63:
            raise ValueError(f"cluster id {value!r} is longer than 63 bytes")
        memset(the_region.header.cluster_id, 0, 64)
        memcpy(the_region.header.cluster_id, <const char*>data, len(data))

    @property
    def stopping(self) -> bool:
        return the_region.header.stopping != 0

    @stopping.setter
    def stopping(self, bint value) -> None:
        store_relaxed_64(&the_region.header.stopping, value)

    @property
    def leave_state(self) -> LeaveState:
        """LeaveState."""
        return LeaveState(the_region.header.leaving)

    @leave_state.setter
    def leave_state(self, value) -> None:
        store_relaxed_64(&the_region.header.leaving, value)

    @property
    def loading(self) -> tuple[int, int]:
        """(partitions loaded, partitions to load) of the current or last start."""
        cdef Header* header = the_region.header
        cdef uint64_t done = 0, total = 0
        cdef int i
        for i in range(header.log_dir_count):
            done += header.loading[i].logs_done
            total += header.loading[i].logs
        return done, total

    @property
    def loading_dirs(self) -> list[dict[str, int]]:
        """Progress of each log directory's loading, as dicts of LoadingDir, with the time that it took so far (ms).

        A loader may cut off a log's torn end while another loader measures that log. Then more bytes are recovered than were
        measured, and the recovered bytes are reported as the bytes to recover.
        """
        cdef Header* header = the_region.header
        cdef LoadingDir* dir
        cdef uint64_t recovered
        cdef int i
        progress = []
        for i in range(header.log_dir_count):
            dir = &header.loading[i]
            recovered = dir.bytes_recovered
            progress.append({
                "logs_done": dir.logs_done,
                "logs": dir.logs,
                "bytes_recovered": recovered,
                "bytes_to_recover": recovered if recovered > dir.bytes_to_recover else dir.bytes_to_recover,
                "truncated_bytes": dir.truncated_bytes,
                "truncated_logs": dir.truncated_logs,
                "elapsed_ms": (dir.ended_ms if dir.ended_ms else monotonic_ms()) - dir.began_ms if dir.began_ms else 0,
            })
        return progress

    @property
    def producer_state(self) -> dict[str, int]:
        """The state of idempotent producers as a dict: `used_bytes` and `max_bytes` of memory, `producers`, and counts of what
        happened for lack of memory, by the lower-case names of ProducerEvent."""
        cdef Header* header = the_region.header
        cdef uint64_t i, count = 0
        for i in range(header.slots_used):
            count += slot_at(<uint32_t>i).producer_count
        values = {
            "used_bytes": header.arena_used * ARENA_UNIT_BYTES,
            "max_bytes": header.arena_units * ARENA_UNIT_BYTES,
            "producers": count,
        }
        for i in range(PRODUCER_EVENTS):
            values[ProducerEvent(i).name.lower()] = header.producer_events[i]
        return values

    @property
    def producer_limit(self) -> int:
        """Most producers that a partition may have."""
        return the_region.header.producer_limit_of_partition

    @property
    def log_dir_count(self) -> int:
        return the_region.header.log_dir_count

    def log_dir_fd(self, int index) -> int:
        return the_region.header.log_dir_fds[index]

    def log_dir_offline(self, int index) -> bool:
        return the_region.header.log_dir_offline[index] != 0

    def set_log_dir_offline(self, int index) -> None:
        store_release_32(&the_region.header.log_dir_offline[index], 1)

    def take_log_dirs_found_full(self) -> list[int]:
        """The indexes of the log directories in which a write found no space since the last call. The cleaner calls this."""
        cdef uint64_t noted = exchange_64(&the_region.header.disk_full_noted, 0)
        return [i for i in range(the_region.header.log_dir_count) if noted >> <uint64_t>i & 1]

    @property
    def log_dir_found_full(self) -> bool:
        """Whether a write found no space since the cleaner last called `take_log_dirs_found_full`."""
        return load_relaxed_64(&the_region.header.disk_full_noted) != 0

    def disk(self, int index) -> tuple[DiskState, int, int, int]:
        """(DiskState, free bytes, total bytes, how often it became full) of a log directory; bytes are -1 before the first
        measurement."""
        cdef Header* header = the_region.header
        return DiskState(header.disk_state[index]), header.disk_free_bytes[index], header.disk_total_bytes[index], \
            header.disk_full_times[index]

    def set_disk(self, int index, state, int64_t free_bytes, int64_t total_bytes) -> None:
        """Store the cleaner's measurement of a log directory; count it if the directory becomes full."""
        cdef Header* header = the_region.header
        if state == DISK_FULL and header.disk_state[index] != DISK_FULL:
            fetch_add_64(&header.disk_full_times[index], 1)
        store_relaxed_i64(&header.disk_free_bytes[index], free_bytes)
        store_relaxed_i64(&header.disk_total_bytes[index], total_bytes)
        store_release_32(&header.disk_state[index], state)
