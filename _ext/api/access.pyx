"""What clients may do: see access.pxd.

The ACLs are published in shared memory (`odradek.shm.confirmed_pages`). Every decision compares the version word first, so that no
decision is made by rules that are older than the answer of a CreateAcls or DeleteAcls request that some client has received. A change
makes each thread read the rules again, at its next decision, and forget all remembered decisions.
"""

from weakref import WeakValueDictionary

from libc.stdint cimport uint64_t

from odradek._ext.net.connection cimport Connection
from odradek._ext.shm.atomics cimport load_acquire_64, shared_u64
from odradek._ext.shm.metering cimport AUTHORIZATIONS_ALLOWED, AUTHORIZATIONS_DENIED, add

cdef enum:
    MOST_REMEMBERED = 4096              # decisions of a kind for a client; more: they are all forgotten
    LONGEST_NAME = 249                  # characters or bytes of a remembered name: clients choose names of up to 32 KiB

cdef str ANONYMOUS = "User:ANONYMOUS"


cdef class AccessControl:
    """The authorizer as one thread sees it.

    :param word: memoryview of the version word (one unsigned integer of eight bytes).
    :param read: returns (version, Authorizer) of the newest published rules; the version is at least that in the word.
    :param note: (access, operation, resource type, name, API key, rule, quiet): writes the audit log.
    :param host_of: returns the host of "address:port" in the form that ACLs name.
    """

    def __init__(self, word, read, note, host_of):
        cdef const uint64_t[:] words = word
        if words.shape[0] != 1:
            raise ValueError("the version word must be one word")
        self.word = words
        self.version = <shared_u64*>&words[<int>0]
        self.read = read
        self.note = note
        self.host_of = host_of
        self.known = WeakValueDictionary()
        self.loaded, self.authorizer = read()

    cdef int load(self) except -1:
        """Read the rules again."""
        self.loaded, self.authorizer = self.read()
        return 0

    def refresh(self) -> int:
        """Read the rules again if newer ones were published. Returns their version."""
        if load_acquire_64(self.version) > self.loaded:
            self.load()
        return self.loaded

    def access(self, str principal not None, str peer not None) -> Access:
        """The rights of a client. :param peer: its address and port."""
        cdef str host = self.host_of(peer)
        cdef Access access = self.known.get((principal, host))
        if access is None:
            access = Access.__new__(Access)
            access.control = self
            access.principal = principal
            access.host = host
            access.renew()
            self.known[principal, host] = access
        return access

    cdef Access of_connection(self, Connection connection):
        cdef Access access = connection.access
        cdef str principal = ANONYMOUS if connection.principal is None else connection.principal
        if access is None or access.control is not self or access.principal != principal:
            access = self.access(principal, connection.peer)
            connection.access = access
        connection.access_principal = connection.principal
        return access

    def of(self, Connection connection not None) -> Access:
        """The rights of a connection's client. In the thread of its data loop."""
        return self.of_connection(connection)


cdef class Access:
    """The rights of a principal at a host."""

    cdef int renew(self) except -1:
        """Forget all decisions."""
        self.decided = self.control.loaded
        self.readable = {}
        self.writable = {}
        self.last_written = None
        self.rules = {}
        return 0

    cdef object rule(self, int operation, int resource_type, str name):
        """The Rule that decides, by the newest published rules."""
        cdef AccessControl control = self.control
        if load_acquire_64(control.version) > control.loaded:
            control.load()
        if self.decided != control.loaded:
            self.renew()
        key = (operation, resource_type, name)
        rule = self.rules.get(key)
        if rule is None:
            rule = self.control.authorizer.decide(self.principal, self.host, operation, resource_type, name)
            if len(name) <= LONGEST_NAME:
                if len(self.rules) >= MOST_REMEMBERED:
                    self.rules = {}
                self.rules[key] = rule
        return rule

    cdef bint may_use_topic(self, int operation, bytes name, int api_key) except -1:
        """Whether the client may read (ACL_READ) or write (ACL_WRITE) a topic."""
        cdef dict allowed = self.readable if operation == ACL_READ else self.writable
        if self.decided == self.control.loaded and load_acquire_64(self.control.version) <= self.control.loaded \
                and not self.control.verbose and name in allowed:
            add(AUTHORIZATIONS_ALLOWED, 1)
            if operation == ACL_WRITE:
                self.last_written = name
            return True
        if not self.allows(operation, ACL_TOPIC, name.decode("utf-8", "replace"), api_key):
            return False
        allowed = self.readable if operation == ACL_READ else self.writable
        if len(name) <= LONGEST_NAME:
            if len(allowed) >= MOST_REMEMBERED:
                allowed.clear()
            allowed[name] = True
        return True

    def allows(self, int operation, int resource_type, str name not None, int api_key, bint quiet=False) -> bool:
        """Whether the client may do something with a resource.

        :param quiet: the answer only hides the resource from a list, or fills a bit field: not an attempt of the client.
        """
        if quiet:                       # lists are long, and each of their names is asked once: nothing is remembered
            self.control.refresh()
            rule = self.control.authorizer.decide(self.principal, self.host, operation, resource_type, name)
        else:
            rule = self.rule(operation, resource_type, name)
        return self.judged(rule, operation, resource_type, name, api_key, quiet)

    def grants(self, int operation, int resource_type, str name not None, int api_key) -> bool:
        """As `allows`, but a denial is neither counted nor noted: the caller decides again, and then notes it."""
        rule = self.rule(operation, resource_type, name)
        return rule.allowed and self.judged(rule, operation, resource_type, name, api_key, False)

    def allows_by_type(self, int operation, int resource_type, int api_key) -> bool:
        """Whether the client may do something with at least one resource of a type."""
        self.control.refresh()
        rule = self.control.authorizer.decide_by_type(self.principal, self.host, operation, resource_type)
        return self.judged(rule, operation, resource_type, "hardcode", api_key, False)

    def operations(self, int resource_type, str name not None) -> int:
        """The bit field of what the client may do with a resource (KIP-430)."""
        self.control.refresh()
        return self.control.authorizer.operations(self.principal, self.host, resource_type, name)

    def judged(self, rule, int operation, int resource_type, str name, int api_key, bint quiet) -> bool:
        """Count and note a decision; returns whether the client is allowed."""
        cdef bint allowed = rule.allowed
        if not quiet:
            add(AUTHORIZATIONS_ALLOWED if allowed else AUTHORIZATIONS_DENIED, 1)
        if self.control.verbose or not (allowed or quiet):
            self.control.note(self, operation, resource_type, name, api_key, rule, quiet)
        return allowed
