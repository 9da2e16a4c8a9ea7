"""Limits of the texts that clients commit with offsets: of one group, and of all groups that one client has created.

offset.metadata.max.bytes limits one text, but not how many there are: with each partition of each group, the coordinator keeps
one in memory and in its log. Used in the coordinator's loop. Sizes are in characters, as those of offset.metadata.max.bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.config.broker_config import BrokerConfig
from odradek.groups.offsets import CommitRequest
from odradek.security.owners import Client

if TYPE_CHECKING:
    from odradek.groups.group import Group

log = logging.getLogger("odradek.requests")

OF_GROUP_KEY = "odradek.group.offset.metadata.max.bytes"
OF_CLIENT_KEY = "odradek.group.offset.metadata.max.bytes.per.client"
RECOUNT_AGAIN_MS = 100
MOST_ACCOUNTS = 10_000
"""Clients whose commits are added up; of another one, the groups are counted again."""


@dataclass(frozen=True)
class MetadataSizes:
    """The values of the two keys."""

    of_group: int = 16_777_216
    of_client: int = 67_108_864

    def __call__(self) -> MetadataSizes:
        """Implements `CurrentSizes` with constant limits."""
        return self


METADATA_SIZES = MetadataSizes()

CurrentSizes = Callable[[], MetadataSizes]
"""Returns the limits at each use: they may change at any time."""


def configured(config: BrokerConfig) -> CurrentSizes:
    """The current values of the configuration."""
    return lambda: MetadataSizes(config.integer(OF_GROUP_KEY), config.integer(OF_CLIENT_KEY))


@dataclass
class _Account:
    """What a client may have committed at most. :param size: of its groups at `counted_ms`, and of all commits since then."""

    size: int
    counted_ms: int


class MetadataLimits:
    """See the module.

    :param size_of: returns the size of all groups that an owner has created. :param clock: wall clock, in ms.
    """

    def __init__(self, limits: CurrentSizes, size_of: Callable[[str], int], clock: Callable[[], int]) -> None:
        self._limits = limits
        self._size_of = size_of
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def admit(self, group: Group, commit: CommitRequest, client: Client) -> bool:
        """Whether the texts of a commit may be stored, which are then added to its client's; a refusal is logged. A commit with
        no more text than what it replaces is always admitted."""
        added = commit.metadata_size
        if not added:
            return True
        limits = self._limits()
        account = self._account(client.owner, added, limits.of_client)
        of_group, of_client = group.metadata_size + added, account.size + added
        if of_group > limits.of_group or of_client > limits.of_client:
            growth = group.offsets.growth(commit)
            of_group, of_client = of_group - added + growth, of_client - added + growth
            key, size, limit = OF_GROUP_KEY, of_group, limits.of_group
            if of_group <= limits.of_group:
                key, size, limit = OF_CLIENT_KEY, of_client, limits.of_client
            if growth > 0 and size > limit:
                log.warning(
                    "refused a commit of %s to group %s: the metadata of its offsets would take %d characters, and %s allows"
                    " %d; delete groups or raise the key (at run time)",
                    client, group.group_id, size, key, limit, extra={"client_address": client.host},
                )  # fmt: skip
                return False
        account.size += added
        return True

    def _account(self, owner: str, added: int, most: int) -> _Account:
        account, now_ms = self._accounts.get(owner), self._clock()
        if account is None:
            if len(self._accounts) >= MOST_ACCOUNTS:
                del self._accounts[next(iter(self._accounts))]
            account = self._accounts[owner] = _Account(self._size_of(owner), now_ms)
        elif account.size + added > most and not 0 <= now_ms - account.counted_ms < RECOUNT_AGAIN_MS:
            account.size, account.counted_ms = self._size_of(owner), now_ms
        return account
