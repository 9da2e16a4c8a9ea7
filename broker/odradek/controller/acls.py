"""ACLs in the metadata store: read, created, deleted, and published to all processes of the broker.

Runs in the coordinator's store thread. The store decides: a change is written to the node of its resource with the node's
version, so that two brokers that change one resource at the same time lose nothing; then it is published, and the call
returns when every process has confirmed it. If the coordinator dies in between, its successor publishes what the store has.
See docs/decisions/0035-acls.md.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import groupby

from odradek.controller.topics import Refusal
from odradek.metadata import acl_nodes
from odradek.metadata.acl_nodes import Entry, Pattern
from odradek.metadata.store import (
    BadVersion,
    NodeExists,
    NoNode,
    Store,
    StoreError,
    StoreUnavailable,
    ensure_path,
    parent_of,
)
from odradek.protocol.errors import ErrorCode
from odradek.security.acl import Acl, AclFilter, problem_of, problem_of_filter
from odradek.security.acl_encoding import encode_acls

log = logging.getLogger("odradek.controller")

ATTEMPTS = 20
"""How often a change is repeated because another broker changed the same node."""
READ_AT_ONCE = 500
Publish = Callable[[bytes], None]
"""Publishes encoded ACLs to all processes; returns when they have confirmed them."""


class Acls:
    """See the module.

    :param publish: see `Publish`. :param largest: the limit of all encoded ACLs, in bytes.
    :param notifies: whether other brokers must be notified of changes.
    """

    def __init__(self, store: Store, publish: Publish, largest: int, notifies: bool) -> None:
        self._store = store
        self._publish = publish
        self._largest = largest
        self._notifies = notifies
        self._entries: dict[Pattern, frozenset[Entry]] = {}
        self._sorted: list[Acl] | None = None
        self._unpublished = False

    # -- reading --------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read all ACLs of the store and publish them. Raises StoreError; CorruptNode if a rule cannot be understood."""
        for path in acl_nodes.ROOTS:
            ensure_path(self._store, path)
        entries: dict[Pattern, frozenset[Entry]] = {}
        for parent in acl_nodes.PARENT_NODES:
            try:
                names = self._store.children(parent.path)
            except NoNode:
                continue
            for first in range(0, len(names), READ_AT_ONCE):
                some = names[first : first + READ_AT_ONCE]
                paths = [f"{parent.path}/{name}" for name in some]
                for path, name, node in zip(paths, some, self._store.get_many(paths), strict=True):
                    if node is not None:
                        pattern = parent.pattern(name)
                        found = acl_nodes.decode_entries(path, node[0], pattern)
                        if found:
                            entries[pattern] = found
        self._entries = entries
        self._changed()
        self.publish()

    def reload(self, patterns: Iterable[Pattern]) -> None:
        """Read the ACLs of these patterns again, which other brokers changed, and publish them. Raises StoreError."""
        for pattern in patterns:
            self._keep(pattern, self._read(pattern)[0])
        self.publish()

    def _read(self, pattern: Pattern) -> tuple[frozenset[Entry], int]:
        """The stored entries, and the version of their node; -1 if it does not exist. Raises StoreError."""
        path = acl_nodes.path_of(pattern)
        try:
            data, stat = self._store.get(path)
        except NoNode:
            return frozenset(), -1
        return acl_nodes.decode_entries(path, data, pattern), stat.version

    def _keep(self, pattern: Pattern, entries: frozenset[Entry]) -> None:
        if entries == self._entries.get(pattern, frozenset()):
            return
        if entries:
            self._entries[pattern] = entries
        else:
            del self._entries[pattern]
        self._changed()

    def _changed(self) -> None:
        self._sorted = None
        self._unpublished = True

    def all(self) -> list[Acl]:
        """All ACLs, sorted."""
        if self._sorted is None:
            self._sorted = acl_nodes.all_acls(self._entries)
        return self._sorted

    def describe(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that a filter selects, sorted. Raises Refusal."""
        problem = problem_of_filter(wanted)
        if problem is not None:
            raise Refusal(ErrorCode.INVALID_REQUEST, problem)
        return [acl for acl in self.all() if wanted.matches(acl)]

    def publish(self) -> None:
        """Publish the ACLs, if they have changed since the last time.

        Also called regularly: if a client disconnects between two steps of its request, the other steps are not executed.
        """
        if self._unpublished:
            self._publish(encode_acls(self.all()))
            self._unpublished = False

    # -- changing -------------------------------------------------------------------------------------------------

    def create(self, acls: Sequence[Acl]) -> Generator[None, None, list[str | None]]:
        """Create ACLs; returns for each why it was refused, or None. An ACL that exists is no error. Each step writes the
        ACLs of one resource. When the last step returns, the rules are in force in all processes.

        :raises Refusal: all ACLs together would be too large. :raises StoreError: ACLs of earlier resources are stored.
        """
        problems = [problem_of(acl) for acl in acls]
        valid = sorted({acl for acl, problem in zip(acls, problems, strict=True) if problem is None})
        size = len(encode_acls(self.all())) + len(encode_acls(valid))
        if valid and size > self._largest:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"all ACLs together would take up to {size} bytes; the limit is {self._largest} bytes: delete some of them, "
                "or use prefixes",
            )
        try:
            for pattern, same in groupby(valid, lambda acl: acl_nodes.split(acl)[0]):
                added = frozenset(acl_nodes.split(acl)[1] for acl in same)
                before, after = self._change(pattern, lambda entries, added=added: entries | added)  # type: ignore[misc]
                for entry in sorted(after - before):
                    log.info("created the ACL %s", acl_nodes.joined(pattern, entry))
                yield
        except StoreError:
            self.publish()
            raise
        self.publish()
        return list(problems)

    def delete(self, filters: Sequence[AclFilter]) -> Generator[None, None, list[list[Acl] | str]]:
        """Delete the ACLs that filters select. Returns for each filter the deleted ACLs, or why it was refused. When the last
        step returns, the rules are in force no more in any process. An ACL that two filters select is in both results, as in
        Kafka.

        :raises StoreError: ACLs of earlier resources are deleted.
        """
        results: list[list[Acl] | str] = []
        doomed: set[Acl] = set()
        for wanted in filters:
            problem = problem_of_filter(wanted)
            if problem is not None:
                results.append(problem)
                continue
            selected = self.describe(wanted)
            results.append(selected)
            doomed.update(selected)
            yield
        try:
            for pattern, same in groupby(sorted(doomed), lambda acl: acl_nodes.split(acl)[0]):
                removed = frozenset(acl_nodes.split(acl)[1] for acl in same)
                before, after = self._change(pattern, lambda entries, removed=removed: entries - removed)  # type: ignore[misc]
                for entry in sorted(before - after):
                    log.info("deleted the ACL %s", acl_nodes.joined(pattern, entry))
                yield
        except StoreError:
            self.publish()
            raise
        self.publish()
        return results

    def _change(
        self, pattern: Pattern, change: Callable[[frozenset[Entry]], frozenset[Entry]]
    ) -> tuple[frozenset[Entry], frozenset[Entry]]:
        """Change the entries of a pattern in the store. Returns the entries before and after. Raises StoreError."""
        path = acl_nodes.path_of(pattern)
        for _ in range(ATTEMPTS):
            before, version = self._read(pattern)
            after = change(before)
            if after == before:
                self._keep(pattern, after)
                return before, after
            transaction = self._store.transaction()
            if version < 0:
                ensure_path(self._store, parent_of(path))
                transaction.create(path, acl_nodes.encode_entries(after))
            elif after:
                transaction.set(path, acl_nodes.encode_entries(after), version)
            else:
                transaction.delete(path, version)
            if self._notifies:
                notification, data = acl_nodes.change_of(pattern)
                transaction.create(notification, data, sequential=True)
            try:
                transaction.commit()
            except (BadVersion, NodeExists, NoNode):
                continue
            self._keep(pattern, after)
            return before, after
        raise StoreUnavailable(f"other brokers changed {path} {ATTEMPTS} times in the meantime; send the request again")
