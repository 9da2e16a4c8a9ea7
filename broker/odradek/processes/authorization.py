"""The authorizer in a process: reads the published ACLs, and makes the permits of requests.

A process has one `Authorization` for each thread that decides; only that thread uses it. The configuration of the authorizer
(`authorizer.class.name`, `super.users`, `allow.everyone.if.no.acl.found`) does not change while the broker runs.
"""

import time
from typing import Any

from odradek._ext.api.access import AccessControl
from odradek.api.permits import Permits, PermitsOf, unrestricted
from odradek.config.broker_config import BrokerConfig
from odradek.config.super_users import parse_super_users
from odradek.protocol.registry import by_key
from odradek.security.acl import ANONYMOUS
from odradek.security.acl_encoding import decode_acls
from odradek.security.audit import Action, Audit
from odradek.security.authorizer import Authorizer, Rule
from odradek.security.hosts import host_of_peer
from odradek.shm.confirmed_pages import ConfirmedPages

COPY_BYTES = 64 << 20
"""The largest size of all ACLs together, encoded. Only what is used takes memory."""


def has_authorizer(config: BrokerConfig) -> bool:
    """Whether ACLs decide what clients may do."""
    return bool(config["authorizer.class.name"])


def new_pages() -> ConfirmedPages:
    """The memory in which the coordinator publishes ACLs; created before the first fork."""
    return ConfirmedPages("odradek-acls", COPY_BYTES)


def authorizer_of(config: BrokerConfig, pages: ConfirmedPages) -> tuple[int, Authorizer]:
    """The newest published version and its rules. Before the first version, only super users are allowed anything: no ACL known
    does not mean that there is none."""
    super_users = parse_super_users(str(config["super.users"]))
    published = pages.read()
    if published is None:
        return 0, Authorizer((), super_users, False)
    version, data = published
    return version, Authorizer(decode_acls(data), super_users, bool(config["allow.everyone.if.no.acl.found"]))


class Authorization:
    """See the module."""

    def __init__(self, config: BrokerConfig, pages: ConfirmedPages) -> None:
        self._audit = Audit(time.monotonic)
        self.control = AccessControl(pages.word, lambda: authorizer_of(config, pages), self._note, host_of_peer)
        self._settled: Authorizer = self.control.authorizer
        self.tick()

    def _note(
        self, access: Any, operation: int, resource_type: int, name: str, api_key: int, rule: Rule, quiet: bool
    ) -> None:
        if not (rule.allowed or quiet) and self._audit.only_counts(access.principal, access.host):
            return
        action = Action(access.principal, access.host, operation, resource_type, name, by_key(api_key).name)
        self._audit.note(action, rule, quiet)

    def permits_of(self, principal: str | None, peer: str, api_key: int) -> Permits:
        """See `PermitsOf`."""
        self.tick()
        return Permits(self.control.access(principal or ANONYMOUS, peer), api_key)

    def revoked(self) -> frozenset[str]:
        """The principals of which the rules since the last call may have taken away a right; "User:*" for everybody."""
        before, self._settled = self._settled, self.control.authorizer
        return self._settled.revoked_since(before)

    def tick(self) -> None:
        """Called regularly: follow the level of the audit log, and log what was repeated."""
        self.control.verbose = self._audit.verbose
        self._audit.flush()


def authorization_of(config: BrokerConfig, pages: ConfirmedPages) -> Authorization | None:
    """A new Authorization for the calling thread; None if the broker has no authorizer."""
    return Authorization(config, pages) if has_authorizer(config) else None


def permits_by(authorization: Authorization | None) -> PermitsOf:
    """How the permits of requests are made."""
    return unrestricted if authorization is None else authorization.permits_of
